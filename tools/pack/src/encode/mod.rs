//! From ggml's row-major blocks to the pack's strips and rows: codes move, values never change.
//!
//! Nothing is dequantised. Integer codes are the file's, scales the file's bits; only their order is new (`estream_idl`'s
//! `format` and `tile` say which). That is what makes "as the file says" a property of the layout and not of rounding.

mod blocks;
mod row;
mod strip;

use crate::gguf::types;
use estream_idl::address::TILE;
use estream_idl::format::{Element, Format};
pub(crate) use row::{decode_row, encode_row};
pub(crate) use strip::encode_strip;

/// Strips that one thread takes at least: below, starting a thread costs more than it saves.
const STRIPS_A_THREAD: usize = 8;

/// The pack's storage of a ggml type; `None` where there is no codec for it.
#[must_use]
pub(crate) fn format_of(ggml: u32) -> Option<Format> {
    Some(match ggml {
        types::F32 => Format::F32,
        types::F16 => Format::F16,
        types::BF16 => Format { element: Element::BF16, ..Format::F16 },
        types::Q4_0 => Format::Q4_0,
        types::Q8_0 => Format::Q8_0,
        types::Q6_K => Format::Q6_K,
        _ => return None,
    })
}

/// Encodes whole strips from `rows` (row-major, ending with the matrix or at a multiple of 32 rows), on two threads where
/// there is work for two.
pub(crate) fn encode_strips(format: &Format, k: usize, row_bytes: usize, rows: &[u8], out: &mut [u8]) {
    let strip_bytes = format.strip(k).bytes;
    let strips = out.len() / strip_bytes;
    let run = |rows: &[u8], out: &mut [u8]| {
        for (rows, out) in rows.chunks(TILE * row_bytes).zip(out.chunks_exact_mut(strip_bytes)) {
            encode_strip(format, k, row_bytes, rows, out);
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
