//! Rotary positions: which elements of a head turn together and by how much, plain or stretched by YaRN.
//!
//! Frequencies are a list, so that every scaling is a way to fill it and the rotation itself knows none.

use super::Error;
use super::keys::Keys;
use std::f64::consts::TAU;

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// (2i, 2i + 1): ggml's NORM.
    Adjacent,
    /// (i, i + half): ggml's NEOX.
    Halves,
}

/// The rotation of a head's leading elements.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// Which elements turn together.
    pub pairs: Pairs,
    /// Radians that each pair turns by from one position to the next.
    pub frequencies: Vec<f64>,
}

impl Rotation {
    /// Pair i turns by `base^(−2i/width)`.
    pub(super) fn plain(pairs: Pairs, width: usize, base: f64) -> Self {
        let frequencies = (0..width / 2).map(|i| base.powf(-2.0 * i as f64 / width as f64)).collect();
        Self { pairs, frequencies }
    }

    /// As above or as YaRN stretches it, by the keys of a file, and by what YaRN multiplies queries and keys.
    ///
    /// YaRN (arXiv 2309.00071) leaves pairs that turn more than 32 times within the original context as they are, slows
    /// those that turn less than once by the factor, and blends in between. The file states a tenth of mscale.
    pub(super) fn of(keys: &Keys<'_>, pairs: Pairs, width: usize) -> Result<(Self, f64), Error> {
        let base = keys.float("rope.freq_base")?.unwrap_or(10_000.0);
        let mut rotation = Self::plain(pairs, width, base);
        if keys.text("rope.scaling.type")? != Some("yarn") {
            return Ok((rotation, 1.0));
        }
        let factor = keys.needed_float("rope.scaling.factor")?;
        let context = keys.needed("rope.scaling.original_context_length")? as f64;
        // The number of the pair, in fractions, that turns this often within the original context.
        let pair = |turns: f64| width as f64 * (context / (TAU * turns)).ln() / (2.0 * base.ln());
        let low = pair(32.0).floor().max(0.0);
        let high = pair(1.0).ceil().min(width as f64 - 1.0);
        for (i, frequency) in rotation.frequencies.iter_mut().enumerate() {
            let slowed = ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            *frequency = *frequency * (1.0 - slowed) + *frequency / factor * slowed;
        }
        let mscale = keys.float("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0) / 0.1;
        Ok((rotation, 1.0 + 0.1 * mscale * factor.ln()))
    }

    /// Turns the leading elements of a head at `position`.
    pub(super) fn turn(&self, head: &mut [f64], position: usize) {
        let half = self.frequencies.len();
        for (i, frequency) in self.frequencies.iter().enumerate() {
            let (a, b) = match self.pairs {
                Pairs::Adjacent => (2 * i, 2 * i + 1),
                Pairs::Halves => (i, i + half),
            };
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_kinds_of_pairs_by_hand() {
        let quarter = |pairs| Rotation { pairs, frequencies: vec![TAU / 4.0, 0.0] };
        for (pairs, expected) in
            [(Pairs::Adjacent, [-2.0, 1.0, 3.0, 4.0, 5.0]), (Pairs::Halves, [-3.0, 2.0, 1.0, 4.0, 5.0])]
        {
            let mut head = [1.0, 2.0, 3.0, 4.0, 5.0];
            quarter(pairs).turn(&mut head, 1);
            assert!(head.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{pairs:?}: {head:?}");
        }
    }
}
