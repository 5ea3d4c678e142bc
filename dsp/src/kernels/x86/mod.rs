//! x86-64: f32 on AVX2, FMA and F16C; products in integers on AVX2, AVX-VNNI and AVX-512 VNNI.
//!
//! Each type here is a witness: this module makes its value only after the processor was asked, so whoever holds one may
//! run those instructions. The generic algorithms are instantiated here, each inside one function that enables the
//! features.
//!
//! Of the f32 kernels only the product has a form for AVX-512: on the cores at hand a 512-bit operation takes two turns of
//! a 256-bit unit, so only what lacks registers gains.

mod lanes;
pub(super) mod peak;
mod tall;
mod wide;
mod ymm;

use super::int8;
use super::{Backend, Chain, Decoded, Input, Kernels, Plain, Products, Strip, decode, multiply, vector};
use crate::view::{Block, Rows};
use crate::vtcm::Packing;
use core::ops::Range;
use estream_idl::call::KernelSet;
use estream_idl::format::Format;
use estream_idl::recipe::RopePairs;

/// Words of a line of the caches.
const LINE: usize = 16;

/// Proof that this processor has AVX2, FMA and F16C; also their kernels.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

/// Proof that this processor has AVX-512 F too; the kernels of [`Avx2`] with its product.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

/// Proof of what [`Avx2`] proves; integer products by `vpmaddwd`, for activations of `DIGITS` digits.
#[derive(Clone, Copy, Debug)]
pub struct Madd<const DIGITS: usize>(());

/// Proof that this processor has AVX-VNNI too; integer products by its `vpdpbusd`.
#[derive(Clone, Copy, Debug)]
pub struct Vnni<const DIGITS: usize>(());

/// Proof that this processor has AVX-512 F, BW, VL and VNNI too; integer products by its `vpdpbusd`.
#[derive(Clone, Copy, Debug)]
pub struct Vnni512<const DIGITS: usize>(());

/// The backends of this processor with one digit or two, best first.
pub(super) fn backends(one_digit: bool) -> [Option<Backend>; 4] {
    use std::arch::is_x86_feature_detected as has;
    let avx2 = has!("avx2") && has!("fma") && has!("f16c");
    let vnni = avx2 && has!("avxvnni");
    let vnni512 = avx2 && has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512vnni");
    let plain = Backend::plain(KernelSet::AVX2, &Avx2(()), &Plain(Avx2(())));
    let tall = Backend::plain(KernelSet::AVX512_VNNI, &Avx512(()), &Plain(Avx512(())));
    let digits = if one_digit { KernelSet::ONE_DIGIT } else { KernelSet::empty() };
    let scaled = |plain: Backend, set: KernelSet, one: &'static dyn Products, two: &'static dyn Products| {
        plain.with_scaled(set | digits, if one_digit { one } else { two })
    };
    [
        vnni512.then(|| scaled(tall, KernelSet::AVX512_VNNI, &Vnni512::<1>(()), &Vnni512::<2>(()))),
        vnni.then(|| scaled(plain, KernelSet::AVX_VNNI, &Vnni::<1>(()), &Vnni::<2>(()))),
        avx2.then(|| scaled(plain, KernelSet::AVX2_INT8, &Madd::<1>(()), &Madd::<2>(()))),
        avx2.then_some(plain),
    ]
}

/// Methods that run a generic algorithm with the features enabled.
macro_rules! with_features {
    ($witness:ty, $features:literal:
        $(fn $name:ident($($arg:ident: $type:ty),*) $(-> $value:ty)? = $algorithm:path;)*) => {$(
        fn $name(&self, $($arg: $type),*) $(-> $value)? {
            #[target_feature(enable = $features)]
            fn enabled(witness: $witness, $($arg: $type),*) $(-> $value)? {
                $algorithm(witness, $($arg),*)
            }
            // SAFETY: the features are there, `self` is the witness.
            unsafe { enabled(*self, $($arg),*) }
        }
    )*};
}

impl Kernels for Avx2 {
    fn near(&self, row: &mut [f32]) {
        let last = row.len().saturating_sub(1);
        for place in (0..last).step_by(LINE).chain([last]) {
            let Some(word) = row.get_mut(place) else { return };
            // SAFETY: a hint to own the line of a word that is ours; processors without it take it for a no-operation. The
            // intrinsic would need a feature of its own, and only ask to read.
            unsafe {
                core::arch::asm!("prefetchw [{}]", in(reg) core::ptr::from_mut(word), options(nostack, preserves_flags));
            }
        }
    }

    with_features! { Avx2, "avx2,fma,f16c":
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

/// Methods that are those of [`Avx2`].
macro_rules! as_avx2 {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $value:ty)?;)*) => {$(
        fn $name(&self, $($arg: $type),*) $(-> $value)? {
            Avx2(()).$name($($arg),*)
        }
    )*};
}

impl Kernels for Avx512 {
    fn multiply(&self, x: Rows<'_>, weights: &[f32], out: Block<'_>, chain: Chain) {
        // SAFETY: the feature is there, `self` is the witness.
        unsafe { tall::multiply(x, weights, out, chain) }
    }

    as_avx2! {
        fn decode(strip: Strip<'_>, tiles: Range<usize>, out: &mut [f32]);
        fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]);
        fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]);
        fn add_scaled(factor: f32, x: &[f32], y: &mut [f32]);
        fn near(row: &mut [f32]);
        fn scale(factor: f32, x: &mut [f32]);
        fn rotate(pairs: RopePairs, head: &mut [f32], cos: &[f32], sin: &[f32]);
        fn max(x: &[f32]) -> f32;
        fn exp_sum(x: &mut [f32], max: f32) -> f32;
        fn sum_exp(x: &[f32], max: f32) -> f32;
    }
}

/// Integer products with the features enabled.
macro_rules! products {
    ($($unit:ty, $quad:literal, $features:literal;)*) => {$(
        impl Products for $unit {
            fn packing(&self, formats: &[Format]) -> Packing {
                int8::packing($quad, formats)
            }
            fn in_place(&self) -> bool {
                false
            }
            with_features! { $unit, $features:
                fn pack(x: &[f32], out: &mut [f32]) = int8::pack;
                fn decode(strip: Strip<'_>, tiles: Range<usize>, out: &mut [f32]) = int8::decode;
                fn multiply(x: Input<'_>, weights: Decoded<'_>, out: Block<'_>, chain: Chain) = int8::multiply;
            }
        }
    )*};
}

products! {
    Madd<1>, 8, "avx2,fma,f16c";
    Madd<2>, 8, "avx2,fma,f16c";
    Vnni<1>, 4, "avx2,fma,f16c,avxvnni";
    Vnni<2>, 8, "avx2,fma,f16c,avxvnni";
    Vnni512<1>, 4, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni";
    Vnni512<2>, 8, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni";
}
