//! The ggml types that have a codec, and what one block of each holds: codes in ascending k, scales and minima as stored.
//!
//! A type is one row of [`ENCODINGS`] and, where its weights are codes, one function that takes a block apart. Nothing is
//! computed with: sub-scales of four or six bits become bytes of the same value, halves stay the file's sixteen bits.

use crate::gguf::types::{self, GgmlType};
use estream_idl::format::Format;

/// A block's contents. Blocks of 32 weights use the first 32 codes, one scale and one minimum.
pub(super) struct Block {
    pub(super) codes: [u8; 256],
    /// One a sub-block: a half's bits, or a byte.
    pub(super) scales: [u16; 16],
    pub(super) mins: [u16; 16],
    /// Bits of the super-scale of scales.
    pub(super) d: u16,
    /// Bits of the super-scale of minima.
    pub(super) dmin: u16,
}

impl Block {
    pub(super) const EMPTY: Self = Self { codes: [0; 256], scales: [0; 16], mins: [0; 16], d: 0, dmin: 0 };
}

/// How a ggml type is stored in a pack.
pub(crate) struct Encoding {
    ggml: u32,
    /// The pack's storage.
    pub(crate) format: Format,
    /// Takes a block apart; `None` for plain elements, which are copied.
    pub(super) unpack: Option<fn(&[u8], &mut Block)>,
}

/// The encoding of a ggml type; `None` where there is no codec for it.
#[must_use]
pub(crate) fn encoding(ggml: &GgmlType) -> Option<&'static Encoding> {
    ENCODINGS.iter().find(|encoding| encoding.ggml == ggml.id)
}

/// The name of the ggml type that a format stores.
#[must_use]
pub(crate) fn type_name(format: &Format) -> Option<&'static str> {
    let encoding = ENCODINGS.iter().find(|encoding| encoding.format == *format)?;
    types::find(encoding.ggml).map(|ggml| ggml.name)
}

/// The names of all types that have a codec.
pub(crate) fn type_names() -> impl Iterator<Item = &'static str> {
    ENCODINGS.iter().filter_map(|encoding| types::find(encoding.ggml)).map(|ggml| ggml.name)
}

const fn plain(ggml: u32, format: Format) -> Encoding {
    Encoding { ggml, format, unpack: None }
}

const fn codes(ggml: u32, format: Format, unpack: fn(&[u8], &mut Block)) -> Encoding {
    Encoding { ggml, format, unpack: Some(unpack) }
}

static ENCODINGS: [Encoding; 15] = [
    plain(types::F32, Format::F32),
    plain(types::F16, Format::F16),
    plain(types::BF16, Format::BF16),
    codes(types::Q4_0, Format::Q4_0, scaled_nibbles),
    codes(types::Q4_1, Format::Q4_1, q4_1),
    codes(types::Q5_0, Format::Q5_0, q5_0),
    codes(types::Q5_1, Format::Q5_1, q5_1),
    codes(types::Q8_0, Format::Q8_0, q8_0),
    codes(types::Q2_K, Format::Q2_K, q2_k),
    codes(types::Q3_K, Format::Q3_K, q3_k),
    codes(types::Q4_K, Format::Q4_K, q4_k),
    codes(types::Q5_K, Format::Q5_K, q5_k),
    codes(types::Q6_K, Format::Q6_K, q6_k),
    codes(types::IQ4_NL, Format::IQ4_NL, scaled_nibbles),
    codes(types::MXFP4, Format::MXFP4, mxfp4),
];

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// 16 bytes: weight j is the low nibble of byte j, weight j + 16 the high one.
fn nibbles(quants: &[u8], codes: &mut [u8; 256]) {
    let (low, high) = codes.split_at_mut(16);
    for ((&pair, low), high) in quants.iter().zip(low).zip(high) {
        *low = pair & 15;
        *high = pair >> 4;
    }
}

/// 4 bytes: bit j is the fifth bit of weight j.
fn fifth_bits(bytes: &[u8], codes: &mut [u8; 256]) {
    for (code, bit) in codes[..32].iter_mut().zip(0..) {
        *code |= (bytes[bit / 8] >> (bit % 8) & 1) << 4;
    }
}

/// Half scale, nibbles: Q4_0 and IQ4_NL, which differ in their tables.
fn scaled_nibbles(bytes: &[u8], block: &mut Block) {
    block.scales[0] = half(bytes, 0);
    nibbles(&bytes[2..18], &mut block.codes);
}

/// Half scale, half minimum, nibbles.
fn q4_1(bytes: &[u8], block: &mut Block) {
    (block.scales[0], block.mins[0]) = (half(bytes, 0), half(bytes, 2));
    nibbles(&bytes[4..20], &mut block.codes);
}

/// Half scale, fifth bits, nibbles.
fn q5_0(bytes: &[u8], block: &mut Block) {
    block.scales[0] = half(bytes, 0);
    nibbles(&bytes[6..22], &mut block.codes);
    fifth_bits(&bytes[2..6], &mut block.codes);
}

/// Half scale, half minimum, fifth bits, nibbles.
fn q5_1(bytes: &[u8], block: &mut Block) {
    (block.scales[0], block.mins[0]) = (half(bytes, 0), half(bytes, 2));
    nibbles(&bytes[8..24], &mut block.codes);
    fifth_bits(&bytes[4..8], &mut block.codes);
}

/// Half scale, signed bytes.
fn q8_0(bytes: &[u8], block: &mut Block) {
    block.scales[0] = half(bytes, 0);
    block.codes[..32].copy_from_slice(&bytes[2..34]);
}

/// Two bits a weight: each half of the block takes bit pairs 0–3 of its 32 bytes, one after the other.
fn bit_pairs(quants: &[u8], codes: &mut [u8; 256]) {
    for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
        for (code, &byte) in codes.iter_mut().zip(&quants[run / 4 * 32..]) {
            *code = byte >> (run % 4 * 2) & 3;
        }
    }
}

/// 16 bytes of scale (low nibble) and minimum (high), bit pairs, d, dmin.
fn q2_k(bytes: &[u8], block: &mut Block) {
    for (sub, &byte) in bytes[..16].iter().enumerate() {
        (block.scales[sub], block.mins[sub]) = (u16::from(byte & 15), u16::from(byte >> 4));
    }
    bit_pairs(&bytes[16..80], &mut block.codes);
    (block.d, block.dmin) = (half(bytes, 80), half(bytes, 82));
}

/// 32 bytes of third bits (bit r of byte l: weight 32·r + l), bit pairs, 12 bytes of six-bit scales less 32, d.
fn q3_k(bytes: &[u8], block: &mut Block) {
    bit_pairs(&bytes[32..96], &mut block.codes);
    for (run, codes) in block.codes.chunks_exact_mut(32).enumerate() {
        for (code, &third) in codes.iter_mut().zip(&bytes[..32]) {
            *code |= (third >> run & 1) << 2;
        }
    }
    // Low four bits: nibbles of the first eight bytes, low ones first; high two: bit pairs of the last four bytes.
    let packed = &bytes[96..108];
    for (sub, scale) in block.scales.iter_mut().enumerate() {
        let low = packed[sub % 8] >> (sub / 8 * 4) & 15;
        let high = packed[8 + sub % 4] >> (sub / 4 * 2) & 3;
        *scale = u16::from((low | high << 4).wrapping_sub(32));
    }
    block.d = half(bytes, 108);
}

/// d, dmin and twelve bytes with eight scales and eight minima of six bits: the first four of each in the low bits of
/// bytes 0–3 and 4–7; of the last four the low nibbles in bytes 8–11 and the high bits above those of the first four.
fn six_bit_scales(bytes: &[u8], block: &mut Block) {
    (block.d, block.dmin) = (half(bytes, 0), half(bytes, 2));
    let packed = &bytes[4..16];
    for sub in 0..4 {
        let (scale, min, last) = (packed[sub], packed[sub + 4], packed[sub + 8]);
        (block.scales[sub], block.mins[sub]) = (u16::from(scale & 63), u16::from(min & 63));
        block.scales[sub + 4] = u16::from(last & 15 | scale >> 6 << 4);
        block.mins[sub + 4] = u16::from(last >> 4 | min >> 6 << 4);
    }
}

/// 128 bytes in four runs of 32: low nibbles are one run of weights, high ones the next.
fn runs_of_nibbles(quants: &[u8], codes: &mut [u8; 256]) {
    for (codes, quants) in codes.chunks_exact_mut(64).zip(quants.chunks_exact(32)) {
        let (low, high) = codes.split_at_mut(32);
        for ((&pair, low), high) in quants.iter().zip(low).zip(high) {
            *low = pair & 15;
            *high = pair >> 4;
        }
    }
}

/// Six-bit scales, nibbles.
fn q4_k(bytes: &[u8], block: &mut Block) {
    six_bit_scales(bytes, block);
    runs_of_nibbles(&bytes[16..144], &mut block.codes);
}

/// Six-bit scales, 32 bytes of fifth bits (bit r of byte l: weight 32·r + l), nibbles.
fn q5_k(bytes: &[u8], block: &mut Block) {
    six_bit_scales(bytes, block);
    runs_of_nibbles(&bytes[48..176], &mut block.codes);
    for (run, codes) in block.codes.chunks_exact_mut(32).enumerate() {
        for (code, &fifth) in codes.iter_mut().zip(&bytes[16..48]) {
            *code |= (fifth >> run & 1) << 4;
        }
    }
}

/// 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, d. Each half of the block holds four runs of 32:
/// nibbles low, low, high, high over two runs of bytes, bit pairs 0–3 of one run.
fn q6_k(bytes: &[u8], block: &mut Block) {
    for (run, codes) in block.codes.chunks_exact_mut(32).enumerate() {
        let (half, quarter) = (run / 4, run % 4);
        let low = &bytes[half * 64 + quarter % 2 * 32..][..32];
        let high = &bytes[128 + half * 32..][..32];
        for ((code, low), high) in codes.iter_mut().zip(low).zip(high) {
            *code = low >> (quarter / 2 * 4) & 15 | (high >> (2 * quarter) & 3) << 4;
        }
    }
    for (scale, &byte) in block.scales.iter_mut().zip(&bytes[192..208]) {
        *scale = u16::from(byte);
    }
    block.d = half(bytes, 208);
}

/// For a block under the smallest scale, the code of half the value. E2M1 has no half of 0.5 and 1.5, which go to the
/// even neighbour: 2^−128 is lost, far below the smallest normal f32.
const HALVED: [u8; 8] = [0, 0, 1, 2, 2, 3, 4, 5];

/// Exponent byte, nibbles. The table holds doubled values, so the exponent goes down by one; one that is 0 cannot, and
/// its codes are halved instead.
fn mxfp4(bytes: &[u8], block: &mut Block) {
    nibbles(&bytes[1..17], &mut block.codes);
    block.scales[0] = u16::from(bytes[0].saturating_sub(1));
    if bytes[0] == 0 {
        for code in &mut block.codes[..32] {
            *code = *code & 8 | HALVED[usize::from(*code & 7)];
        }
    }
}
