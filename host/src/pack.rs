//! A pack on disk: opened, its header and tables checked, its bytes verified by policy, and ready to be read.
//!
//! Ranges are checked before anything is read through them: the header's CRC first, then that its tables and ranges tile
//! the file from byte 4096 to its end in the format's order. What tiles the file has a checksum each, so no byte stands
//! outside all of them. Then the directory is held against the header (`estream_idl::pack`): sizes that memory is bounded
//! by are no better than the table that they were taken from. The recipe is bytes to this crate, and so is what the
//! directory's matrices are for.

use crate::identity::Identity;
use crate::probe::{IoMode, probe};
use crate::read::Reader;
use crate::sums::Sums;
use crate::verify::{Verify, VerifyReport, verify};
use crate::{Error, Exit};
use estream_idl::address::PAGE;
use estream_idl::pack::{Directory, DirectoryFault, Extent, Header, MAGIC, Range, VERSION};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zerocopy::{FromBytes as _, IntoBytes as _};

/// The longest table of a pack (recipe, directory, checksums, tokenizer) that is read into memory.
const TABLE_LIMIT: u32 = 256 << 20;
const PAGE_BYTES: u64 = PAGE as u64;
/// Adjacent loads share a request up to so many bytes, unless the caller knows the storage better: from there on the virtio
/// disk that this was measured on gives its full rate (1 MiB gives half of it), and flash needs no more. Longer requests
/// would only make the first of their loads wait for the last.
pub const MERGE_BYTES: u64 = 4 << 20;

/// An opened pack.
pub struct Pack {
    pub(crate) path: Arc<Path>,
    pub(crate) reader: Reader,
    pub(crate) io_mode: IoMode,
    pub(crate) sums: Sums,
    pub(crate) identity: Identity,
    pub(crate) merge_bytes: u64,
    header: Box<Header>,
    recipe: Vec<u8>,
    directory: Vec<u8>,
    verified: VerifyReport,
}

impl Pack {
    /// Opens `path`, checks header and tables, and verifies the rest as `policy` says. `progress` is told (bytes done,
    /// bytes of the file) by a verifying pass.
    ///
    /// # Errors
    /// When the file cannot be read or is not a whole and undamaged pack; the error names the byte.
    pub fn open(path: &Path, policy: Verify, progress: &dyn Fn(u64, u64)) -> Result<Self, Error> {
        let file = open_regular(path)?;
        let size = file.metadata().map_err(|error| unreadable(path, 0, &error))?.len();
        let (direct, io_mode) = probe(path, &file);
        let identity = file.try_clone().and_then(Identity::of);
        let identity = identity.map_err(|error| unreadable(path, 0, &error))?;
        let reader = Reader::new(direct, Box::new(file));

        let header = read_header(path, &reader, size)?;
        check_layout(path, &header)?;
        let table = |name, extent| read_table(path, &reader, name, extent);
        let recipe = table("recipe", header.recipe)?;
        let directory = table("directory", header.directory)?;
        check_directory(path, &directory, &header)?;
        let sums =
            Sums::new(table("checksum table", header.checksums)?, &header).map_err(|(entry, why)| {
                let what = format!("the checksum table does not cover the pack: entry {entry}: {why}");
                Error::bad_pack("bad_checksum_table", path, header.checksums.file, what)
            })?;
        // Its bytes are nobody's here, but a flip in them is as much damage as any other.
        table("tokenizer", header.tokenizer)?;
        let verified = verify(path, identity.file(), &reader, &header, &sums, policy, progress)?;

        let (path, merge_bytes) = (path.into(), MERGE_BYTES);
        Ok(Self { path, reader, io_mode, sums, identity, merge_bytes, header, recipe, directory, verified })
    }

    /// Sets how many bytes adjacent loads of a session may have together to share a request; 0 keeps each its own. It is
    /// [`MERGE_BYTES`] at first.
    pub const fn set_merge_bytes(&mut self, bytes: u64) {
        self.merge_bytes = bytes;
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The recipe's bytes, unread.
    #[must_use]
    pub fn recipe(&self) -> &[u8] {
        &self.recipe
    }

    /// The directory's bytes.
    #[must_use]
    pub fn directory(&self) -> &[u8] {
        &self.directory
    }

    /// The directory's tables, which agree with the header.
    #[must_use]
    pub fn tables(&self) -> Directory<'_> {
        Directory::read(&self.directory).expect("checked when the pack was opened")
    }

    /// The tokenizer's bytes, read (and checked) now: a session does not keep them.
    ///
    /// # Errors
    /// When they cannot be read or are damaged.
    pub fn tokenizer(&self) -> Result<Vec<u8>, Error> {
        read_table(&self.path, &self.reader, "tokenizer", self.header.tokenizer)
    }

    /// What was verified when the pack was opened.
    #[must_use]
    pub fn verified(&self) -> &VerifyReport {
        &self.verified
    }

    /// How the pack is read.
    #[must_use]
    pub fn io_mode(&self) -> &IoMode {
        &self.io_mode
    }

    /// Where the pack lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl std::fmt::Debug for Pack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pack")
            .field("path", &self.path)
            .field("io_mode", &self.io_mode)
            .finish_non_exhaustive()
    }
}

/// Opens a regular file; a pipe or a directory is refused before it can block or surprise.
fn open_regular(path: &Path) -> Result<File, Error> {
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = File::options().read(true).custom_flags(nonblock).open(path);
    let file = opened.map_err(|error| unreadable(path, 0, &error))?;
    let kind = file.metadata().map_err(|error| unreadable(path, 0, &error))?.file_type();
    if kind.is_file() { Ok(file) } else { Err(Error::bad_pack("not_a_file", path, 0, "not a regular file")) }
}

/// The error of a range of the pack that could not be read. What the machine lacks or broke is no fault of the file.
pub(crate) fn unreadable(path: &Path, offset: u64, error: &io::Error) -> Error {
    let cut = error.kind() == io::ErrorKind::UnexpectedEof;
    let code = if cut { "truncated" } else { "unreadable" };
    let told = Error::bad_pack(code, path, offset, format!("cannot be read: {error}"));
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO) => Error { exit: Exit::Runtime, ..told },
        _ => told,
    }
}

fn read_header(path: &Path, reader: &Reader, size: u64) -> Result<Box<Header>, Error> {
    let mut page = vec![0; PAGE];
    let present = usize::try_from(size).unwrap_or(PAGE).min(PAGE);
    reader.fill_cached(&mut page[..present], 0).map_err(|error| unreadable(path, 0, &error))?;
    if page[..present.min(8)] != MAGIC[..present.min(8)] || present == 0 {
        let starts = page[..present.min(8)].escape_ascii().to_string();
        let hint = if page.starts_with(b"GGUF") { ": a GGUF has to be packed first" } else { "" };
        let what = format!("not a pack: it starts with \"{starts}\"{hint}");
        return Err(Error::bad_pack("not_a_pack", path, 0, what));
    }
    if present < PAGE {
        let what = format!("cut short: it has {size} bytes, the header alone takes {PAGE}");
        return Err(Error::bad_pack("truncated", path, size, what));
    }
    let mut header = Box::new(Header::read_from_bytes(&page).expect("a header is a page"));
    if header.version != VERSION {
        let what = format!("pack version {}, this program reads version {VERSION}", header.version);
        return Err(Error::bad_pack("version", path, 8, what));
    }
    let said = std::mem::take(&mut header.crc);
    let found = crc32c::crc32c(header.as_bytes());
    header.crc = said;
    if said != found {
        let what = format!("the header is damaged: its checksum is {found:08x}, it says {said:08x}");
        return Err(Error::bad_pack("checksum", path, 12, what));
    }
    if header.file_bytes != size {
        let how = if size < header.file_bytes { "cut short" } else { "too long" };
        let what = format!("{how}: it has {size} bytes, its header says {}", header.file_bytes);
        return Err(Error::bad_pack("truncated", path, size.min(header.file_bytes), what));
    }
    Ok(header)
}

/// Tables and ranges in file order with their names and padded lengths.
pub(crate) fn layout(header: &Header) -> [(&'static str, Range); 7] {
    let padded = |extent: Extent| Range {
        file: extent.file,
        bytes: u64::from(extent.bytes).next_multiple_of(PAGE_BYTES),
    };
    [
        ("recipe", padded(header.recipe)),
        ("directory", padded(header.directory)),
        ("checksum table", padded(header.checksums)),
        ("tokenizer", padded(header.tokenizer)),
        ("dense range", header.dense),
        ("embedding range", header.embedding),
        ("expert range", header.experts),
    ]
}

fn check_layout(path: &Path, header: &Header) -> Result<(), Error> {
    let bad = |what: String| Err(Error::bad_pack("bad_header", path, 0, what));
    let mut at = PAGE_BYTES;
    for (name, Range { file, bytes }) in layout(header) {
        let end = at.checked_add(bytes).filter(|&end| end <= header.file_bytes);
        match end {
            Some(end) if file == at && bytes.is_multiple_of(PAGE_BYTES) => at = end,
            _ => {
                let size = header.file_bytes;
                return bad(format!("the {name} is {file}+{bytes} where {at} of {size} bytes are taken"));
            }
        }
    }
    if at != header.file_bytes {
        return bad(format!("nothing says what bytes {at}..{} are", header.file_bytes));
    }
    Ok(())
}

/// Whether the directory is one, and says what the header says.
fn check_directory(path: &Path, bytes: &[u8], header: &Header) -> Result<(), Error> {
    let bad = |offset, what: String| Error::bad_pack("bad_directory", path, offset, what);
    let directory = Directory::read(bytes).ok_or_else(|| {
        bad(header.directory.file, "the directory's tables do not have the lengths that they state".into())
    })?;
    let named = |fault: DirectoryFault| bad(fault.offset(&directory, header), fault.to_string());
    directory.check(header).map_err(named)
}

/// A table's bytes without padding, after its checksum (which covers the padding) was compared.
fn read_table(path: &Path, reader: &Reader, name: &str, extent: Extent) -> Result<Vec<u8>, Error> {
    if extent.bytes > TABLE_LIMIT {
        let what = format!("the {name} has {} bytes, at most {TABLE_LIMIT} are possible", extent.bytes);
        return Err(Error::bad_pack("bad_header", path, extent.file, what));
    }
    let mut bytes = vec![0; (extent.bytes as usize).next_multiple_of(PAGE)];
    reader.fill_cached(&mut bytes, extent.file).map_err(|error| unreadable(path, extent.file, &error))?;
    let found = crc32c::crc32c(&bytes);
    if found != extent.crc {
        let said = extent.crc;
        let what = format!("the {name} is damaged: its checksum is {found:08x}, the header says {said:08x}");
        return Err(Error::bad_pack("checksum", path, extent.file, what));
    }
    bytes.truncate(extent.bytes as usize);
    Ok(bytes)
}

/// The file beside `path` with `suffix` appended to its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_lacks_is_no_fault_of_the_file() {
        let exit = |errno: Errno| {
            let error = unreadable(Path::new("m.estream"), 4096, &errno.into());
            assert!(error.message.contains("m.estream") && error.offset == Some(4096), "{error}");
            error.exit
        };
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO] {
            assert_eq!(exit(errno), Exit::Runtime, "{errno}");
        }
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::ISDIR] {
            assert_eq!(exit(errno), Exit::Input, "{errno}");
        }
        let cut = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(unreadable(Path::new("m"), 0, &cut).exit, Exit::Input);
    }
}
