//! The ggml types that have a codec, and what one block of each holds: codes in ascending k, scales and minima as stored.
//!
//! A type is one row of [`ENCODINGS`] and, where its weights are codes, one function that takes a block apart. Nothing is
//! computed with: sub-scales of four or six bits become bytes of the same value, halves stay the file's sixteen bits.

use super::strip::fill_strip;
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

/// A ggml type whose weights are codes. Types are types here too, so that the code that moves their blocks is compiled for
/// each of them: its branches on the format are decided then, which doubles its speed.
pub(super) trait Blocks {
    /// The pack's storage.
    const FORMAT: Format;
    /// Weights of a block.
    const WEIGHTS: usize;
    /// Bytes of a block.
    const BYTES: usize;

    /// Takes a block apart.
    fn unpack(bytes: &[u8], block: &mut Block);
}

/// How a ggml type is stored in a pack.
pub(crate) struct Encoding {
    ggml: u32,
    /// The pack's storage.
    pub(crate) format: Format,
    /// How its codes move; `None` for plain elements, which are copied.
    pub(super) codes: Option<Codes>,
}

/// The functions of a type whose weights are codes.
pub(super) struct Codes {
    /// Takes a block apart.
    pub(super) unpack: fn(&[u8], &mut Block),
    /// Moves rows of `k` elements into a strip.
    pub(super) fill_strip: fn(k: usize, rows: &[u8], out: &mut [u8]),
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
    Encoding { ggml, format, codes: None }
}

const fn codes<T: Blocks>(ggml: u32) -> Encoding {
    let codes = Codes { unpack: T::unpack, fill_strip: fill_strip::<T> };
    Encoding { ggml, format: T::FORMAT, codes: Some(codes) }
}

static ENCODINGS: [Encoding; 15] = [
    plain(types::F32, Format::F32),
    plain(types::F16, Format::F16),
    plain(types::BF16, Format::BF16),
    codes::<Q4_0>(types::Q4_0),
    codes::<Q4_1>(types::Q4_1),
    codes::<Q5_0>(types::Q5_0),
    codes::<Q5_1>(types::Q5_1),
    codes::<Q8_0>(types::Q8_0),
    codes::<Q2K>(types::Q2_K),
    codes::<Q3K>(types::Q3_K),
    codes::<Q4K>(types::Q4_K),
    codes::<Q5K>(types::Q5_K),
    codes::<Q6K>(types::Q6_K),
    codes::<Iq4Nl>(types::IQ4_NL),
    codes::<Mxfp4>(types::MXFP4),
];

/// Names a type's storage, the weights and bytes of its blocks, and the function that takes them apart.
macro_rules! blocks {
    ($($name:ident = $format:ident, $weights:literal in $bytes:literal, $unpack:ident;)*) => {
        $(struct $name;

        impl Blocks for $name {
            const FORMAT: Format = Format::$format;
            const WEIGHTS: usize = $weights;
            const BYTES: usize = $bytes;

            #[inline(always)]
            fn unpack(bytes: &[u8], block: &mut Block) {
                $unpack(bytes, block);
            }
        })*
    };
}

blocks! {
    Q4_0 = Q4_0, 32 in 18, scaled_nibbles;
    Q4_1 = Q4_1, 32 in 20, q4_1;
    Q5_0 = Q5_0, 32 in 22, q5_0;
    Q5_1 = Q5_1, 32 in 24, q5_1;
    Q8_0 = Q8_0, 32 in 34, q8_0;
    Q2K = Q2_K, 256 in 84, q2_k;
    Q3K = Q3_K, 256 in 110, q3_k;
    Q4K = Q4_K, 256 in 144, q4_k;
    Q5K = Q5_K, 256 in 176, q5_k;
    Q6K = Q6_K, 256 in 210, q6_k;
    Iq4Nl = IQ4_NL, 32 in 18, scaled_nibbles;
    Mxfp4 = MXFP4, 32 in 17, mxfp4;
}

#[inline(always)]
fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// 16 bytes: weight j is the low nibble of byte j, weight j + 16 the high one.
#[inline(always)]
fn nibbles(quants: &[u8], codes: &mut [u8; 256]) {
    let (low, high) = codes.split_at_mut(16);
    for ((&pair, low), high) in quants.iter().zip(low).zip(high) {
        *low = pair & 15;
        *high = pair >> 4;
    }
}

/// 4 bytes: bit j is the fifth bit of weight j.
#[inline(always)]
fn fifth_bits(bytes: &[u8], codes: &mut [u8; 256]) {
    for (code, bit) in codes[..32].iter_mut().zip(0..) {
        *code |= (bytes[bit / 8] >> (bit % 8) & 1) << 4;
    }
}

/// Half scale, nibbles: Q4_0 and IQ4_NL, which differ in their tables.
#[inline(always)]
fn scaled_nibbles(bytes: &[u8], block: &mut Block) {
    block.scales[0] = half(bytes, 0);
    nibbles(&bytes[2..18], &mut block.codes);
}

/// Half scale, half minimum, nibbles.
#[inline(always)]
fn q4_1(bytes: &[u8], block: &mut Block) {
    (block.scales[0], block.mins[0]) = (half(bytes, 0), half(bytes, 2));
    nibbles(&bytes[4..20], &mut block.codes);
}

/// Half scale, fifth bits, nibbles.
#[inline(always)]
fn q5_0(bytes: &[u8], block: &mut Block) {
    block.scales[0] = half(bytes, 0);
    nibbles(&bytes[6..22], &mut block.codes);
    fifth_bits(&bytes[2..6], &mut block.codes);
}

/// Half scale, half minimum, fifth bits, nibbles.
#[inline(always)]
fn q5_1(bytes: &[u8], block: &mut Block) {
    (block.scales[0], block.mins[0]) = (half(bytes, 0), half(bytes, 2));
    nibbles(&bytes[8..24], &mut block.codes);
    fifth_bits(&bytes[4..8], &mut block.codes);
}

/// Half scale, signed bytes.
#[inline(always)]
fn q8_0(bytes: &[u8], block: &mut Block) {
    block.scales[0] = half(bytes, 0);
    block.codes[..32].copy_from_slice(&bytes[2..34]);
}

/// Two bits a weight: each half of the block takes bit pairs 0–3 of its 32 bytes, one after the other.
#[inline(always)]
fn bit_pairs(quants: &[u8], codes: &mut [u8; 256]) {
    for (run, codes) in codes.chunks_exact_mut(32).enumerate() {
        for (code, &byte) in codes.iter_mut().zip(&quants[run / 4 * 32..]) {
            *code = byte >> (run % 4 * 2) & 3;
        }
    }
}

/// 16 bytes of scale (low nibble) and minimum (high), bit pairs, d, dmin.
#[inline(always)]
fn q2_k(bytes: &[u8], block: &mut Block) {
    for (sub, &byte) in bytes[..16].iter().enumerate() {
        (block.scales[sub], block.mins[sub]) = (u16::from(byte & 15), u16::from(byte >> 4));
    }
    bit_pairs(&bytes[16..80], &mut block.codes);
    (block.d, block.dmin) = (half(bytes, 80), half(bytes, 82));
}

/// 32 bytes of third bits (bit r of byte l: weight 32·r + l), bit pairs, 12 bytes of six-bit scales less 32, d.
#[inline(always)]
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
#[inline(always)]
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
#[inline(always)]
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
#[inline(always)]
fn q4_k(bytes: &[u8], block: &mut Block) {
    six_bit_scales(bytes, block);
    runs_of_nibbles(&bytes[16..144], &mut block.codes);
}

/// Six-bit scales, 32 bytes of fifth bits (bit r of byte l: weight 32·r + l), nibbles.
#[inline(always)]
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
#[inline(always)]
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
#[inline(always)]
fn mxfp4(bytes: &[u8], block: &mut Block) {
    nibbles(&bytes[1..17], &mut block.codes);
    block.scales[0] = u16::from(bytes[0].saturating_sub(1));
    if bytes[0] == 0 {
        for code in &mut block.codes[..32] {
            *code = *code & 8 | HALVED[usize::from(*code & 7)];
        }
    }
}
