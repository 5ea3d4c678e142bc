//! ggml blocks to numbers, straight from the definition of each type.
//!
//! All products here are exact in f32 (a half times a few small integers stays within 24 bits), so the values are those
//! of the F32 twins that the goldens were computed on, in whatever order one multiplies. A further type is one more row
//! of [`block`] and one more function.

use half::{bf16, f16};

/// A ggml type: how many weights a block holds, in how many bytes, and what they are.
pub(super) struct Block {
    pub(super) weights: usize,
    pub(super) bytes: usize,
    pub(super) decode: fn(&[u8], &mut [f32]),
}

/// The block of ggml type number `kind`.
pub(super) fn block(kind: u32) -> Option<Block> {
    Some(match kind {
        0 => Block {
            weights: 1,
            bytes: 4,
            decode: |b, out| out[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        },
        1 => Block { weights: 1, bytes: 2, decode: |b, out| out[0] = half_at(b, 0) },
        2 => Block { weights: 32, bytes: 18, decode: q4_0 },
        8 => Block { weights: 32, bytes: 34, decode: q8_0 },
        14 => Block { weights: 256, bytes: 210, decode: q6_k },
        30 => Block {
            weights: 1,
            bytes: 2,
            decode: |b, out| out[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32(),
        },
        _ => return None,
    })
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
