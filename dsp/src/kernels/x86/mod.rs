//! x86-64 with AVX2, FMA and F16C: one 256-bit register holds the eight lanes, and a multiply-add rounds once.
//!
//! [`Avx2`] is a witness: the module makes its value only after the processor was asked, so whoever holds one may run
//! these instructions. The generic algorithms are instantiated here, each inside one function that enables the features.

mod lanes;

use super::{Chain, Kernels, Strip, decode, multiply, vector};
use crate::view::{Block, Rows};
use core::ops::Range;
use estream_idl::call::KernelSet;
use estream_idl::recipe::RopePairs;

/// Proof that this processor has AVX2, FMA and F16C; also their kernels.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    /// The kernels, where the processor has the features.
    #[must_use]
    pub fn detect() -> Option<&'static dyn Kernels> {
        let present = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("fma")
            && std::arch::is_x86_feature_detected!("f16c");
        present.then_some(&Self(()) as &dyn Kernels)
    }
}

/// Methods of [`Kernels`] that run a generic algorithm with the features enabled.
macro_rules! with_features {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $value:ty)? = $algorithm:path;)*) => {$(
        fn $name(&self, $($arg: $type),*) $(-> $value)? {
            #[target_feature(enable = "avx2,fma,f16c")]
            fn enabled(witness: Avx2, $($arg: $type),*) $(-> $value)? {
                $algorithm(witness, $($arg),*)
            }
            // SAFETY: the features are there, `self` is the witness.
            unsafe { enabled(*self, $($arg),*) }
        }
    )*};
}

impl Kernels for Avx2 {
    fn set(&self) -> KernelSet {
        KernelSet::AVX2
    }

    with_features! {
        fn decode(strip: Strip<'_>, tiles: Range<usize>, out: &mut [f32]) = decode::decode;
        fn multiply(x: Rows<'_>, weights: &[f32], out: Block<'_>, chain: Chain) = multiply::multiply;
        fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) = vector::rms_norm;
        fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) = vector::swiglu;
        fn add_scaled(factor: f32, x: &[f32], y: &mut [f32]) = vector::add_scaled;
        fn scale(factor: f32, x: &mut [f32]) = vector::scale;
        fn rotate(pairs: RopePairs, head: &mut [f32], cos: &[f32], sin: &[f32]) = vector::rotate;
        fn max(x: &[f32]) -> f32 = vector::max;
        fn exp_sum(x: &mut [f32], max: f32) -> f32 = vector::exp_sum;
        fn sum_exp(x: &[f32], max: f32) -> f32 = vector::sum_exp;
    }
}
