//! The portable backend: eight lanes as plain arrays, a product rounded before it is added.
//!
//! It is the reference of the firmware and what runs where no other backend does. The compiler may vectorise it; it may
//! not fuse, so the bits are the same on every target.

use super::int8::ScalarInt8;
use super::lanes::{Eight, Lanes};
use super::{Backend, Chain, Kernels, LANES, Plain, Strip, decode, multiply, vector};
use crate::view::{Block, Rows};
use core::ops::Range;
use estream_idl::call::KernelSet;
use estream_idl::recipe::RopePairs;
use half::f16;

/// The portable kernels.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

/// The portable backends with one digit or two. The integer one is slower than f32 without units for it, so it comes last;
/// a skel, whose matrix unit takes halves, has no use for its code.
pub(super) fn backends(one_digit: bool) -> impl Iterator<Item = Backend> {
    let plain = Backend::plain(KernelSet::SCALAR, &Scalar, &Plain(Scalar));
    let int8 = match one_digit {
        _ if cfg!(target_arch = "hexagon") => None,
        true => Some(plain.with_scaled(KernelSet::SCALAR_INT8.union(KernelSet::ONE_DIGIT), &ScalarInt8::<1>)),
        false => Some(plain.with_scaled(KernelSet::SCALAR_INT8, &ScalarInt8::<2>)),
    };
    core::iter::once(plain).chain(int8)
}

type Words = [u32; LANES];

/// Lane by lane.
macro_rules! lanes {
    ($i:ident: $value:expr) => {{
        let mut out = [Default::default(); LANES];
        for $i in 0..LANES {
            out[$i] = $value;
        }
        out
    }};
}

/// The case of a minimum or maximum whose operands have no order. LLVM 22 takes the plain selection for Hexagon's sfmin
/// and sfmax, which drop a NaN; told apart from the ordered cases it becomes a comparison and stays one.
const UNORDERED: Option<f32> = if cfg!(target_arch = "hexagon") { Some(f32::NAN) } else { None };

/// `a < b ? a : b`; a NaN in `b` gives a NaN.
#[inline(always)]
fn lesser(a: f32, b: f32) -> f32 {
    match UNORDERED {
        _ if a < b => a,
        Some(nan) if a.is_nan() || b.is_nan() => nan,
        _ => b,
    }
}

/// `a > b ? a : b`; a NaN in `b` gives a NaN.
#[inline(always)]
fn greater(a: f32, b: f32) -> f32 {
    match UNORDERED {
        _ if a > b => a,
        Some(nan) if a.is_nan() || b.is_nan() => nan,
        _ => b,
    }
}

/// A skel has these kernels as a reference and little room: what takes many instructions a lane is called there.
impl Lanes for Scalar {
    type F = Eight;
    type I = Words;
    const ROWS: usize = 1;

    #[inline(always)]
    fn splat(self, value: f32) -> Eight {
        [value; LANES]
    }
    #[inline(always)]
    fn load(self, from: &Eight) -> Eight {
        *from
    }
    #[inline(always)]
    fn store(self, lanes: Eight, to: &mut Eight) {
        *to = lanes;
    }
    #[inline(always)]
    fn add(self, a: Eight, b: Eight) -> Eight {
        lanes!(i: a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Eight, b: Eight) -> Eight {
        lanes!(i: a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Eight, b: Eight) -> Eight {
        lanes!(i: a[i] * b[i])
    }
    #[cfg_attr(target_arch = "hexagon", inline(never))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(always))]
    fn div(self, a: Eight, b: Eight) -> Eight {
        lanes!(i: a[i] / b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: Eight, b: Eight, c: Eight) -> Eight {
        lanes!(i: a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn min(self, a: Eight, b: Eight) -> Eight {
        lanes!(i: lesser(a[i], b[i]))
    }
    #[inline(always)]
    fn max(self, a: Eight, b: Eight) -> Eight {
        lanes!(i: greater(a[i], b[i]))
    }
    #[inline(always)]
    fn where_negative(self, sign: Eight, a: Eight, b: Eight) -> Eight {
        lanes!(i: if sign[i].is_sign_negative() { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn unzip(self, a: Eight, b: Eight) -> (Eight, Eight) {
        let at = |i: usize| if i < LANES { a[i] } else { b[i - LANES] };
        (lanes!(i: at(2 * i)), lanes!(i: at(2 * i + 1)))
    }

    #[inline(always)]
    fn words(self, from: &[u8; 32]) -> Words {
        lanes!(i: u32::from_le_bytes([from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]]))
    }
    #[inline(always)]
    fn halfwords(self, from: &[u8; 16]) -> Words {
        lanes!(i: u32::from(u16::from_le_bytes([from[2 * i], from[2 * i + 1]])))
    }
    #[inline(always)]
    fn bytes(self, from: &[u8; 8]) -> Words {
        lanes!(i: u32::from(from[i]))
    }
    #[inline(always)]
    fn shl(self, a: Words, bits: u32) -> Words {
        lanes!(i: a[i] << bits)
    }
    #[inline(always)]
    fn shr(self, a: Words, bits: u32) -> Words {
        lanes!(i: a[i] >> bits)
    }
    #[inline(always)]
    fn sar(self, a: Words, bits: u32) -> Words {
        lanes!(i: (a[i].cast_signed() >> bits).cast_unsigned())
    }
    #[inline(always)]
    fn and(self, a: Words, mask: u32) -> Words {
        lanes!(i: a[i] & mask)
    }

    #[inline(always)]
    fn bits_to_float(self, a: Words) -> Eight {
        lanes!(i: f32::from_bits(a[i]))
    }
    #[inline(always)]
    fn float_to_bits(self, a: Eight) -> Words {
        lanes!(i: a[i].to_bits())
    }
    #[inline(always)]
    fn value(self, a: Words) -> Eight {
        lanes!(i: a[i].cast_signed() as f32)
    }
    #[cfg_attr(target_arch = "hexagon", inline(never))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(always))]
    fn half(self, a: Words) -> Eight {
        lanes!(i: f16::from_bits(a[i] as u16).to_f32())
    }
    #[cfg_attr(target_arch = "hexagon", inline(never))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(always))]
    fn lookup(self, low: Eight, high: Eight, a: Words) -> Eight {
        lanes!(i: {
            let entry = (a[i] & 7) as usize;
            if a[i] & 8 == 0 { low[entry] } else { high[entry] }
        })
    }
}

impl Kernels for Scalar {
    fn decode(&self, strip: Strip<'_>, tiles: Range<usize>, out: &mut [f32]) {
        decode::decode(*self, strip, tiles, out);
    }
    fn multiply(&self, x: Rows<'_>, weights: &[f32], out: Block<'_>, chain: Chain) {
        multiply::multiply(*self, x, weights, out, chain);
    }
    fn rms_norm(&self, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
        vector::rms_norm(*self, x, weight, epsilon, out);
    }
    fn swiglu(&self, gate: &[f32], up: &[f32], out: &mut [f32]) {
        vector::swiglu(*self, gate, up, out);
    }
    fn add_scaled(&self, factor: f32, x: &[f32], y: &mut [f32]) {
        vector::add_scaled(*self, factor, x, y);
    }
    fn scale(&self, factor: f32, x: &mut [f32]) {
        vector::scale(*self, factor, x);
    }
    fn rotate(&self, pairs: RopePairs, head: &mut [f32], cos: &[f32], sin: &[f32]) {
        vector::rotate(*self, pairs, head, cos, sin);
    }
    fn max(&self, x: &[f32]) -> f32 {
        vector::max(*self, x)
    }
    fn exp_sum(&self, x: &mut [f32], max: f32) -> f32 {
        vector::exp_sum(*self, x, max)
    }
    fn sum_exp(&self, x: &[f32], max: f32) -> f32 {
        vector::sum_exp(*self, x, max)
    }
}
