//! How the rows of a synthetic tensor are filled: codes straight from random bits, scales so that activations keep their
//! spread.

use super::random::Random;
use half::f16;

/// Columns of the constant part that an embedding carries where routing is skewed: one 32-block.
pub(super) const CONSTANT: usize = 32;

/// Root mean square of a uniform nibble less 8, of a uniform signed byte, of a uniform 6-bit code less 32.
const NIBBLE_RMS: f32 = 4.637;
const BYTE_RMS: f32 = 73.9;
const SIX_BIT_RMS: f32 = 18.48;
/// Root mean square of the sub-scales 8…15 that Q6_K rows get.
const SUB_SCALE_RMS: f32 = 11.73;

/// The contents of a tensor.
#[derive(Clone, Debug)]
pub(super) enum Fill {
    /// Q4_0 with this standard deviation; with the constant part or not.
    Nibbles { std: f32, constant: bool },
    /// Q8_0.
    Bytes { std: f32 },
    /// Q6_K; with the constant part or not.
    SixBits { std: f32, constant: bool },
    /// F32, normal around `mean`.
    Normal { mean: f32, std: f32 },
    /// F32 router rows: normal, and on the constant part the row's own bias (empty = none).
    Router { std: f32, bias: Vec<f32> },
}

/// The constant part's sign at a column: alternating, so that its sum is zero.
pub(super) const fn sign(column: usize) -> f32 {
    if column.is_multiple_of(2) { 1.0 } else { -1.0 }
}

impl Fill {
    /// Fills row `row`.
    pub(super) fn row(&self, mut random: Random, row: u64, out: &mut [u8]) {
        match *self {
            Self::Nibbles { std, constant } => nibbles(&mut random, std, constant, out),
            Self::Bytes { std } => {
                for block in out.chunks_exact_mut(34) {
                    block[..2].copy_from_slice(&f16::from_f32(std / BYTE_RMS).to_le_bytes());
                    bits(&mut random, &mut block[2..]);
                }
            }
            Self::SixBits { std, constant } => six_bits(&mut random, std, constant, out),
            Self::Normal { mean, std } => singles(out, |_| mean + std * random.normal()),
            Self::Router { std, ref bias } => router(&mut random, std, bias.get(row as usize).copied(), out),
        }
    }
}

/// Random parts of exactly equal length: an expert that wins by the tail of its logits would turn a few per cent of
/// length into a fifth of its share.
fn router(random: &mut Random, std: f32, bias: Option<f32>, out: &mut [u8]) {
    let first = if bias.is_some() { CONSTANT } else { 0 };
    let noise: Vec<f32> = (first..out.len() / 4).map(|_| random.normal()).collect();
    let rms = (noise.iter().map(|value| value * value).sum::<f32>() / noise.len().max(1) as f32).sqrt();
    singles(out, |column| match bias {
        Some(bias) if column < CONSTANT => bias * sign(column),
        _ => std / rms * noise[column - first],
    });
}

fn singles(out: &mut [u8], mut value: impl FnMut(usize) -> f32) {
    for (column, bytes) in out.chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&value(column).to_le_bytes());
    }
}

fn bits(random: &mut Random, out: &mut [u8]) {
    for eight in out.chunks_mut(8) {
        eight.copy_from_slice(&random.next().to_le_bytes()[..eight.len()]);
    }
}

/// Scales vary by a quarter and change sign: a uniform nibble less 8 has the mean −½, which would add up over a row.
fn nibbles(random: &mut Random, std: f32, constant: bool, out: &mut [u8]) {
    let scales: [[u8; 2]; 8] = std::array::from_fn(|i| {
        let spread = 0.75 + 0.5 * (i / 2) as f32 / 3.0;
        f16::from_f32(sign(i) * spread * std / NIBBLE_RMS).to_le_bytes()
    });
    for (index, block) in out.chunks_exact_mut(18).enumerate() {
        if constant && index == 0 {
            // Codes 12 and 4 alternate: ±4 under the plain scale.
            block[..2].copy_from_slice(&f16::from_f32(std / NIBBLE_RMS).to_le_bytes());
            (2..18).for_each(|at| block[at] = if at % 2 == 0 { 0xcc } else { 0x44 });
            continue;
        }
        let (low, high, which) = (random.next(), random.next(), random.next());
        block[..2].copy_from_slice(&scales[(which % 8) as usize]);
        block[2..10].copy_from_slice(&low.to_le_bytes());
        block[10..18].copy_from_slice(&high.to_le_bytes());
    }
}

fn six_bits(random: &mut Random, std: f32, constant: bool, out: &mut [u8]) {
    let d = f16::from_f32(std / (SIX_BIT_RMS * SUB_SCALE_RMS)).to_le_bytes();
    for (index, block) in out.chunks_exact_mut(210).enumerate() {
        bits(random, &mut block[..208]);
        for scale in &mut block[192..208] {
            let size = 8 + (*scale & 7) as i8;
            *scale = if *scale & 8 == 0 { size } else { -size } as u8;
        }
        block[208..].copy_from_slice(&d);
        if constant && index == 0 {
            // The first 32 codes are 48 and 16 alternately: ±16 under two equal sub-scales.
            for column in 0..CONSTANT {
                block[column] &= 0xf0;
                block[128 + column] = block[128 + column] & !3 | if column % 2 == 0 { 3 } else { 1 };
            }
            block[192..194].fill(12);
        }
    }
}
