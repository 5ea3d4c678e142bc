//! Rotary angles: one table of cosines and sines a position, computed once when the session starts.

use estream_idl::recipe::{Rope, RopeScaling};

/// Elements of a table for `positions` positions: cosines of all pairs, then sines, a position after the other.
#[must_use]
pub const fn elements(rope: &Rope, positions: usize) -> usize {
    positions * rope.width as usize
}

/// Radians that pair `pair` turns by from one position to the next.
#[must_use]
pub fn frequency(rope: &Rope, pair: usize) -> f64 {
    let plain = libm::pow(f64::from(rope.base), -2.0 * pair as f64 / f64::from(rope.width));
    match rope.scaling {
        RopeScaling::None => plain,
        RopeScaling::Yarn { factor, low, high } => {
            let span = f64::from(high - low).max(0.001);
            let stretched = ((pair as f64 - f64::from(low)) / span).clamp(0.0, 1.0);
            plain / f64::from(factor) * stretched + plain * (1.0 - stretched)
        }
    }
}

/// Fills a table of [`elements`]: angles in f64, rounded once.
pub fn fill(rope: &Rope, table: &mut [f32]) {
    let width = rope.width as usize;
    for pair in 0..width / 2 {
        let frequency = frequency(rope, pair);
        for (position, row) in table.chunks_exact_mut(width).enumerate() {
            let angle = position as f64 * frequency;
            row[pair] = libm::cos(angle) as f32;
            row[width / 2 + pair] = libm::sin(angle) as f32;
        }
    }
}

/// Cosines and sines of one position.
#[must_use]
pub fn angles<'a>(rope: &Rope, table: &'a [f32], position: usize) -> (&'a [f32], &'a [f32]) {
    let width = rope.width as usize;
    table[position * width..(position + 1) * width].split_at(width / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use estream_idl::recipe::RopePairs;
    use std::vec;

    fn close(value: f32, exact: f64) {
        assert!(
            (f64::from(value) - exact).abs() <= f64::from(f32::EPSILON) / 2.0 + 1e-10,
            "{value} for {exact}"
        );
    }

    #[test]
    fn angles_are_those_of_the_formula() {
        for (base, width) in [(10_000f32, 128u32), (1e6, 64), (500_000.0, 6)] {
            let rope = Rope { pairs: RopePairs::Halves, width, base, scaling: RopeScaling::None };
            let positions = 600;
            let mut table = vec![0.0; elements(&rope, positions)];
            fill(&rope, &mut table);
            for position in [0, 1, 2, 511, 599] {
                let (cos, sin) = angles(&rope, &table, position);
                for pair in 0..width as usize / 2 {
                    let angle = position as f64 * f64::from(base).powf(-2.0 * pair as f64 / f64::from(width));
                    close(cos[pair], angle.cos());
                    close(sin[pair], angle.sin());
                }
            }
        }
    }

    /// DeepSeek-V2-Lite: s = 40 from 4096, base 1e4, 64 elements; low 10 and high 23.
    #[test]
    fn yarn_keeps_fast_pairs_and_stretches_slow_ones() {
        let scaling = RopeScaling::Yarn { factor: 40.0, low: 10.0, high: 23.0 };
        let rope = Rope { pairs: RopePairs::Adjacent, width: 64, base: 1e4, scaling };
        let plain = |pair: usize| 1e4f64.powf(-2.0 * pair as f64 / 64.0);
        assert!((frequency(&rope, 10) - plain(10)).abs() < 1e-15);
        assert!((frequency(&rope, 23) - plain(23) / 40.0).abs() < 1e-15);
        let blend = 5.0 / 13.0;
        let expected = plain(15) / 40.0 * blend + plain(15) * (1.0 - blend);
        assert!((frequency(&rope, 15) - expected).abs() < 1e-15);
    }
}
