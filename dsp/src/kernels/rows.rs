//! One embedding row to f32.
//!
//! The embedding is row-major ([`RowLayout`](estream_idl::format::RowLayout)): a row is read once per token and pass, so
//! this is plain code, one for all backends. Weights have the bits that [`super::Kernels::decode`] gives them.

use core::ops::Range;
use estream_idl::format::{Codec, Element, Format, Min, SUPER_BLOCK, Scale};
use half::{bf16, f16};

/// Decodes the `k` = `out.len()` elements of one row.
///
/// # Panics
/// When `bytes` is shorter than `format.row(k).bytes`.
pub fn decode_row(format: Format, k: usize, bytes: &[u8], out: &mut [f32]) {
    assert!(out.len() == k, "an element of the row each");
    let layout = format.row(k);
    assert!(bytes.len() >= layout.bytes, "a row has its format's bytes");
    let plane = |range: Range<usize>| &bytes[range];
    let codes = plane(0..layout.extra);
    let extra = plane(layout.extra..layout.super_);
    let supers = plane(layout.super_..layout.scales);
    let scales = plane(layout.scales..layout.mins);
    let mins = plane(layout.mins..layout.bytes);
    let halves = if format.min == Min::SuperU8 { 2 } else { 1 };

    for (i, out) in out.iter_mut().enumerate() {
        if format.codec == Codec::F16 {
            *out = element(format.element, codes, i);
            continue;
        }
        let (block, super_block) = (i / format.sub_block, i / SUPER_BLOCK * halves);
        let scale = match format.scale {
            Scale::None => 1.0,
            Scale::F16 => half(scales, block),
            Scale::E8M0 => power_of_two(scales[block]),
            Scale::SuperU8 => half(supers, super_block) * f32::from(scales[block]),
            Scale::SuperI8 => half(supers, super_block) * f32::from(scales[block].cast_signed()),
        };
        let value = scale * f32::from(code(&format, codes, extra, i));
        *out = match format.min {
            Min::None => value,
            Min::F16 => value + half(mins, block),
            Min::SuperU8 => value - half(supers, super_block + 1) * f32::from(mins[block]),
        };
    }
}

/// Code number `i`, through the table or less the bias.
fn code(format: &Format, codes: &[u8], extra: &[u8], i: usize) -> i16 {
    if format.codec == Codec::B8 && format.extra_bits == 0 {
        return i16::from(codes[i].cast_signed());
    }
    let nibble = (codes[i / 2] >> (4 * (i % 2))) & 15;
    if format.codec == Codec::N4 {
        return i16::from(format.table[usize::from(nibble)]);
    }
    let mut code = i16::from(nibble) - i16::from(format.bias);
    for (b, plane) in extra.chunks_exact(extra.len() / format.extra_bits).enumerate() {
        code += i16::from((plane[i / 8] >> (i % 8)) & 1) << (4 + b);
    }
    code
}

fn element(element: Element, codes: &[u8], i: usize) -> f32 {
    match element {
        Element::F32 => f32::from_le_bytes(codes.as_chunks().0[i]),
        Element::BF16 => bf16::from_le_bytes(codes.as_chunks().0[i]).to_f32(),
        Element::F16 | Element::None => half(codes, i),
    }
}

fn half(plane: &[u8], i: usize) -> f32 {
    f16::from_le_bytes(plane.as_chunks().0[i]).to_f32()
}

/// `2^(byte − 127)`; 255 is infinite.
fn power_of_two(byte: u8) -> f32 {
    f32::from_bits(if byte == 0 { 1 << 22 } else { u32::from(byte) << 23 })
}
