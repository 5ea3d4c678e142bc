//! The kernels of Hexagon, natively over the units' models, against arithmetic of their own.

mod decode;
mod float;
mod operator;
mod pairs;
mod rows;
mod softmax;
mod stored;

/// A small generator: tests say which seed they ran.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// 32 random bits.
    pub fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as u32
    }

    /// Evenly in −1..1.
    pub fn unit(&mut self) -> f32 {
        self.bits() as f32 / 2f32.powi(31) - 1.0
    }
}
