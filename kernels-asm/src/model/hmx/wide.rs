//! The accumulator's loop, compiled a second time for processors with AVX2.
//!
//! The same source and the same integers; eight columns go side by side where the compiler may use vector shifts by
//! different counts, which x86-64's baseline lacks. A tile takes about a quarter of the time, and the golden models are
//! thousands of tiles. On every other machine this module is the plain loop.

use super::Revision;
use super::accumulator::{Accumulator, Operand};

/// Adds activation · weight for one tile of 32 k.
pub(super) fn multiply(
    accumulator: &mut Accumulator,
    activation: &Operand,
    weight: &Operand,
    revision: Revision,
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function is compiled for.
        unsafe { multiply_avx2(accumulator, activation, weight, revision) };
        return;
    }
    accumulator.multiply(activation, weight, revision);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn multiply_avx2(accumulator: &mut Accumulator, activation: &Operand, weight: &Operand, revision: Revision) {
    accumulator.multiply(activation, weight, revision);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the wide loop gives is what the plain one gives, over several tiles and all magnitudes.
    #[test]
    fn both_loops_agree() {
        let mut state = 1u64;
        let mut tile = || {
            let mut bytes = [0; 2048];
            for half in bytes.as_chunks_mut::<2>().0 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // A quarter zeros.
                *half = if state >> 62 == 0 { [0; 2] } else { ((state >> 40) as u16).to_le_bytes() };
            }
            Operand::decode(&bytes)
        };
        for revision in [Revision::V73, Revision::V75, Revision::V81] {
            let (mut wide, mut plain) = (Accumulator::zero(revision), Accumulator::zero(revision));
            for _ in 0..20 {
                let (a, w) = (tile(), tile());
                multiply(&mut wide, &a, &w, revision);
                plain.multiply(&a, &w, revision);
            }
            for (row, column) in (0..32).flat_map(|row| (0..32).map(move |column| (row, column))) {
                assert_eq!(wide.cell(row, column), plain.cell(row, column), "{revision:?} ({row}, {column})");
            }
        }
    }
}
