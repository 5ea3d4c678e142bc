//! An embedding row: the planes of one column in ascending k.

use super::blocks::Blocks;
use super::strip::blocks;
use estream_idl::address::TILE;
use estream_idl::format::{Codec, Element, Format, SUPER_BLOCK};
use half::{bf16, f16};

/// Encodes one row of `k` elements, a multiple of 32.
pub(crate) fn encode_row(format: &Format, k: usize, row: &[u8], out: &mut [u8]) {
    out.fill(0);
    let Some(blocks) = blocks(format) else {
        out[..row.len()].copy_from_slice(row);
        return;
    };
    let layout = format.row(k);
    let subs = TILE / format.sub_block;
    for tile in 0..k / TILE {
        let codes = blocks.codes(row, tile);
        if format.codec == Codec::B8 && format.extra_bits == 0 {
            out[tile * TILE..][..TILE].copy_from_slice(&codes);
        } else {
            for (byte, pair) in out[tile * TILE / 2..].iter_mut().zip(codes.chunks_exact(2)) {
                *byte = pair[0] & 15 | pair[1] << 4;
            }
        }
        for plane in 0..format.extra_bits {
            let at = layout.extra + plane * k / 8 + tile * TILE / 8;
            for (byte, eight) in out[at..].iter_mut().zip(codes.chunks_exact(8)) {
                *byte = eight.iter().rev().fold(0, |bits, code| bits << 1 | (code >> (4 + plane) & 1));
            }
        }
        for sub in 0..subs {
            let scale = blocks.scale(row, tile, sub);
            let at = layout.scales + (tile * subs + sub) * scale.len();
            out[at..at + scale.len()].copy_from_slice(scale);
        }
    }
    for index in 0..k / SUPER_BLOCK {
        if let Some(scale) = blocks.super_scale(row, index) {
            out[layout.super_ + 2 * index..][..2].copy_from_slice(scale);
        }
    }
}

/// The values of a ggml row of `k` elements, for estimates on this side of the pack.
pub(crate) fn decode_row(format: &Format, k: usize, row: &[u8]) -> Vec<f32> {
    let half = |bytes: &[u8]| f16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
    let Some(blocks) = blocks(format) else {
        return match format.element {
            Element::F16 => row.chunks_exact(2).map(half).collect(),
            Element::BF16 => {
                row.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
            }
            _ => row.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        };
    };
    let mut values = Vec::with_capacity(k);
    for tile in 0..k / TILE {
        for (at, code) in blocks.codes(row, tile).into_iter().enumerate() {
            let scale = blocks.scale(row, tile, at / format.sub_block);
            values.push(match blocks {
                Blocks::Nibbles => half(scale) * f32::from(format.table[usize::from(code)]),
                Blocks::Bytes => half(scale) * f32::from(code as i8),
                Blocks::SixBits => {
                    let d = blocks.super_scale(row, tile * TILE / SUPER_BLOCK).map_or(0.0, half);
                    d * f32::from(scale[0] as i8) * f32::from(code as i8 - format.bias)
                }
            });
        }
    }
    values
}
