//! A small synthetic pack, built through the contract's structs, whose every byte is known.

use estream_idl::address::PAGE;
use estream_idl::format::Format;
use estream_idl::pack::{
    ChecksumHeader, DirectoryHeader, Extent, ExtentSum, Header, LayerEntry, MatrixEntry, Part, Range, Role,
};
use std::path::{Path, PathBuf};
use zerocopy::IntoBytes as _;

/// Pages of the dense matrices.
pub const DENSE: [usize; 3] = [2, 1, 5];
/// Pages of all dense matrices.
pub const DENSE_PAGES: usize = 8;
/// Pages of the embedding.
pub const EMBEDDING_PAGES: usize = 4;
/// Pages of an expert record.
pub const RECORD_PAGES: usize = 3;
/// Expert records.
pub const RECORDS: usize = 8;
/// The recipe, which no host looks into.
pub const RECIPE: &[u8] = b"any bytes at all";
/// The first file page of the dense range: header, recipe, directory, checksums and two of tokenizer come before.
pub const DENSE_AT: usize = 6;
/// The first file page of the embedding.
pub const EMBEDDING_AT: usize = DENSE_AT + DENSE_PAGES;
/// The first file page of the expert records.
pub const EXPERTS_AT: usize = EMBEDDING_AT + EMBEDDING_PAGES;

/// Byte `at` of the weights, by its place in the file.
pub fn weight(at: usize) -> u8 {
    (at.wrapping_mul(0x9E37_79B9) >> 11) as u8 | 1
}

/// The tokenizer's bytes.
pub fn tokenizer() -> Vec<u8> {
    (0..5000).map(|at| (at % 250) as u8).collect()
}

/// The directory's bytes: three vectors, and one layer whose matrices are a tile of f32 each.
pub fn directory() -> Vec<u8> {
    let format = Format::F32.to_bytes();
    let range = |first: usize, pages: usize| Range { file: file(first), bytes: file(pages) };
    let head = DirectoryHeader {
        layers: 1,
        matrices: DENSE.len() as u32,
        permutations: RECORDS as u32,
        row_bytes: 128,
        dense: range(DENSE_AT, DENSE_PAGES),
        embedding: range(EMBEDDING_AT, EMBEDDING_PAGES),
        embedding_format: format,
    };
    let part = |page: usize| Part { offset: file(page) as u32, k: 32, n: 32, reserved: 0, format };
    let layer = LayerEntry {
        layer: 0,
        experts: RECORDS as u32,
        file: file(EXPERTS_AT),
        record_bytes: file(RECORD_PAGES),
        permutation: 0,
        reserved: 0,
        gate: part(0),
        up: part(1),
        down: part(2),
    };
    let roles = [Role::MixerNorm, Role::FeedNorm, Role::QueryNorm].into_iter();
    let matrices = roles.zip(DENSE).scan(DENSE_AT, |at, (role, pages)| {
        let (first, k) = (*at, (pages * PAGE / 4) as u32);
        *at += pages;
        let (file, bytes) = (file(first), file(pages));
        Some(MatrixEntry { role: role as u16, layer: 0, k, n: 0, reserved: 0, file, bytes, format })
    });
    let matrices: Vec<_> = matrices.collect();
    let order: Vec<u16> = (0..RECORDS as u16).rev().collect();
    [head.as_bytes(), layer.as_bytes(), matrices.as_bytes(), order.as_bytes()].concat()
}

/// The byte at which a page begins.
fn file(page: usize) -> u64 {
    (page * PAGE) as u64
}

/// The pack's bytes.
pub fn bytes() -> Vec<u8> {
    let pages = EXPERTS_AT + RECORDS * RECORD_PAGES;
    let mut file: Vec<u8> = (0..pages * PAGE).map(weight).collect();
    let extents =
        DENSE.iter().chain(std::iter::repeat_n(&RECORD_PAGES, RECORDS)).scan(DENSE_AT, |at, &pages| {
            if *at == EMBEDDING_AT {
                *at = EXPERTS_AT;
            }
            let range = *at * PAGE..(*at + pages) * PAGE;
            *at += pages;
            Some(ExtentSum {
                file: range.start as u64,
                bytes: range.len() as u64,
                crc: crc(&file[range]),
                reserved: 0,
            })
        });
    let extents: Vec<_> = extents.collect();
    let embedding: Vec<u32> =
        (EMBEDDING_AT..EXPERTS_AT).map(|page| crc(&file[page * PAGE..(page + 1) * PAGE])).collect();
    let head = ChecksumHeader { extents: extents.len() as u32, embedding_pages: embedding.len() as u32 };
    let checksums = [head.as_bytes(), extents.as_bytes(), embedding.as_bytes()].concat();

    let mut header = Header::empty();
    header.file_bytes = file.len() as u64;
    header.recipe = place(&mut file, 1, RECIPE);
    header.directory = place(&mut file, 2, &directory());
    header.checksums = place(&mut file, 3, &checksums);
    header.tokenizer = place(&mut file, 4, &tokenizer());
    let range = |first: usize, end: usize| Range {
        file: (first * PAGE) as u64,
        bytes: ((end - first) * PAGE) as u64,
    };
    header.dense = range(DENSE_AT, EMBEDDING_AT);
    header.embedding = range(EMBEDDING_AT, EXPERTS_AT);
    header.experts = range(EXPERTS_AT, pages);
    header.record_bytes = (RECORD_PAGES * PAGE) as u64;
    header.sparse_layers = 1;
    header.experts_per_layer = RECORDS as u32;
    seal(&mut file, header);
    file
}

/// Writes `header` to the front of `file` with its checksum.
pub fn seal(file: &mut [u8], mut header: Header) {
    header.crc = 0;
    header.crc = crc(header.as_bytes());
    file[..PAGE].copy_from_slice(header.as_bytes());
}

/// A pack in `folder`.
pub fn write(folder: &Path) -> PathBuf {
    let path = folder.join("small.estream");
    std::fs::write(&path, bytes()).expect("the pack is written");
    path
}

/// Puts `bytes` on page `page` of `file`, padded with zeros.
pub fn place(file: &mut [u8], page: usize, bytes: &[u8]) -> Extent {
    let padded = &mut file[page * PAGE..page * PAGE + bytes.len().next_multiple_of(PAGE)];
    padded.fill(0);
    padded[..bytes.len()].copy_from_slice(bytes);
    Extent { file: (page * PAGE) as u64, bytes: bytes.len() as u32, crc: crc(padded) }
}

/// CRC32C bit by bit: slow, and nothing but the definition.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg()))
    })
}
