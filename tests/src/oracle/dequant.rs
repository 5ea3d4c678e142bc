//! ggml blocks to numbers, straight from the definition of each type.
//!
//! Products are exact in f32 (a half times a few small integers stays within 24 bits; Q6_K's last may round once, as
//! ggml's own does), and a minimum is added with one rounding: the values are those of the F32 twins that the goldens were
//! computed on. A further type is one more row of [`block`] and one more function. `tests/codecs.rs` holds all of them to
//! the values of the PyPI package `gguf`.

use half::{bf16, f16};

/// A ggml type: how many weights a block holds, in how many bytes, and what they are.
pub(super) struct Block {
    pub(super) weights: usize,
    pub(super) bytes: usize,
    pub(super) decode: fn(&[u8], &mut [f32]),
}

/// The block of ggml type number `kind`.
pub(super) fn block(kind: u32) -> Option<Block> {
    let (weights, bytes, decode): (_, _, fn(&[u8], &mut [f32])) = match kind {
        0 => (1, 4, |b, out| out[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        1 => (1, 2, |b, out| out[0] = half_at(b, 0)),
        2 => (32, 18, q4_0),
        3 => (32, 20, q4_1),
        6 => (32, 22, q5_0),
        7 => (32, 24, q5_1),
        8 => (32, 34, q8_0),
        10 => (256, 84, q2_k),
        11 => (256, 110, q3_k),
        12 => (256, 144, q4_k),
        13 => (256, 176, q5_k),
        14 => (256, 210, q6_k),
        20 => (32, 18, iq4_nl),
        30 => (1, 2, |b, out| out[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32()),
        39 => (32, 17, mxfp4),
        _ => return None,
    };
    Some(Block { weights, bytes, decode })
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Half d, then 16 bytes: low nibbles are weights 0–15, high ones 16–31, each less 8.
fn q4_0(bytes: &[u8], out: &mut [f32]) {
    let d = half_at(bytes, 0);
    for (i, &byte) in bytes[2..18].iter().enumerate() {
        out[i] = d * f32::from((byte & 15) as i8 - 8);
        out[i + 16] = d * f32::from((byte >> 4) as i8 - 8);
    }
}

/// Nibble of weight `i` among 16 bytes: low ones are weights 0–15, high ones 16–31.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 }
}

/// Bit of weight `i` among four bytes.
fn fifth(bytes: &[u8], i: usize) -> u8 {
    let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    (word >> i & 1) as u8
}

/// Half d, half m, nibbles: d·q + m.
fn q4_1(bytes: &[u8], out: &mut [f32]) {
    for (i, value) in out.iter_mut().enumerate() {
        *value = half_at(bytes, 0) * f32::from(nibble(&bytes[4..], i)) + half_at(bytes, 2);
    }
}

/// Half d, fifth bits, nibbles, less 16.
fn q5_0(bytes: &[u8], out: &mut [f32]) {
    for (i, value) in out.iter_mut().enumerate() {
        let q = nibble(&bytes[6..], i) | fifth(&bytes[2..], i) << 4;
        *value = half_at(bytes, 0) * f32::from(q as i8 - 16);
    }
}

/// Half d, half m, fifth bits, nibbles: d·q + m.
fn q5_1(bytes: &[u8], out: &mut [f32]) {
    for (i, value) in out.iter_mut().enumerate() {
        let q = nibble(&bytes[8..], i) | fifth(&bytes[4..], i) << 4;
        *value = half_at(bytes, 0) * f32::from(q) + half_at(bytes, 2);
    }
}

/// Half d, nibbles through a table.
fn iq4_nl(bytes: &[u8], out: &mut [f32]) {
    const TABLE: [i16; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    for (i, value) in out.iter_mut().enumerate() {
        *value = half_at(bytes, 0) * f32::from(TABLE[usize::from(nibble(&bytes[2..], i))]);
    }
}

/// A power of two less 127, then nibbles of sign, two bits of exponent and one of mantissa (E2M1).
fn mxfp4(bytes: &[u8], out: &mut [f32]) {
    let scale = (f64::from(bytes[0]) - 127.0).exp2();
    for (i, value) in out.iter_mut().enumerate() {
        let q = nibble(&bytes[1..], i);
        let (exponent, mantissa) = (i32::from(q >> 1 & 3), f64::from(q & 1));
        let magnitude = if exponent == 0 {
            mantissa / 2.0
        } else {
            (1.0 + mantissa / 2.0) * f64::from(1 << (exponent - 1))
        };
        *value = (scale * if q & 8 == 0 { magnitude } else { -magnitude }) as f32;
    }
}

/// Bit pair of weight `i` among 64 bytes: each half of the block takes pairs 0–3 of its 32 bytes.
fn bit_pair(bytes: &[u8], i: usize) -> u8 {
    bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3
}

/// 16 bytes of scale (low) and minimum (high), bit pairs, half d, half dmin: d·s·q − dmin·m.
fn q2_k(bytes: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(bytes, 80), half_at(bytes, 82));
    for (i, value) in out.iter_mut().enumerate() {
        let (scale, min) = (bytes[i / 16] & 15, bytes[i / 16] >> 4);
        *value = d * f32::from(scale) * f32::from(bit_pair(&bytes[16..], i)) - dmin * f32::from(min);
    }
}

/// 32 bytes of third bits (bit r of byte l: weight 32r + l; unset takes 4 off), bit pairs, 16 scales of six bits less 32
/// (low four bits in eight bytes, high two in four), half d.
fn q3_k(bytes: &[u8], out: &mut [f32]) {
    let d = half_at(bytes, 108);
    for (i, value) in out.iter_mut().enumerate() {
        let sub = i / 16;
        let low = bytes[96 + sub % 8] >> (4 * (sub / 8)) & 15;
        let high = bytes[104 + sub % 4] >> (2 * (sub / 4)) & 3;
        let less = if bytes[i % 32] >> (i / 32) & 1 == 1 { 0 } else { 4 };
        let q = bit_pair(&bytes[32..], i) as i8 - less;
        *value = d * f32::from((low | high << 4) as i8 - 32) * f32::from(q);
    }
}

/// Scale and minimum number `sub` of the twelve bytes at 4: six bits each; those of 4–7 have their high two bits above
/// those of 0–3.
fn six_bits(bytes: &[u8], sub: usize) -> (f32, f32) {
    let at = |i: usize| bytes[4 + i];
    let (scale, min) = match sub {
        0..4 => (at(sub) & 63, at(sub + 4) & 63),
        _ => (at(sub + 4) & 15 | at(sub - 4) >> 6 << 4, at(sub + 4) >> 4 | at(sub) >> 6 << 4),
    };
    (f32::from(scale), f32::from(min))
}

/// Half d, half dmin, twelve bytes of scales and minima, nibbles: of 32 bytes the low ones are 32 weights, the high ones
/// the next 32. d·s·q − dmin·m.
fn q4_k(bytes: &[u8], out: &mut [f32]) {
    for (i, value) in out.iter_mut().enumerate() {
        let (scale, min) = six_bits(bytes, i / 32);
        let q = bytes[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
        *value = half_at(bytes, 0) * scale * f32::from(q) - half_at(bytes, 2) * min;
    }
}

/// As Q4_K with 32 bytes of fifth bits before the nibbles: bit r of byte l is weight 32r + l's.
fn q5_k(bytes: &[u8], out: &mut [f32]) {
    for (i, value) in out.iter_mut().enumerate() {
        let (scale, min) = six_bits(bytes, i / 32);
        let low = bytes[48 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
        let q = low | (bytes[16 + i % 32] >> (i / 32) & 1) << 4;
        *value = half_at(bytes, 0) * scale * f32::from(q) - half_at(bytes, 2) * min;
    }
}

/// Half d, then 32 signed bytes.
fn q8_0(bytes: &[u8], out: &mut [f32]) {
    let d = half_at(bytes, 0);
    for (value, &byte) in out.iter_mut().zip(&bytes[2..34]) {
        *value = d * f32::from(byte as i8);
    }
}

/// 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales (one for 16 weights), half d. Each half of the
/// block holds four runs of 32: nibbles low, low, high, high over two runs of bytes, bit pairs 0–3 of one run.
fn q6_k(bytes: &[u8], out: &mut [f32]) {
    let d = half_at(bytes, 208);
    for (i, value) in out.iter_mut().enumerate() {
        let (half, run, lane) = (i / 128, i % 128 / 32, i % 32);
        let low = bytes[64 * half + 32 * (run % 2) + lane] >> (4 * (run / 2)) & 15;
        let high = bytes[128 + 32 * half + lane] >> (2 * run) & 3;
        let scale = bytes[192 + i / 16] as i8;
        *value = d * f32::from(scale) * f32::from((low | high << 4) as i8 - 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(kind: u32, bytes: &[u8]) -> Vec<f32> {
        let block = block(kind).unwrap();
        assert_eq!(bytes.len(), block.bytes);
        let mut out = vec![f32::NAN; block.weights];
        (block.decode)(bytes, &mut out);
        out
    }

    #[test]
    fn small_types_by_hand() {
        assert_eq!(decode(0, &1.5f32.to_le_bytes()), [1.5]);
        assert_eq!(decode(1, &[0x00, 0xC0]), [-2.0]);
        assert_eq!(decode(30, &[0x80, 0x3F]), [1.0]);
        let mut q4 = vec![0x88; 18];
        (q4[0], q4[1], q4[2]) = (0x00, 0x38, 0xF1); // d = 0.5, weight 0 = 1 − 8, weight 16 = 15 − 8
        let values = decode(2, &q4);
        assert_eq!((values[0], values[16], values[1]), (-3.5, 3.5, 0.0));
        let mut q8 = vec![0; 34];
        (q8[1], q8[33]) = (0x3C, 0x80); // d = 1, weight 31 = −128
        assert_eq!(decode(8, &q8)[31], -128.0);
    }

    #[test]
    fn q6_k_by_hand() {
        let mut q6 = vec![0; 210];
        (q6[208], q6[209]) = (0x00, 0x3C); // d = 1
        q6[192..208].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0xFF]);
        q6[5] = 0xA3; // weight 5: low 3; weight 69: low 10
        q6[128 + 5] = 0b01_10_11_00; // weights 5, 37, 69, 101: high 0, 3, 2, 1
        let values = decode(14, &q6);
        assert_eq!(values[5], (3 - 32) as f32);
        assert_eq!(values[37], 3.0 * (48 - 32) as f32);
        assert_eq!(values[69], 5.0 * (10 + 32 - 32) as f32);
        assert_eq!(values[101], 7.0 * (16 - 32) as f32);
        assert_eq!(values[255], 32.0);
    }
}
