//! A pack whose header and tables say anything, under checksums that are right: what is behind them must be checked too.
//!
//! The bytes are the file's beginning; behind them it is a hole as long as the header wants, within reason.

use estream_dsp::model::{FeedWeights, Model, SparseWeights};
use estream_host::{Pack, Verify};
use estream_idl::pack::{Checksums, Directory, Extent, Header};
use std::io::Write;
use zerocopy::{FromBytes, IntoBytes};

/// Longest file that is made.
const FILE_BYTES: u64 = 32 << 20;

/// Opens the bytes as a pack with everything that opens packs.
pub fn pack(bytes: &[u8]) {
    tables(bytes);
    let mut file = bytes.to_vec();
    let Some(length) = seal(&mut file) else { return };
    let mut on_disk = tempfile::NamedTempFile::new().expect("a temporary file");
    on_disk.write_all(&file).expect("it can be written");
    on_disk.as_file().set_len(length.min(FILE_BYTES)).expect("it can grow");
    // Host, firmware and packer each have a reader; what one of them takes, all later steps must survive.
    if let Ok(pack) = Pack::open(on_disk.path(), Verify::Never, &|_, _| ()) {
        model(pack.recipe(), pack.directory());
    }
    if let Err(error) = estream_pack::inspect(on_disk.path()) {
        assert!(error.is_input(), "{error}");
    }
}

/// Makes the checksums of header and tables right and returns the length that the header states.
fn seal(file: &mut [u8]) -> Option<u64> {
    let (mut header, _) = Header::read_from_prefix(file).ok()?;
    for table in [&mut header.recipe, &mut header.directory, &mut header.checksums, &mut header.tokenizer] {
        table.crc = crc(file, table).unwrap_or(table.crc);
    }
    header.crc = 0;
    header.crc = crc32c(header.as_bytes());
    file[..size_of::<Header>()].copy_from_slice(header.as_bytes());
    Some(header.file_bytes)
}

fn crc(file: &[u8], table: &Extent) -> Option<u32> {
    let first = usize::try_from(table.file).ok()?;
    let bytes = (table.bytes as usize).next_multiple_of(4096);
    Some(crc32c(file.get(first..first.checked_add(bytes)?)?))
}

/// CRC32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 })
    })
}

/// The contract's table readers on the bare bytes.
fn tables(bytes: &[u8]) {
    if let Some(directory) = Directory::read(bytes) {
        assert_eq!(directory.layers.iter().count(), directory.header.layers as usize);
        assert_eq!(directory.matrices.iter().count(), directory.header.matrices as usize);
        assert_eq!(directory.permutations.len(), directory.header.permutations as usize);
        assert!(directory.permutations.get(usize::MAX).is_none());
    }
    if let Some(checksums) = Checksums::read(bytes) {
        assert!(checksums.extents.get(checksums.extents.len()).is_none());
        assert_eq!(checksums.embedding_pages.iter().count(), checksums.embedding_pages.len());
    }
}

/// The firmware's reader, and what it promises of a model that it took.
pub(super) fn model(recipe: &[u8], directory: &[u8]) {
    let Ok(model) = Model::read(recipe, directory) else { return };
    let dense = model.directory.header.dense;
    assert!(model.head.at as u64 + model.head.bytes() as u64 <= dense.bytes);
    for index in 0..model.layers() {
        let layer = model.layer(index).expect("read has checked every layer");
        let FeedWeights::Sparse(SparseWeights { store, .. }) = layer.feed else { continue };
        for matrix in [store.unit.gate, store.unit.up, store.unit.down] {
            assert!(matrix.at + matrix.format.matrix_bytes(matrix.k, matrix.n) <= store.record_bytes);
        }
        let mut seen = vec![false; store.experts];
        (0..store.experts).for_each(|expert| seen[model.position(&store, expert)] = true);
        assert!(seen.iter().all(|&seen| seen), "positions are a permutation");
    }
}
