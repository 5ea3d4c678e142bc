//! From ggml's row-major blocks to the pack's strips and rows: codes move, values never change.
//!
//! Nothing is dequantised. Integer codes are the file's, scales the file's bits (or bytes of the same value); only their
//! order is new (`estream_idl`'s `format` and `tile` say which). That is what makes "as the file says" a property of the
//! layout and not of rounding.

mod blocks;
mod row;
mod strip;

use crate::gguf::types::GgmlType;
pub(crate) use blocks::{Encoding, encoding, type_name, type_names};
use estream_idl::address::TILE;
pub(crate) use row::{decode_row, encode_row, encode_vector};
use strip::encode_strip;

/// Encodes whole strips from `rows` (row-major, ending with the matrix or at a multiple of 32 rows).
pub(crate) fn encode_strips(encoding: &Encoding, ggml: &GgmlType, k: usize, rows: &[u8], out: &mut [u8]) {
    let row_bytes = ggml.row_bytes(k as u64) as usize;
    let strips = out.chunks_exact_mut(encoding.format.strip(k).bytes);
    for (rows, out) in rows.chunks(TILE * row_bytes).zip(strips) {
        encode_strip(encoding, row_bytes, k, rows, out);
    }
}

#[cfg(test)]
mod tests;
