//! The pack (`.estream`): header, directory and checksums, fixed-layout tables that are read in place.
//!
//! ```text
//! 0        header (4096 bytes)
//!          recipe · directory · checksums · tokenizer      each padded with zeros to 4096
//!          dense matrices, each at a multiple of 4096
//!          embedding rows, end to end, padded once
//!          expert records, layer by layer, in storage order
//! ```
//! Every extent starts at a multiple of 4096 and the file ends at one, so O_DIRECT has no tail. CRC32C covers every
//! byte: the header by itself, the four tables in the header, the rest in the checksum table (padding included).

use crate::address::PAGE;
use crate::format::FormatBytes;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

mod check;

pub use check::{DirectoryFault, DirectoryTable, MAX_EXPERTS, MAX_INPUTS, MAX_RECORD};

/// The first eight bytes of a pack.
pub const MAGIC: [u8; 8] = *b"ESTREAM\n";
/// The format's version; others are refused.
pub const VERSION: u32 = 1;

/// A table of the pack and its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Extent {
    /// Byte offset, a multiple of 4096.
    pub file: u64,
    /// Bytes without padding.
    pub bytes: u32,
    /// CRC32C of the extent with its padding.
    pub crc: u32,
}

/// A range of the pack without a checksum of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Range {
    /// Byte offset, a multiple of 4096.
    pub file: u64,
    /// Bytes, a multiple of 4096.
    pub bytes: u64,
}

/// The header: all that the host needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// CRC32C of the header's 4096 bytes with this field 0.
    pub crc: u32,
    /// Bytes of the whole file.
    pub file_bytes: u64,
    /// The recipe, postcard.
    pub recipe: Extent,
    /// The directory, [`DirectoryHeader`] and its tables.
    pub directory: Extent,
    /// The checksums, [`ChecksumHeader`] and its tables.
    pub checksums: Extent,
    /// The tokenizer and chat template (for people and tools; firmware and host ignore it).
    pub tokenizer: Extent,
    /// Dense matrices.
    pub dense: Range,
    /// Embedding rows.
    pub embedding: Range,
    /// Expert records.
    pub experts: Range,
    /// W_e, the largest expert record of any layer.
    pub record_bytes: u64,
    /// Layers with experts.
    pub sparse_layers: u32,
    /// Experts of the layer with most.
    pub experts_per_layer: u32,
    /// Zeros up to 4096.
    pub reserved: [u8; HEADER_RESERVED],
}

const HEADER_RESERVED: usize = PAGE - 24 - 4 * 16 - 3 * 16 - 16;
static_assertions::const_assert_eq!(size_of::<Header>(), PAGE);

/// What a dense matrix is for. Numbers are part of the pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Role {
    /// RMSNorm weights before the mixer, `[width]`.
    MixerNorm = 1,
    /// Query projection, width → heads·key_width.
    Query = 2,
    /// Key projection, width → kv_heads·key_width.
    Key = 3,
    /// Value projection, width → kv_heads·value_width.
    Value = 4,
    /// Output projection, heads·value_width → width.
    Output = 5,
    /// Norm weights of queries.
    QueryNorm = 6,
    /// Norm weights of keys.
    KeyNorm = 7,
    /// RMSNorm weights before the feed-forward part, `[width]`.
    FeedNorm = 8,
    /// Router, width → experts, f32.
    Router = 9,
    /// RMSNorm weights before the head, `[width]`.
    FinalNorm = 10,
    /// Head, width → vocab.
    Head = 11,
    /// Latent attention's down projection, width → latent + rope width.
    Latent = 12,
    /// Norm weights of the latent vector.
    LatentNorm = 13,
    /// Latent attention's key matrices, one a head: plain → latent (absorbed) or latent → plain.
    KeyUp = 14,
    /// Latent attention's value matrices, latent → heads · value_width.
    ValueUp = 15,
    /// Convolution's input projection, width → 3 · width.
    ConvolutionIn = 16,
    /// Convolution's taps, `[width][taps]`, a vector.
    Taps = 17,
    /// Convolution's output projection, width → width.
    ConvolutionOut = 18,
    /// Bias of the router's choice, `[experts]`.
    ChoiceBias = 19,
    /// Gate of the unit that all tokens pass (dense layers, shared experts), width → inner.
    Gate = 20,
    /// Its up projection, width → inner.
    Up = 21,
    /// Its down projection, inner → width.
    Down = 22,
}

/// The layer number of matrices that belong to no layer.
pub const NO_LAYER: u16 = u16::MAX;

/// The head of the directory; `LayerEntry`s, `MatrixEntry`s and the u16 permutations follow in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DirectoryHeader {
    /// Entries of the layer table, layers ascending.
    pub layers: u32,
    /// Entries of the matrix table.
    pub matrices: u32,
    /// Entries of the permutation table.
    pub permutations: u32,
    /// Bytes of an embedding row.
    pub row_bytes: u32,
    /// Where the dense matrices stand in the file; page p of the dense segment is file page `dense.file / 4096 + p`.
    pub dense: Range,
    /// Where the embedding rows stand in the file.
    pub embedding: Range,
    /// How embedding rows are stored.
    pub embedding_format: FormatBytes,
}

/// One matrix inside an expert record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Part {
    /// Byte offset in the record, a multiple of 128.
    pub offset: u32,
    /// Inputs.
    pub k: u32,
    /// Outputs.
    pub n: u32,
    /// Zero.
    pub reserved: u32,
    /// Storage.
    pub format: FormatBytes,
}

/// One layer's experts: record at storage position p stands at `file + p · record_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LayerEntry {
    /// Layer in the recipe.
    pub layer: u32,
    /// Experts, E.
    pub experts: u32,
    /// Byte offset of the first record.
    pub file: u64,
    /// W_l, a multiple of 4096.
    pub record_bytes: u64,
    /// Index in the permutation table of this layer's π: entry e is the storage position of expert e.
    pub permutation: u32,
    /// Zero.
    pub reserved: u32,
    /// Gate, width → expert width.
    pub gate: Part,
    /// Up, width → expert width.
    pub up: Part,
    /// Down, expert width → width.
    pub down: Part,
}

/// One dense matrix, or vector (`n` = 0 and f32 elements in order).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MatrixEntry {
    /// A [`Role`].
    pub role: u16,
    /// Its layer or [`NO_LAYER`].
    pub layer: u16,
    /// Inputs (elements of a vector).
    pub k: u32,
    /// Outputs; 0 marks a vector of plain f32.
    pub n: u32,
    /// Zero.
    pub reserved: u32,
    /// Byte offset in the file, a multiple of 4096.
    pub file: u64,
    /// Bytes, padded to 4096.
    pub bytes: u64,
    /// Storage.
    pub format: FormatBytes,
}

static_assertions::assert_eq_size!(DirectoryHeader, [u8; 72]);
static_assertions::assert_eq_size!(LayerEntry, [u8; 152]);
static_assertions::assert_eq_size!(MatrixEntry, [u8; 56]);

/// The head of the checksum table; `ExtentSum`s and then one u32 CRC32C per embedding page follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ChecksumHeader {
    /// Extents, ascending by offset; they cover the dense and expert ranges without gaps.
    pub extents: u32,
    /// Pages of the embedding range.
    pub embedding_pages: u32,
}

/// The checksum of one dense matrix or expert record. Loads begin and end at such borders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ExtentSum {
    /// Byte offset.
    pub file: u64,
    /// Bytes, a multiple of 4096.
    pub bytes: u64,
    /// CRC32C of all its bytes.
    pub crc: u32,
    /// Zero.
    pub reserved: u32,
}

/// A table of fixed-layout entries, read in place from bytes at any alignment.
#[derive(Debug)]
pub struct Table<'a, T> {
    bytes: &'a [u8],
    entry: core::marker::PhantomData<T>,
}

impl<T> Clone for Table<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Table<'_, T> {}

impl<'a, T: FromBytes> Table<'a, T> {
    fn take(bytes: &'a [u8], count: u32) -> Option<(Self, &'a [u8])> {
        let (bytes, rest) = bytes.split_at_checked((count as usize).checked_mul(size_of::<T>())?)?;
        Some((Self { bytes, entry: core::marker::PhantomData }, rest))
    }

    /// Entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() / size_of::<T>()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Entry `index`, or `None` past the end.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<T> {
        let at = index.checked_mul(size_of::<T>())?;
        T::read_from_bytes(self.bytes.get(at..at.checked_add(size_of::<T>())?)?).ok()
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let table = *self;
        (0..table.len()).filter_map(move |index| table.get(index))
    }
}

/// The directory's tables, borrowed from its bytes. Lengths are checked; what the entries say is checked by [`Self::check`]
/// or [`Self::check_tables`], and against the recipe by the firmware.
#[derive(Clone, Copy, Debug)]
pub struct Directory<'a> {
    /// Counts and the embedding.
    pub header: DirectoryHeader,
    /// Layers with experts.
    pub layers: Table<'a, LayerEntry>,
    /// Dense matrices.
    pub matrices: Table<'a, MatrixEntry>,
    /// Storage positions, see [`LayerEntry::permutation`].
    pub permutations: Table<'a, u16>,
}

impl<'a> Directory<'a> {
    /// The tables in place, or `None` where the bytes have another length than the header says.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = DirectoryHeader::read_from_prefix(bytes).ok()?;
        let (layers, rest) = Table::take(rest, header.layers)?;
        let (matrices, rest) = Table::take(rest, header.matrices)?;
        let (permutations, rest) = Table::take(rest, header.permutations)?;
        rest.is_empty().then_some(Self { header, layers, matrices, permutations })
    }
}

/// The checksum table, borrowed from its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Checksums<'a> {
    /// Dense matrices and expert records, ascending.
    pub extents: Table<'a, ExtentSum>,
    /// One CRC32C per embedding page.
    pub embedding_pages: Table<'a, u32>,
}

impl<'a> Checksums<'a> {
    /// The tables in place, or `None` where the bytes have another length than the header says.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = ChecksumHeader::read_from_prefix(bytes).ok()?;
        let (extents, rest) = Table::take(rest, header.extents)?;
        let (embedding_pages, rest) = Table::take(rest, header.embedding_pages)?;
        rest.is_empty().then_some(Self { extents, embedding_pages })
    }
}

impl Header {
    /// An empty header of this version.
    #[must_use]
    pub fn empty() -> Self {
        let mut header = Self::new_zeroed();
        header.magic = MAGIC;
        header.version = VERSION;
        header
    }
}
