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

/// Strips that one thread takes at least: below, starting a thread costs more than it saves.
const STRIPS_A_THREAD: usize = 8;

/// Encodes whole strips from `rows` (row-major, ending with the matrix or at a multiple of 32 rows), on two threads where
/// there is work for two.
pub(crate) fn encode_strips(encoding: &Encoding, ggml: &GgmlType, k: usize, rows: &[u8], out: &mut [u8]) {
    let row_bytes = ggml.row_bytes(k as u64) as usize;
    let strip_bytes = encoding.format.strip(k).bytes;
    let strips = out.len() / strip_bytes;
    let run = |rows: &[u8], out: &mut [u8]| {
        for (rows, out) in rows.chunks(TILE * row_bytes).zip(out.chunks_exact_mut(strip_bytes)) {
            encode_strip(encoding, ggml, k, rows, out);
        }
    };
    if strips < 2 * STRIPS_A_THREAD {
        return run(rows, out);
    }
    let (first_rows, last_rows) = rows.split_at(strips / 2 * TILE * row_bytes);
    let (first, last) = out.split_at_mut(strips / 2 * strip_bytes);
    std::thread::scope(|scope| {
        scope.spawn(|| run(first_rows, first));
        run(last_rows, last);
    });
}

#[cfg(test)]
mod tests;
