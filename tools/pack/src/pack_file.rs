//! A pack as its own tools read it: header and tables checked, so that the rest can be walked.

use crate::error::{Error, Result};
use crate::layout::padded;
use crate::source::{FileRange, Source, read_vec};
use estream_idl::address::PAGE;
use estream_idl::pack::{
    Checksums, Directory, DirectoryFault, Extent, Header, LayerEntry, MAGIC, MatrixEntry, Role, VERSION,
};
use estream_idl::recipe::Recipe;
use std::path::Path;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes that one table may take: far above any model, and a bound on what a damaged header can ask for.
const TABLE_LIMIT: u32 = 256 << 20;

/// Whether the first bytes are a pack's.
pub(crate) fn has_magic(first: &[u8]) -> bool {
    first.starts_with(&MAGIC)
}

/// An open pack whose header and tables are sound.
pub(crate) struct PackFile {
    pub(crate) file: FileRange,
    pub(crate) header: Header,
    pub(crate) recipe: Recipe,
    directory: Vec<u8>,
    checksums: Vec<u8>,
}

impl PackFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::read(FileRange::open(path)?).map_err(|error| error.in_file(path))
    }

    fn read(file: FileRange) -> Result<Self> {
        let header = read_header(&file)?;
        check_ranges(&header)?;
        let recipe = Recipe::decode(&table(&file, &header.recipe, "recipe")?)
            .ok_or_else(|| damaged("the recipe does not decode", header.recipe.file))?;
        let directory = table(&file, &header.directory, "directory")?;
        let checksums = table(&file, &header.checksums, "checksum table")?;
        table(&file, &header.tokenizer, "tokenizer")?;
        let pack = Self { file, header, recipe, directory, checksums };
        pack.check_directory()?;
        pack.check_checksums()?;
        Ok(pack)
    }

    pub(crate) fn directory(&self) -> Result<Directory<'_>> {
        Directory::read(&self.directory).ok_or_else(|| {
            damaged("the directory has another length than it says", self.header.directory.file)
        })
    }

    pub(crate) fn checksums(&self) -> Result<Checksums<'_>> {
        Checksums::read(&self.checksums).ok_or_else(|| {
            damaged("the checksum table has another length than it says", self.header.checksums.file)
        })
    }

    fn check_directory(&self) -> Result<()> {
        let directory = self.directory()?;
        let named =
            |fault: DirectoryFault| damaged(&fault.to_string(), fault.offset(&directory, &self.header));
        directory.check(&self.header).map_err(named)
    }

    /// The sums cover the dense and the expert range without gaps, and each embedding page has one.
    fn check_checksums(&self) -> Result<()> {
        let (checksums, header) = (self.checksums()?, &self.header);
        let wrong = || damaged("the checksum table does not cover the file", header.checksums.file);
        let mut at = header.dense.file;
        for sum in checksums.extents.iter() {
            if at == header.embedding.file {
                at = header.experts.file;
            }
            if sum.file != at || sum.bytes == 0 || !sum.bytes.is_multiple_of(PAGE as u64) {
                return Err(wrong());
            }
            at = at.checked_add(sum.bytes).ok_or_else(wrong)?;
        }
        let pages = header.embedding.bytes / PAGE as u64;
        if at != header.file_bytes || checksums.embedding_pages.len() as u64 != pages {
            return Err(wrong());
        }
        Ok(())
    }
}

/// Experts of a layer in storage order, or `None` where the table is damaged.
pub(crate) fn stored_order(directory: &Directory<'_>, layer: &LayerEntry) -> Option<Vec<u16>> {
    let experts = layer.experts as usize;
    if experts > directory.permutations.len() {
        return None;
    }
    let mut stored = vec![None; experts];
    for expert in 0..experts {
        let position = directory.permutations.get((layer.permutation as usize).checked_add(expert)?)?;
        let place = stored.get_mut(usize::from(position))?;
        if place.replace(u16::try_from(expert).ok()?).is_some() {
            return None;
        }
    }
    stored.into_iter().collect()
}

/// What a dense matrix is, in words.
pub(crate) fn matrix_name(matrix: &MatrixEntry) -> String {
    let role = ROLES.iter().find(|(role, _)| *role as u16 == matrix.role);
    let role = role.map_or_else(|| format!("matrix of role {}", matrix.role), |(_, name)| (*name).to_owned());
    match matrix.layer {
        estream_idl::pack::NO_LAYER => role,
        layer => format!("{role} of layer {layer}"),
    }
}

const ROLES: [(Role, &str); 11] = [
    (Role::MixerNorm, "mixer norm"),
    (Role::Query, "query projection"),
    (Role::Key, "key projection"),
    (Role::Value, "value projection"),
    (Role::Output, "output projection"),
    (Role::QueryNorm, "query norm"),
    (Role::KeyNorm, "key norm"),
    (Role::FeedNorm, "feed-forward norm"),
    (Role::Router, "router"),
    (Role::FinalNorm, "final norm"),
    (Role::Head, "head"),
];

fn damaged(what: &str, offset: u64) -> Error {
    Error::input("damaged-pack", what).at(offset)
}

fn read_header(file: &FileRange) -> Result<Header> {
    let mut bytes = vec![0; PAGE.min(file.bytes() as usize)];
    file.read_at(0, &mut bytes).map_err(|error| Error::read(&error, 0))?;
    if !has_magic(&bytes) && bytes.len() >= MAGIC.len() {
        return Err(Error::input("not-a-pack", "not a pack: the first bytes are others").at(0));
    }
    let mut header = Header::read_from_bytes(&bytes).map_err(|_| {
        let message = format!("the file ends in the header, at byte {}", bytes.len());
        Error::input("truncated", message).at(file.bytes())
    })?;
    if header.version != VERSION {
        let message = format!("pack version {}; this program reads {VERSION}", header.version);
        return Err(Error::input("unsupported-version", message).at(8));
    }
    let recorded = std::mem::take(&mut header.crc);
    if crc32c::crc32c(header.as_bytes()) != recorded {
        return Err(Error::input("checksum", "the header is damaged: its checksum differs").at(0));
    }
    if header.file_bytes != file.bytes() {
        let message = format!("the pack has {} bytes, the file {}", header.file_bytes, file.bytes());
        let code = if file.bytes() < header.file_bytes { "truncated" } else { "damaged-pack" };
        return Err(Error::input(code, message).at(file.bytes().min(header.file_bytes)));
    }
    Ok(header)
}

/// Tables and ranges lie end to end from the header to the end of the file: no byte is without a checksum.
fn check_ranges(header: &Header) -> Result<()> {
    let tables = [header.recipe, header.directory, header.checksums, header.tokenizer];
    let pieces = tables.iter().map(|table| (table.file, padded(table.bytes.into())));
    let ranges = [header.dense, header.embedding, header.experts].map(|range| (range.file, range.bytes));
    let mut at = PAGE as u64;
    for (file, bytes) in pieces.chain(ranges) {
        if file != at || !bytes.is_multiple_of(PAGE as u64) {
            return Err(damaged("the header's ranges do not lie end to end", file));
        }
        at = at.checked_add(bytes).ok_or_else(|| damaged("the header's ranges overflow", file))?;
    }
    if at != header.file_bytes {
        return Err(damaged("the header's ranges do not fill the file", at));
    }
    Ok(())
}

fn table(file: &FileRange, extent: &Extent, what: &str) -> Result<Vec<u8>> {
    if extent.bytes > TABLE_LIMIT {
        return Err(damaged(&format!("the {what} claims {} bytes", extent.bytes), extent.file));
    }
    let mut bytes = read_vec(file, extent.file, padded(extent.bytes.into()) as usize)?;
    if crc32c::crc32c(&bytes) != extent.crc {
        return Err(
            Error::input("checksum", format!("the {what} is damaged: its checksum differs")).at(extent.file)
        );
    }
    bytes.truncate(extent.bytes as usize);
    Ok(bytes)
}
