//! Strips and rows against the ggml blocks they came from. Both sides are written out here from their own
//! descriptions: ggml's per element, the pack's by the formulas of `estream_idl`. The encoder is never asked.

use super::*;
use crate::gguf::types;
use estream_idl::format::{Codec, Element, Format, Min, SUPER_BLOCK, Scale};
use estream_idl::tile;
use half::{bf16, f16};
use proptest::prelude::*;

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

const IQ4_NL: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// E2M1: sign, two bits of exponent, one of mantissa.
const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Scale and minimum number `j` of the twelve bytes that Q4_K and Q5_K share, as ggml unpacks them.
fn scale_min(j: usize, q: &[u8]) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (q[j] & 63, q[j + 4] & 63)
    } else {
        (q[j + 4] & 15 | q[j - 4] >> 6 << 4, q[j + 4] >> 4 | q[j] >> 6 << 4)
    };
    (scale.into(), min.into())
}

/// Element `k` of a ggml row, as ggml's own description has it.
fn ggml(id: u32, row: &[u8], k: usize) -> f32 {
    let ty = types::find(id).unwrap();
    let block = &row[k / ty.block as usize * ty.bytes as usize..][..ty.bytes as usize];
    let i = k % ty.block as usize;
    let nibble = |at: usize| f32::from(block[at + i % 16] >> (i / 16 * 4) & 15);
    let fifth = |at: usize| f32::from((block[at + i / 8] >> (i % 8) & 1) << 4);
    match id {
        types::F32 => f32::from_le_bytes(block.try_into().unwrap()),
        types::F16 => half_at(block, 0),
        types::BF16 => bf16::from_le_bytes(block.try_into().unwrap()).to_f32(),
        types::Q4_0 => half_at(block, 0) * (nibble(2) - 8.0),
        types::Q4_1 => half_at(block, 0) * nibble(4) + half_at(block, 2),
        types::Q5_0 => half_at(block, 0) * (nibble(6) + fifth(2) - 16.0),
        types::Q5_1 => half_at(block, 0) * (nibble(8) + fifth(4)) + half_at(block, 2),
        types::Q8_0 => half_at(block, 0) * f32::from(block[2 + i] as i8),
        types::IQ4_NL => half_at(block, 0) * f32::from(IQ4_NL[nibble(2) as usize]),
        types::MXFP4 => (f64::from(block[0]) - 127.0).exp2() as f32 * E2M1[nibble(1) as usize],
        types::Q2_K => {
            let q = block[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
            let (scale, min) = (block[i / 16] & 15, block[i / 16] >> 4);
            half_at(block, 80) * f32::from(scale) * f32::from(q) - half_at(block, 82) * f32::from(min)
        }
        types::Q3_K => {
            let q = block[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
            let third = block[i % 32] >> (i / 32) & 1;
            let (sub, packed) = (i / 16, &block[96..108]);
            let low = if sub < 8 { packed[sub] & 15 } else { packed[sub - 8] >> 4 };
            let scale = i32::from(low | (packed[8 + sub % 4] >> (2 * (sub / 4)) & 3) << 4) - 32;
            half_at(block, 108) * scale as f32 * (f32::from(q) - if third == 1 { 0.0 } else { 4.0 })
        }
        types::Q4_K => {
            let q = block[16 + i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
            let (scale, min) = scale_min(i / 32, &block[4..16]);
            half_at(block, 0) * scale * f32::from(q) - half_at(block, 2) * min
        }
        types::Q5_K => {
            let low = block[48 + i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
            let high = block[16 + i % 32] >> (i / 32) & 1;
            let (scale, min) = scale_min(i / 32, &block[4..16]);
            half_at(block, 0) * scale * f32::from(low + 16 * high) - half_at(block, 2) * min
        }
        types::Q6_K => {
            let (n, l, quarter) = (i / 128, i % 32, i % 128 / 32);
            let ql = block[n * 64 + l + 32 * (quarter & 1)];
            let low = if quarter < 2 { ql & 15 } else { ql >> 4 };
            let q = i32::from(low | ((block[128 + n * 32 + l] >> (2 * quarter)) & 3) << 4) - 32;
            half_at(block, 208) * f32::from(block[192 + i / 16] as i8) * q as f32
        }
        _ => unreachable!(),
    }
}

/// A weight out of its code, and the scale and minimum that stand at `scale` and `min`.
fn weight(format: &Format, code: u8, bytes: &[u8], d: usize, dmin: usize, scale: usize, min: usize) -> f32 {
    let code = match (format.codec, format.extra_bits) {
        (Codec::N4, _) => i32::from(format.table[usize::from(code)]),
        (_, 0) => i32::from(code as i8),
        _ => i32::from(code) - i32::from(format.bias),
    };
    let value = code as f32
        * match format.scale {
            Scale::F16 => half_at(bytes, scale),
            Scale::E8M0 => (f64::from(bytes[scale]) - 127.0).exp2() as f32,
            Scale::SuperU8 => half_at(bytes, d) * f32::from(bytes[scale]),
            Scale::SuperI8 => half_at(bytes, d) * f32::from(bytes[scale] as i8),
            Scale::None => unreachable!(),
        };
    match format.min {
        Min::None => value,
        Min::F16 => value + half_at(bytes, min),
        Min::SuperU8 => value - half_at(bytes, dmin) * f32::from(bytes[min]),
    }
}

fn plain(element: Element, bytes: &[u8], number: usize) -> f32 {
    match element {
        Element::F32 => f32::from_le_bytes(bytes[4 * number..4 * number + 4].try_into().unwrap()),
        Element::BF16 => bf16::from_le_bytes([bytes[2 * number], bytes[2 * number + 1]]).to_f32(),
        _ => half_at(bytes, 2 * number),
    }
}

const fn wide(is_half: bool) -> usize {
    if is_half { 2 } else { 1 }
}

/// Weight (`k`, `column`) of a strip.
fn strip_weight(format: &Format, depth: usize, strip: &[u8], k: usize, column: usize) -> f32 {
    let layout = format.strip(depth);
    let (t, kk) = (k / 32, k % 32);
    let codes = &strip[t * format.code_bytes()..];
    if format.codec == Codec::F16 {
        return plain(format.element, codes, tile::element(kk, column));
    }
    let place = tile::nibble(kk, column);
    let mut code = codes[place.byte] >> (4 * u32::from(place.high)) & 15;
    if format.codec == Codec::B8 && format.extra_bits == 0 {
        code = codes[tile::byte(kk, column)];
    }
    let (byte, shift) = tile::bit(kk, column);
    for plane in 0..format.extra_bits {
        let at = layout.extra + (format.extra_bits * t + plane) * 128 + byte;
        code |= (strip[at] >> shift & 1) << (4 + plane);
    }
    let sub = k / format.sub_block * 32 + column;
    let halves = if format.min == Min::SuperU8 { 2 } else { 1 };
    let d = layout.super_ + (k / SUPER_BLOCK * halves * 32 + column) * 2;
    let scale = layout.scales + sub * wide(format.scale == Scale::F16);
    let min = layout.mins + sub * wide(format.min == Min::F16);
    weight(format, code, strip, d, d + 64, scale, min)
}

/// Element `k` of an embedding row.
fn row_weight(format: &Format, depth: usize, row: &[u8], k: usize) -> f32 {
    if format.codec == Codec::F16 {
        return plain(format.element, row, k);
    }
    let layout = format.row(depth);
    let mut code = row[k / 2] >> (4 * (k & 1)) & 15;
    if format.codec == Codec::B8 && format.extra_bits == 0 {
        code = row[k];
    }
    for plane in 0..format.extra_bits {
        code |= (row[layout.extra + plane * depth / 8 + k / 8] >> (k % 8) & 1) << (4 + plane);
    }
    let (sub, halves) = (k / format.sub_block, if format.min == Min::SuperU8 { 2 } else { 1 });
    let d = layout.super_ + k / SUPER_BLOCK * halves * 2;
    let scale = layout.scales + sub * wide(format.scale == Scale::F16);
    let min = layout.mins + sub * wide(format.min == Min::F16);
    weight(format, code, row, d, d + 2, scale, min)
}

/// Every type with a codec, and where its blocks have halves.
const TYPES: [(u32, &[usize]); 15] = [
    (types::F32, &[]),
    (types::F16, &[0]),
    (types::BF16, &[]),
    (types::Q4_0, &[0]),
    (types::Q4_1, &[0, 2]),
    (types::Q5_0, &[0]),
    (types::Q5_1, &[0, 2]),
    (types::Q8_0, &[0]),
    (types::Q2_K, &[80, 82]),
    (types::Q3_K, &[108]),
    (types::Q4_K, &[0, 2]),
    (types::Q5_K, &[0, 2]),
    (types::Q6_K, &[208]),
    (types::IQ4_NL, &[0]),
    (types::MXFP4, &[]),
];

/// Random blocks with finite scales.
fn blocks(id: u32, bytes: usize, mut seed: u64) -> Vec<u8> {
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    let mut data: Vec<u8> = (0..bytes).map(|_| next()).collect();
    let (_, halves) = TYPES.iter().find(|(known, _)| *known == id).unwrap();
    for block in data.chunks_exact_mut(types::find(id).unwrap().bytes as usize) {
        for &at in *halves {
            let half = f16::from_f32(f32::from(next() as i8) / 64.0);
            block[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
        match id {
            types::F32 => block.copy_from_slice(&(f32::from(next()) - 7.5).to_le_bytes()),
            types::BF16 => block[1] = 0x3f | block[1] & 0x80,
            types::MXFP4 => block[0] = block[0] % 254 + 1,
            _ => {}
        }
    }
    data
}

fn check(id: u32, k: usize, n: usize, seed: u64) {
    let ty = types::find(id).unwrap();
    let encoding = encoding(ty).unwrap();
    let format = encoding.format;
    let row_bytes = ty.row_bytes(k as u64) as usize;
    let data = blocks(id, row_bytes * n, seed);
    let strip_bytes = format.strip(k).bytes;
    let mut out = vec![0xa5; format.matrix_bytes(k, n)];
    encode_strips(encoding, ty, k, &data, &mut out);
    for column in 0..n.next_multiple_of(32) {
        let strip = &out[column / 32 * strip_bytes..][..strip_bytes];
        for i in 0..k.next_multiple_of(32) {
            let wanted = if column < n && i < k { ggml(id, &data[column * row_bytes..], i) } else { 0.0 };
            let got = strip_weight(&format, k, strip, i, column % 32);
            // E8M0 has no zero: its padding is zero codes.
            assert_eq!(got, wanted, "type {} k {k} n {n}: weight ({i}, {column})", ty.name);
        }
    }
    let mut row = vec![0xa5; format.row(k).bytes];
    encode_row(encoding, ty, k, &data[..row_bytes], &mut row);
    let values = decode_row(encoding, ty, &data[..row_bytes]);
    for (i, value) in values.into_iter().enumerate() {
        let wanted = ggml(id, &data, i);
        assert_eq!(row_weight(&format, k, &row, i), wanted, "type {} k {k}: row element {i}", ty.name);
        assert_eq!(value, wanted, "type {} k {k}: value {i}", ty.name);
    }
}

#[test]
fn strips_and_rows_hold_the_weights_of_the_blocks() {
    for (id, _) in TYPES {
        for k in [32, 96, 256, 288, 2048] {
            if k % types::find(id).unwrap().block as usize == 0 {
                for n in [32, 33, 96] {
                    check(id, k, n, (k * n) as u64);
                }
            }
        }
    }
}

#[test]
fn rows_of_plain_elements_need_not_be_whole_tiles() {
    for id in [types::F32, types::F16, types::BF16] {
        check(id, 100, 40, 7);
    }
}

#[test]
fn formats_and_types_name_each_other() {
    for (id, _) in TYPES {
        let ty = types::find(id).unwrap();
        assert_eq!(type_name(&encoding(ty).unwrap().format), Some(ty.name));
    }
    assert!(encoding(types::find(23).unwrap()).is_none());
}

/// Exponent byte 0 means 2^−128 for the doubled table, which E8M0 cannot say: codes are halved instead, and only 0.5 and
/// 1.5 move, by 2^−128.
#[test]
fn the_smallest_block_of_mxfp4_loses_at_most_one_subnormal_step() {
    let ty = types::find(types::MXFP4).unwrap();
    let codes: Vec<u8> = (0..16).map(|code| code | code << 4).collect();
    let values = decode_row(encoding(ty).unwrap(), ty, &[&[0], codes.as_slice()].concat());
    for (code, &value) in values.iter().enumerate() {
        let wanted = f64::from(E2M1[code % 16]) * (-127f64).exp2();
        let moved = (f64::from(value) - wanted).abs();
        let exact = !matches!(code % 8, 1 | 3);
        assert!(moved <= if exact { 0.0 } else { (-128f64).exp2() }, "{code}: {value:e} for {wanted:e}");
    }
}

#[test]
fn padded_codes_are_the_tables_zero() {
    let data = blocks(types::Q6_K, 210, 1);
    let mut strip = vec![0; Format::Q6_K.strip(256).bytes];
    let ty = types::find(types::Q6_K).unwrap();
    encode_strip(encoding(ty).unwrap(), 210, 256, &data, &mut strip);
    let layout = Format::Q6_K.strip(256);
    for k in 0..32 {
        let place = tile::nibble(k, 5);
        let (byte, shift) = tile::bit(k, 5);
        assert_eq!(strip[place.byte] >> (4 * u32::from(place.high)) & 15, 0);
        assert_eq!(strip[layout.extra + byte] >> shift & 1, 0);
        assert_eq!(strip[layout.extra + 128 + byte] >> shift & 1, 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_shape_survives(blocks in 1usize..9, n in 1usize..80, which in 0usize..15, seed in any::<u64>()) {
        let (id, _) = TYPES[which];
        check(id, blocks.min(5) * (types::find(id).unwrap().block as usize).max(32), n, seed);
    }
}
