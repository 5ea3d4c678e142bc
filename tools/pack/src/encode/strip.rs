//! A strip: 32 rows of a ggml matrix become 32 columns of the pack's planes.

use super::blocks::{Block, Blocks, Encoding};
use estream_idl::address::TILE;
use estream_idl::format::{Codec, Format, Min, Scale, StripLayout};
use estream_idl::tile::{BIT_BYTES, BYTE_BYTES, NIBBLE_BYTES, bit, element};

/// Encodes up to 32 rows of `k` elements; missing rows become columns of zero weights.
pub(super) fn encode_strip(encoding: &Encoding, row_bytes: usize, k: usize, rows: &[u8], out: &mut [u8]) {
    out.fill(0);
    match &encoding.codes {
        Some(codes) => {
            if rows.len() < TILE * row_bytes {
                fill_missing_codes(&encoding.format, k, out);
            }
            (codes.fill_strip)(k, rows, out);
        }
        None => encode_elements(&encoding.format, row_bytes, rows, out),
    }
}

/// Moves rows of `k` elements to their columns.
pub(super) fn fill_strip<T: Blocks>(k: usize, rows: &[u8], out: &mut [u8]) {
    let layout = T::FORMAT.strip(k);
    let mut block = Block::EMPTY;
    for index in 0..k / T::WEIGHTS {
        for (column, row) in rows.chunks_exact(k / T::WEIGHTS * T::BYTES).enumerate() {
            T::unpack(&row[index * T::BYTES..][..T::BYTES], &mut block);
            put_block::<T>(&layout, &block, index, column, out);
        }
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

/// Block number `index` of a column to its places in the planes.
#[inline(always)]
fn put_block<T: Blocks>(layout: &StripLayout, block: &Block, index: usize, column: usize, out: &mut [u8]) {
    let (format, weights) = (T::FORMAT, T::WEIGHTS);
    let first_tile = index * weights / TILE;
    let (tiles, _) = block.codes[..weights].as_chunks::<TILE>();
    for (tile, codes) in (first_tile..).zip(tiles) {
        if format.codec == Codec::B8 && format.extra_bits == 0 {
            put_bytes(codes, column, &mut out[tile * BYTE_BYTES..][..BYTE_BYTES]);
        } else {
            put_nibbles(codes, column, &mut out[tile * NIBBLE_BYTES..][..NIBBLE_BYTES]);
        }
        for plane in 0..format.extra_bits {
            let at = layout.extra + (tile * format.extra_bits + plane) * BIT_BYTES;
            put_bits(codes, 4 + plane, column, &mut out[at..][..BIT_BYTES]);
        }
    }
    let subs = weights / format.sub_block;
    for sub in 0..subs {
        let place = (index * subs + sub) * TILE + column;
        match format.scale {
            Scale::None => {}
            Scale::F16 => put_half(block.scales[sub], &mut out[layout.scales..], place),
            Scale::E8M0 | Scale::SuperU8 | Scale::SuperI8 => {
                out[layout.scales + place] = block.scales[sub] as u8;
            }
        }
        match format.min {
            Min::None => {}
            Min::F16 => put_half(block.mins[sub], &mut out[layout.mins..], place),
            Min::SuperU8 => out[layout.mins + place] = block.mins[sub] as u8,
        }
    }
    let halves = if format.min == Min::SuperU8 { 2 } else { 1 };
    if matches!(format.scale, Scale::SuperU8 | Scale::SuperI8) {
        let plane = &mut out[layout.super_..];
        put_half(block.d, plane, index * halves * TILE + column);
        if halves == 2 {
            put_half(block.dmin, plane, (index * 2 + 1) * TILE + column);
        }
    }
}

fn put_half(bits: u16, plane: &mut [u8], place: usize) {
    plane[2 * place..2 * place + 2].copy_from_slice(&bits.to_le_bytes());
}

/// A column's 32-bit lane holds eight k's of a vector: bytes (0, 2, 1, 3) low and (4, 6, 5, 7) high. Four codes are
/// moved at once: the lane of bytes in k order, with its middle bytes exchanged.
fn exchange_middle(lane: u32) -> u32 {
    lane & 0xff00_00ff | (lane & 0x0000_ff00) << 8 | (lane & 0x00ff_0000) >> 8
}

fn lane(codes: &[u8]) -> u32 {
    u32::from_le_bytes([codes[0], codes[1], codes[2], codes[3]])
}

fn put_nibbles(codes: &[u8; TILE], column: usize, plane: &mut [u8]) {
    for (vector, eight) in codes.chunks_exact(8).enumerate() {
        let packed = lane(&eight[..4]) & 0x0f0f_0f0f | (lane(&eight[4..]) & 0x0f0f_0f0f) << 4;
        let at = vector * 128 + 4 * column;
        plane[at..at + 4].copy_from_slice(&exchange_middle(packed).to_le_bytes());
    }
}

fn put_bytes(codes: &[u8; TILE], column: usize, plane: &mut [u8]) {
    for (vector, four) in codes.chunks_exact(4).enumerate() {
        let at = vector * 128 + 4 * column;
        plane[at..at + 4].copy_from_slice(&exchange_middle(lane(four)).to_le_bytes());
    }
}

/// Where the bit of each k stands in its column's lane.
const LANE_BITS: [u32; TILE] = {
    let mut bits = [0; TILE];
    let mut k = 0;
    while k < TILE {
        // The first column's place is the lane's own; other columns only shift it by four bytes.
        let (byte, shift) = bit(k, 0);
        bits[k] = 8 * byte as u32 + shift;
        k += 1;
    }
    bits
};

fn put_bits(codes: &[u8; TILE], number: usize, column: usize, plane: &mut [u8]) {
    let lane = codes
        .iter()
        .zip(LANE_BITS)
        .fold(0u32, |lane, (&code, place)| lane | u32::from(code >> number & 1) << place);
    plane[4 * column..4 * column + 4].copy_from_slice(&lane.to_le_bytes());
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
