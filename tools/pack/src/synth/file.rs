//! A GGUF that exists as a header and a seed: every byte of it can be read, none is stored.

use super::fill::Fill;
use super::random::Random;
use crate::gguf::types::{self, GgmlType};
use crate::gguf::write::Metadata;
use crate::source::Source;
use std::io;

/// A tensor of the file.
struct Piece {
    /// Offset of its data in the data area.
    start: u64,
    bytes: u64,
    row_bytes: u64,
    fill: Fill,
    seed: u64,
}

/// The file in the making: tensors are appended in file order.
pub(super) struct Builder {
    pub(super) metadata: Metadata,
    pieces: Vec<Piece>,
    seed: u64,
}

impl Builder {
    pub(super) fn new(metadata: Metadata, seed: u64) -> Self {
        Self { metadata, pieces: Vec::new(), seed }
    }

    /// Appends a tensor; its stream of random numbers follows from the seed and its number.
    pub(super) fn tensor(&mut self, name: &str, dims: &[u32], fill: Fill) {
        let ggml = ggml_type(&fill);
        let dims: Vec<u64> = dims.iter().map(|&dim| u64::from(dim)).collect();
        let start = self.metadata.data_bytes();
        let bytes = self.metadata.tensor(name, &dims, ggml);
        let row_bytes = dims[0] / ggml.block * ggml.bytes;
        let seed = Random::of(self.seed, self.pieces.len() as u64).next();
        self.pieces.push(Piece { start, bytes, row_bytes, fill, seed });
    }

    pub(super) fn finish(self) -> SyntheticFile {
        let data_bytes = self.metadata.data_bytes();
        SyntheticFile { head: self.metadata.finish(), pieces: self.pieces, data_bytes }
    }
}

fn ggml_type(fill: &Fill) -> &'static GgmlType {
    let id = match fill {
        Fill::Nibbles { .. } => types::Q4_0,
        Fill::Bytes { .. } => types::Q8_0,
        Fill::SixBits { .. } => types::Q6_K,
        Fill::Normal { .. } | Fill::Router { .. } => types::F32,
    };
    types::find(id).expect("the types that are filled are known")
}

/// A GGUF whose tensors are computed when they are read.
pub(super) struct SyntheticFile {
    head: Vec<u8>,
    pieces: Vec<Piece>,
    data_bytes: u64,
}

impl Piece {
    /// Fills `out` from byte `at` of the tensor on.
    fn read(&self, mut at: u64, mut out: &mut [u8]) {
        let mut whole = Vec::new();
        while !out.is_empty() {
            let (row, within) = (at / self.row_bytes, (at % self.row_bytes) as usize);
            let count = out.len().min(self.row_bytes as usize - within);
            let (piece, rest) = out.split_at_mut(count);
            let random = Random::of(self.seed, row);
            if count == self.row_bytes as usize {
                self.fill.row(random, row, piece);
            } else {
                whole.resize(self.row_bytes as usize, 0);
                self.fill.row(random, row, &mut whole);
                piece.copy_from_slice(&whole[within..within + count]);
            }
            at += count as u64;
            out = rest;
        }
    }
}

impl Source for SyntheticFile {
    fn bytes(&self) -> u64 {
        self.head.len() as u64 + self.data_bytes
    }

    fn read_at(&self, offset: u64, mut out: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > self.bytes()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let head = self.head.len() as u64;
        let mut at = offset;
        while !out.is_empty() {
            let left = out.len() as u64;
            // The next region: the head, a tensor, or the zeros behind it.
            let (count, piece) = if at < head {
                (left.min(head - at), None)
            } else {
                let data = at - head;
                let index = self.pieces.partition_point(|piece| piece.start <= data).saturating_sub(1);
                let piece = &self.pieces[index];
                if data < piece.start + piece.bytes {
                    (left.min(piece.start + piece.bytes - data), Some(piece))
                } else {
                    let next = self.pieces.get(index + 1).map_or(self.data_bytes, |next| next.start);
                    (left.min(next - data), None)
                }
            };
            let (now, rest) = out.split_at_mut(count as usize);
            match piece {
                Some(piece) => piece.read(at - head - piece.start, now),
                None if at < head => now.copy_from_slice(&self.head[at as usize..(at + count) as usize]),
                None => now.fill(0),
            }
            at += count;
            out = rest;
        }
        Ok(())
    }
}
