//! A strip: 32 rows of a ggml matrix become 32 columns of the pack's planes.

use super::blocks::Blocks;
use estream_idl::address::TILE;
use estream_idl::format::{Codec, Format, SUPER_BLOCK};
use estream_idl::tile::{BIT_BYTES, BYTE_BYTES, NIBBLE_BYTES, bit, element};

/// The blocks that a format's codes come from; `None` for plain elements.
pub(super) fn blocks(format: &Format) -> Option<Blocks> {
    match (format.codec, format.extra_bits) {
        (Codec::N4, _) => Some(Blocks::Nibbles),
        (Codec::B8, 0) => Some(Blocks::Bytes),
        (Codec::B8, _) => Some(Blocks::SixBits),
        (Codec::F16, _) => None,
    }
}

/// Encodes up to 32 rows of `k` elements; missing rows become columns of zero weights.
pub(crate) fn encode_strip(format: &Format, k: usize, row_bytes: usize, rows: &[u8], out: &mut [u8]) {
    out.fill(0);
    match blocks(format) {
        Some(blocks) => {
            fill_missing_codes(format, k, out);
            encode_codes(format, blocks, k, row_bytes, rows, out);
        }
        None => encode_elements(format, row_bytes, rows, out),
    }
}

/// Sets every code to the one of weight zero. A column without a row keeps it, under scales of zero.
fn fill_missing_codes(format: &Format, k: usize, out: &mut [u8]) {
    let layout = format.strip(k);
    match format.codec {
        Codec::N4 => {
            let zero = format.table.iter().position(|&value| value == 0).unwrap_or(0) as u8;
            out[..layout.extra].fill(zero * 0x11);
        }
        Codec::B8 if format.extra_bits > 0 => {
            let zero = format.bias as u8;
            out[..layout.extra].fill((zero & 15) * 0x11);
            for (plane, bits) in out[layout.extra..layout.super_].chunks_exact_mut(BIT_BYTES).enumerate() {
                let set = zero >> (4 + plane % format.extra_bits) & 1;
                bits.fill(set * 0xff);
            }
        }
        Codec::B8 | Codec::F16 => {}
    }
}

fn encode_codes(format: &Format, blocks: Blocks, k: usize, row_bytes: usize, rows: &[u8], out: &mut [u8]) {
    let layout = format.strip(k);
    let subs = TILE / format.sub_block;
    for tile in 0..layout.tiles {
        for (column, row) in rows.chunks_exact(row_bytes).enumerate() {
            let codes = blocks.codes(row, tile);
            if blocks == Blocks::Bytes {
                put_bytes(&codes, column, &mut out[tile * BYTE_BYTES..][..BYTE_BYTES]);
            } else {
                put_nibbles(&codes, column, &mut out[tile * NIBBLE_BYTES..][..NIBBLE_BYTES]);
            }
            for plane in 0..format.extra_bits {
                let at = layout.extra + (tile * format.extra_bits + plane) * BIT_BYTES;
                put_bits(&codes, 4 + plane, column, &mut out[at..][..BIT_BYTES]);
            }
            for sub in 0..subs {
                let scale = blocks.scale(row, tile, sub);
                let at = layout.scales + ((tile * subs + sub) * TILE + column) * scale.len();
                out[at..at + scale.len()].copy_from_slice(scale);
            }
        }
    }
    for index in 0..k / SUPER_BLOCK {
        for (column, row) in rows.chunks_exact(row_bytes).enumerate() {
            if let Some(scale) = blocks.super_scale(row, index) {
                let at = layout.super_ + (index * TILE + column) * 2;
                out[at..at + 2].copy_from_slice(scale);
            }
        }
    }
}

/// A column's 32-bit lane holds eight k's of a vector: bytes (0, 2, 1, 3) low and (4, 6, 5, 7) high. Four codes are
/// moved at once: the lane of bytes in k order, with its middle bytes exchanged.
fn exchange_middle(lane: u32) -> u32 {
    lane & 0xff00_00ff | (lane & 0x0000_ff00) << 8 | (lane & 0x00ff_0000) >> 8
}

fn lane(codes: &[u8]) -> u32 {
    u32::from_le_bytes([codes[0], codes[1], codes[2], codes[3]])
}

fn put_nibbles(codes: &[u8; 32], column: usize, plane: &mut [u8]) {
    for (vector, eight) in codes.chunks_exact(8).enumerate() {
        let packed = lane(&eight[..4]) & 0x0f0f_0f0f | (lane(&eight[4..]) & 0x0f0f_0f0f) << 4;
        let at = vector * 128 + 4 * column;
        plane[at..at + 4].copy_from_slice(&exchange_middle(packed).to_le_bytes());
    }
}

fn put_bytes(codes: &[u8; 32], column: usize, plane: &mut [u8]) {
    for (vector, four) in codes.chunks_exact(4).enumerate() {
        let at = vector * 128 + 4 * column;
        plane[at..at + 4].copy_from_slice(&exchange_middle(lane(four)).to_le_bytes());
    }
}

fn put_bits(codes: &[u8; 32], number: usize, column: usize, plane: &mut [u8]) {
    let mut word = [0u8; 4];
    for (k, &code) in codes.iter().enumerate() {
        // The first column's place is the lane's own; other columns only shift it by four bytes.
        let (byte, shift) = bit(k, 0);
        word[byte] |= (code >> number & 1) << shift;
    }
    plane[4 * column..4 * column + 4].copy_from_slice(&word);
}

fn encode_elements(format: &Format, row_bytes: usize, rows: &[u8], out: &mut [u8]) {
    let size = format.code_bytes() / (TILE * TILE);
    for (column, row) in rows.chunks_exact(row_bytes).enumerate() {
        for (k, value) in row.chunks_exact(size).enumerate() {
            let at = k / TILE * format.code_bytes() + element(k % TILE, column) * size;
            out[at..at + size].copy_from_slice(value);
        }
    }
}
