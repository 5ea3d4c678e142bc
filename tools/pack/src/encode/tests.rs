//! Strips and rows against the ggml blocks they came from. Both sides are written out here from their own
//! descriptions: ggml's per element, the pack's by the formulas of `estream_idl`. The encoder is never asked.

use super::*;
use estream_idl::format::SUPER_BLOCK;
use estream_idl::tile;
use half::f16;
use proptest::prelude::*;

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Element `k` of a ggml row, as ggml's own description has it.
fn ggml(id: u32, row: &[u8], k: usize) -> f32 {
    match id {
        types::F32 => f32::from_le_bytes(row[4 * k..4 * k + 4].try_into().unwrap()),
        types::F16 => half_at(row, 2 * k),
        types::Q4_0 => {
            let block = &row[k / 32 * 18..];
            let (j, d) = (k % 32, half_at(block, 0));
            let q = if j < 16 { block[2 + j] & 15 } else { block[2 + j - 16] >> 4 };
            d * (f32::from(q) - 8.0)
        }
        types::Q8_0 => half_at(&row[k / 32 * 34..], 0) * f32::from(row[k / 32 * 34 + 2 + k % 32] as i8),
        types::Q6_K => {
            let block = &row[k / 256 * 210..];
            let (n, l, quarter) = (k % 256 / 128, k % 32, k % 128 / 32);
            let ql = block[n * 64 + l + 32 * (quarter & 1)];
            let low = if quarter < 2 { ql & 15 } else { ql >> 4 };
            let q = i32::from(low | ((block[128 + n * 32 + l] >> (2 * quarter)) & 3) << 4) - 32;
            let scale = block[192 + n * 8 + l / 16 + 2 * quarter] as i8;
            half_at(block, 208) * f32::from(scale) * q as f32
        }
        _ => unreachable!(),
    }
}

/// Weight (`k`, `column`) of a strip.
fn strip_weight(format: &Format, depth: usize, strip: &[u8], k: usize, column: usize) -> f32 {
    let layout = format.strip(depth);
    let (t, kk) = (k / 32, k % 32);
    let codes = &strip[t * format.code_bytes()..];
    let subs = 32 / format.sub_block;
    let sub = (t * subs + kk / format.sub_block) * 32 + column;
    let nibble = || {
        let place = tile::nibble(kk, column);
        codes[place.byte] >> (4 * u32::from(place.high)) & 15
    };
    if *format == Format::Q4_0 {
        half_at(strip, layout.scales + 2 * sub) * f32::from(format.table[usize::from(nibble())])
    } else if *format == Format::Q8_0 {
        half_at(strip, layout.scales + 2 * sub) * f32::from(codes[tile::byte(kk, column)] as i8)
    } else if *format == Format::Q6_K {
        let (byte, shift) = tile::bit(kk, column);
        let bit = |plane: usize| strip[layout.extra + (2 * t + plane) * 128 + byte] >> shift & 1;
        let code = i32::from(nibble() | bit(0) << 4 | bit(1) << 5) - i32::from(format.bias);
        let d = half_at(strip, layout.super_ + (k / SUPER_BLOCK * 32 + column) * 2);
        d * f32::from(strip[layout.scales + sub] as i8) * code as f32
    } else if *format == Format::F16 {
        half_at(codes, 2 * tile::element(kk, column))
    } else {
        let at = 4 * tile::element(kk, column);
        f32::from_le_bytes(codes[at..at + 4].try_into().unwrap())
    }
}

/// Element `k` of an embedding row.
fn row_weight(format: &Format, depth: usize, row: &[u8], k: usize) -> f32 {
    let layout = format.row(depth);
    let nibble = row[k / 2] >> (4 * (k & 1)) & 15;
    let sub = k / format.sub_block;
    if *format == Format::Q4_0 {
        half_at(row, layout.scales + 2 * sub) * f32::from(format.table[usize::from(nibble)])
    } else if *format == Format::Q8_0 {
        half_at(row, layout.scales + 2 * sub) * f32::from(row[k] as i8)
    } else if *format == Format::Q6_K {
        let bit = |plane: usize| row[layout.extra + plane * depth / 8 + k / 8] >> (k % 8) & 1;
        let code = i32::from(nibble | bit(0) << 4 | bit(1) << 5) - 32;
        half_at(row, layout.super_ + k / 256 * 2) * f32::from(row[layout.scales + sub] as i8) * code as f32
    } else {
        ggml(if *format == Format::F16 { types::F16 } else { types::F32 }, row, k)
    }
}

/// Random blocks with finite scales.
fn blocks(id: u32, bytes: usize, mut seed: u64) -> Vec<u8> {
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    let mut data: Vec<u8> = (0..bytes).map(|_| next()).collect();
    let mut set = |at: usize, value: u8| {
        let half = f16::from_f32(f32::from(value as i8) / 64.0);
        data[at..at + 2].copy_from_slice(&half.to_le_bytes());
    };
    match id {
        types::Q4_0 => (0..bytes / 18).for_each(|b| set(18 * b, next())),
        types::Q8_0 => (0..bytes / 34).for_each(|b| set(34 * b, next())),
        types::Q6_K => (0..bytes / 210).for_each(|b| set(210 * b + 208, next())),
        types::F16 => (0..bytes / 2).for_each(|b| set(2 * b, next())),
        _ => (0..bytes / 4).for_each(|b| {
            data[4 * b..4 * b + 4].copy_from_slice(&(f32::from(next()) - 7.5).to_le_bytes());
        }),
    }
    data
}

fn check(id: u32, k: usize, n: usize, seed: u64) {
    let format = format_of(id).unwrap();
    let ty = types::find(id).unwrap();
    let row_bytes = k / ty.block as usize * ty.bytes as usize;
    let data = blocks(id, row_bytes * n, seed);
    let strip_bytes = format.strip(k).bytes;
    let mut out = vec![0xa5; format.matrix_bytes(k, n)];
    encode_strips(&format, k, row_bytes, &data, &mut out);
    for column in 0..n.next_multiple_of(32) {
        let strip = &out[column / 32 * strip_bytes..][..strip_bytes];
        for i in 0..k.next_multiple_of(32) {
            let wanted = if column < n && i < k { ggml(id, &data[column * row_bytes..], i) } else { 0.0 };
            let got = strip_weight(&format, k, strip, i, column % 32);
            assert_eq!(got, wanted, "type {} k {k} n {n}: weight ({i}, {column})", ty.name);
        }
    }
    let mut row = vec![0xa5; format.row(k).bytes];
    encode_row(&format, k, &data[..row_bytes], &mut row);
    for i in 0..k {
        assert_eq!(
            row_weight(&format, k, &row, i),
            ggml(id, &data, i),
            "type {} k {k}: row element {i}",
            ty.name
        );
    }
}

#[test]
fn strips_and_rows_hold_the_weights_of_the_blocks() {
    for id in [types::Q4_0, types::Q8_0, types::Q6_K, types::F16, types::F32] {
        for k in [32, 96, 256, 288, 2048] {
            if id != types::Q6_K || k % 256 == 0 {
                for n in [32, 33, 96] {
                    check(id, k, n, (k * n) as u64);
                }
            }
        }
    }
}

#[test]
fn two_threads_write_what_one_does() {
    check(types::Q4_0, 64, 32 * 2 * STRIPS_A_THREAD + 5, 3);
}

#[test]
fn padded_codes_are_the_tables_zero() {
    let data = blocks(types::Q6_K, 210, 1);
    let mut strip = vec![0; Format::Q6_K.strip(256).bytes];
    encode_strip(&Format::Q6_K, 256, 210, &data, &mut strip);
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
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_shape_survives(tiles in 1usize..9, n in 1usize..80, which in 0usize..4, seed in any::<u64>()) {
        let id = [types::Q4_0, types::Q8_0, types::F16, types::F32][which];
        check(id, 32 * tiles, n, seed);
    }
}
