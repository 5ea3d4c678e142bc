//! An embedding row: the planes of one column in ascending k. And the values of a row, for this side's own estimates.

use super::blocks::{Block, Encoding};
use crate::gguf::types::GgmlType;
use estream_idl::format::{Codec, Element, Format, Min, Scale};
use half::{bf16, f16};

/// Encodes one row of `k` elements, a multiple of 32.
pub(crate) fn encode_row(encoding: &Encoding, ggml: &GgmlType, k: usize, row: &[u8], out: &mut [u8]) {
    out.fill(0);
    let format = &encoding.format;
    let Some(codes) = &encoding.codes else {
        out[..row.len()].copy_from_slice(row);
        return;
    };
    let layout = format.row(k);
    let (weights, mut block) = (ggml.block as usize, Block::EMPTY);
    let subs = weights / format.sub_block;
    for (index, bytes) in row.chunks_exact(ggml.bytes as usize).enumerate() {
        (codes.unpack)(bytes, &mut block);
        put_codes(format, layout.extra, k, &block.codes[..weights], index * weights, out);
        for sub in 0..subs {
            let place = index * subs + sub;
            let scale = block.scales[sub].to_le_bytes();
            match format.scale {
                Scale::None => {}
                Scale::F16 => out[layout.scales + 2 * place..][..2].copy_from_slice(&scale),
                Scale::E8M0 | Scale::SuperU8 | Scale::SuperI8 => out[layout.scales + place] = scale[0],
            }
            let min = block.mins[sub].to_le_bytes();
            match format.min {
                Min::None => {}
                Min::F16 => out[layout.mins + 2 * place..][..2].copy_from_slice(&min),
                Min::SuperU8 => out[layout.mins + place] = min[0],
            }
        }
        if matches!(format.scale, Scale::SuperU8 | Scale::SuperI8) {
            let both = [block.d.to_le_bytes(), block.dmin.to_le_bytes()].concat();
            let bytes = if format.min == Min::SuperU8 { 4 } else { 2 };
            out[layout.super_ + index * bytes..][..bytes].copy_from_slice(&both[..bytes]);
        }
    }
}

/// A block's codes, the first of which is number `first` of the row.
fn put_codes(format: &Format, extra: usize, k: usize, codes: &[u8], first: usize, out: &mut [u8]) {
    if format.codec == Codec::B8 && format.extra_bits == 0 {
        out[first..first + codes.len()].copy_from_slice(codes);
    } else {
        for (byte, pair) in out[first / 2..].iter_mut().zip(codes.chunks_exact(2)) {
            *byte = pair[0] & 15 | pair[1] << 4;
        }
    }
    for plane in 0..format.extra_bits {
        let at = extra + (plane * k + first) / 8;
        for (byte, eight) in out[at..].iter_mut().zip(codes.chunks_exact(8)) {
            *byte = eight.iter().rev().fold(0, |bits, code| bits << 1 | code >> (4 + plane) & 1);
        }
    }
}

/// The values of a ggml row, formed as the kernels form them.
pub(crate) fn decode_row(encoding: &Encoding, ggml: &GgmlType, row: &[u8]) -> Vec<f32> {
    let format = &encoding.format;
    let Some(codes) = &encoding.codes else { return elements(format.element, row) };
    let (weights, mut block) = (ggml.block as usize, Block::EMPTY);
    let mut values = Vec::with_capacity(row.len() / ggml.bytes as usize * weights);
    for bytes in row.chunks_exact(ggml.bytes as usize) {
        (codes.unpack)(bytes, &mut block);
        let (d, dmin) = (f16::from_bits(block.d).to_f32(), f16::from_bits(block.dmin).to_f32());
        for (at, &code) in block.codes[..weights].iter().enumerate() {
            let (scale, min) = (block.scales[at / format.sub_block], block.mins[at / format.sub_block]);
            let code = match (format.codec, format.extra_bits) {
                (Codec::N4, _) => i16::from(format.table[usize::from(code)]),
                (_, 0) => i16::from(code.cast_signed()),
                _ => i16::from(code) - i16::from(format.bias),
            };
            let scale = match format.scale {
                Scale::None => 1.0,
                Scale::F16 => f16::from_bits(scale).to_f32(),
                Scale::E8M0 => (f32::from(scale) - 127.0).exp2(),
                Scale::SuperU8 => d * f32::from(scale),
                Scale::SuperI8 => d * f32::from((scale as u8).cast_signed()),
            };
            let min = match format.min {
                Min::None => 0.0,
                Min::F16 => f16::from_bits(min).to_f32(),
                Min::SuperU8 => -(dmin * f32::from(min)),
            };
            values.push(scale * f32::from(code) + min);
        }
    }
    values
}

/// Plain elements as f32, which holds each of them exactly.
pub(super) fn elements(element: Element, bytes: &[u8]) -> Vec<f32> {
    match element {
        Element::F16 => bytes.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32()).collect(),
        Element::BF16 => bytes.as_chunks().0.iter().map(|&b| bf16::from_le_bytes(b).to_f32()).collect(),
        Element::F32 | Element::None => bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
    }
}

/// Appends a vector as the pack stores it, in f32.
pub(crate) fn encode_vector(encoding: &Encoding, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(elements(encoding.format.element, bytes).iter().flat_map(|value| value.to_le_bytes()));
}
