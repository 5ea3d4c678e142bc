//! Matrices of random codes with sane scales, at a vector's border as in memory.

use crate::Random;
use estream_idl::format::{Element, Format, Scale};
use half::f16;

/// The strips of a matrix, end to end.
pub struct Stored {
    memory: Vec<[u128; 8]>,
    bytes: usize,
}

impl Stored {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let from = self.memory.as_ptr().cast::<u8>().align_offset(128);
        // SAFETY: 128 bytes a block, one block more than needed, plain bytes.
        unsafe { core::slice::from_raw_parts(self.memory.as_ptr().cast::<u8>().add(from), self.bytes) }
    }
}

/// A small half.
pub fn small(random: &mut Random) -> f16 {
    f16::from_f32(random.unit() / 64.0)
}

/// `strips` strips of `k` inputs; `half` makes scales, minima and plain halves.
pub fn stored(
    format: Format,
    k: usize,
    strips: usize,
    seed: u64,
    mut half: impl FnMut(&mut Random) -> f16,
) -> Stored {
    let mut random = Random::new(seed);
    let layout = format.strip(k);
    let mut bytes: Vec<u8> = (0..strips * layout.bytes).map(|_| random.bits() as u8).collect();
    let mut halves = |bytes: &mut [u8], random: &mut Random| {
        for two in bytes.chunks_exact_mut(2) {
            two.copy_from_slice(&half(random).to_le_bytes());
        }
    };
    for strip in bytes.chunks_exact_mut(layout.bytes) {
        match format.element {
            Element::F32 => {
                for four in strip.chunks_exact_mut(4) {
                    four.copy_from_slice(&random.unit().to_le_bytes());
                }
            }
            Element::BF16 => {
                for two in strip.chunks_exact_mut(2) {
                    two.copy_from_slice(&((random.unit().to_bits() >> 16) as u16).to_le_bytes());
                }
            }
            Element::F16 => halves(strip, &mut random),
            Element::None => {
                halves(&mut strip[layout.super_..layout.scales], &mut random);
                match format.scale {
                    Scale::F16 => halves(&mut strip[layout.scales..], &mut random),
                    Scale::E8M0 => strip[layout.scales..].iter_mut().for_each(|byte| *byte = 118 + *byte % 8),
                    _ => {}
                }
            }
        }
    }
    let mut memory = vec![[0u128; 8]; bytes.len() / 128 + 1];
    let from = memory.as_ptr().cast::<u8>().align_offset(128);
    // SAFETY: as in `bytes`.
    let to =
        unsafe { core::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>().add(from), bytes.len()) };
    to.copy_from_slice(&bytes);
    Stored { memory, bytes: bytes.len() }
}
