//! Counter-seeded random numbers: any row of any tensor can be made alone, so a synthetic file can be read at any offset.

/// SplitMix64: one add, two multiplications a number. Statistical quality is ample for weights, and a stream is fully
/// given by its seed.
pub(super) struct Random(u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The stream of `index` under `seed`.
    pub(super) fn of(seed: u64, index: u64) -> Self {
        let mut mixed = Self(seed ^ index.wrapping_mul(0xd1b5_4a32_d192_ed03).rotate_left(17));
        Self(mixed.next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Normal with variance 1, by Box and Muller: the tails matter where a rare expert has to win sometimes.
    pub(super) fn normal(&mut self) -> f32 {
        let bits = self.next();
        let unit = |bits: u64| (bits as u32 as f32 + 0.5) / 4_294_967_296.0;
        let (radius, turn) = (unit(bits), unit(bits >> 32));
        (-2.0 * radius.ln()).sqrt() * (std::f32::consts::TAU * turn).cos()
    }

    /// Uniform in 0..bound.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}
