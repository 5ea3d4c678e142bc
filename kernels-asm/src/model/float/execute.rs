//! A decoded form on captured operands.

use super::lanes::{
    EVEN_ODD, bytes2, halfwords, narrow_bytes2, narrow2, widen_bytes, widen_bytes2, widen2, words, words2,
};
use super::{Pair, Predicate, Vector, accumulate_pair, f8, ieee, qf};
use crate::word::Float;

/// What a form reads, captured before its packet runs.
///
/// The layout is fixed, so that a stub can store registers straight into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(128))]
pub struct Operands {
    /// The first source; the low half only, if it is a vector.
    pub u: Pair,
    /// The second source. A scalar stands in element 0.
    pub v: Vector,
    /// The destination's old value, of accumulating forms: a pair, a vector or a [`Predicate`] in the low half.
    pub x: Pair,
}

/// The destination's new value: a pair, or a vector or a [`Predicate`] in the low half. None for forms that
/// [are not modelled](Float::is_modelled).
#[must_use]
pub fn execute(float: Float, operands: &Operands) -> Option<Pair> {
    use Float as F;
    let Operands { u: uu, v, x: xx } = operands;
    let (u, x) = (&uu[0], &xx[0]);
    let scalar = v[0];
    let vector = match float {
        F::AddSfSfSf => super::sf_add(u, v),
        F::SubSfSfSf => super::sf_sub(u, v),
        F::MpySfSfSf => super::sf_mpy(u, v),
        F::AddHfHfHf => super::hf_add(u, v),
        F::SubHfHfHf => super::hf_sub(u, v),
        F::MpyHfHfHf => super::hf_mpy(u, v),
        F::MpyAccHfHfHf => super::hf_mpy_acc(x, u, v),
        F::DmpySfHfHf => super::sf_dmpy_hf_hf(u, v),
        F::DmpyAccSfHfHf => super::sf_dmpy_acc_hf_hf(x, u, v),
        F::AddSfHfHf => return Some(super::sf_pair_add_hf_hf(u, v)),
        F::SubSfHfHf => return Some(super::sf_pair_sub_hf_hf(u, v)),
        F::MpySfHfHf => return Some(super::sf_pair_mpy_hf_hf(u, v)),
        F::MpyAccSfHfHf => return Some(super::sf_pair_mpy_acc_hf_hf(xx, u, v)),
        F::AddSfBfBf => return Some(bf_pair(u, v, ieee::sf_add)),
        F::SubSfBfBf => return Some(bf_pair(u, v, ieee::sf_sub)),
        F::MpySfBfBf => return Some(bf_pair(u, v, ieee::sf_mpy)),
        F::MpyAccSfBfBf => return Some(accumulate_pair(xx, u, v, ieee::sf_mpy_acc_bf_bf)),

        F::MaxSfSfSf => super::sf_max(u, v),
        F::MinSfSfSf => super::sf_min(u, v),
        F::MaxHfHfHf => super::hf_max(u, v),
        F::MinHfHfHf => super::hf_min(u, v),
        F::MaxBfBfBf => super::bf_max(u, v),
        F::MinBfBfBf => super::bf_min(u, v),
        F::FmaxSfSfSf => super::sf_fmax(u, v),
        F::FminSfSfSf => super::sf_fmin(u, v),
        F::FmaxHfHfHf => super::hf_fmax(u, v),
        F::FminHfHfHf => super::hf_fmin(u, v),
        F::AbsSfSf => super::sf_abs(u),
        F::FnegSfSf => super::sf_neg(u),
        F::AbsHfHf => super::hf_abs(u),
        F::FnegHfHf => super::hf_neg(u),

        F::GtSf => super::sf_gt(u, v),
        F::GtAndSf => and(x, &super::sf_gt(u, v)),
        F::GtOrSf => or(x, &super::sf_gt(u, v)),
        F::GtXorSf => xor(x, &super::sf_gt(u, v)),
        F::GtHf => super::hf_gt(u, v),
        F::GtAndHf => and(x, &super::hf_gt(u, v)),
        F::GtOrHf => or(x, &super::hf_gt(u, v)),
        F::GtXorHf => xor(x, &super::hf_gt(u, v)),
        F::GtBf => super::bf_gt(u, v),
        F::GtAndBf => and(x, &super::bf_gt(u, v)),
        F::GtOrBf => or(x, &super::bf_gt(u, v)),
        F::GtXorBf => xor(x, &super::bf_gt(u, v)),
        F::EqSf => super::sf_eq(u, v),
        F::EqAndSf => and(x, &super::sf_eq(u, v)),
        F::EqOrSf => or(x, &super::sf_eq(u, v)),
        F::EqXorSf => xor(x, &super::sf_eq(u, v)),
        F::EqHf => super::hf_eq(u, v),
        F::EqAndHf => and(x, &super::hf_eq(u, v)),
        F::EqOrHf => or(x, &super::hf_eq(u, v)),
        F::EqXorHf => xor(x, &super::hf_eq(u, v)),

        F::CvtSfHf => return Some(super::sf_pair_from_hf(u)),
        F::CvtHfSfSf => super::hf_from_sf_sf(u, v),
        F::CvtBfSfSf => super::bf_from_sf_sf(u, v),
        F::CvtHfH | F::HfFromH => super::hf_from_h(u),
        F::CvtHfUh => super::hf_from_uh(u),
        F::CvtHHf | F::HFromHfRnd => super::h_from_hf_nearest(u),
        F::CvtUhHf => super::uh_from_hf_nearest(u),
        F::HFromHf => super::h_from_hf(u),
        F::WFromSf => super::w_from_sf(u),
        F::SfFromW => super::sf_from_w(u),
        F::CvtHfB => return Some(super::hf_pair_from_b(u)),
        F::CvtHfUb => return Some(super::hf_pair_from_ub(u)),
        F::Cvt2HfB => return Some(super::hf_pair_from_b_even_odd(u)),
        F::Cvt2HfUb => return Some(super::hf_pair_from_ub_even_odd(u)),
        F::CvtBHfHf => super::b_from_hf_hf(u, v),
        F::CvtUbHfHf => super::ub_from_hf_hf(u, v),
        F::Cvt2BHfHf => narrow_bytes2(u, v, EVEN_ODD, ieee::b_from_hf_nearest),
        F::Cvt2UbHfHf => narrow_bytes2(u, v, EVEN_ODD, ieee::ub_from_hf_nearest),

        F::AddQf32SfSf => super::qf32_add_sf_sf(u, v),
        F::AddQf32Qf32Sf => super::qf32_add_qf32_sf(u, v),
        F::AddQf32Qf32Qf32 => super::qf32_add_qf32_qf32(u, v),
        F::SubQf32SfSf => super::qf32_sub_sf_sf(u, v),
        F::SubQf32Qf32Sf => super::qf32_sub_qf32_sf(u, v),
        F::SubQf32SfQf32 => words2(u, v, qf::qf32_sub_sf_qf32),
        F::SubQf32Qf32Qf32 => super::qf32_sub_qf32_qf32(u, v),
        F::MpyQf32SfSf => super::qf32_mpy_sf_sf(u, v),
        F::MpyQf32Qf32Qf32 => super::qf32_mpy_qf32_qf32(u, v),
        F::MpyRtQf32SfSf => words(u, |u| qf::qf32_mpy_sf_sf(u, scalar)),
        F::MpyQf32HfHf => return Some(super::qf32_pair_mpy_hf_hf(u, v)),
        F::MpyQf32Qf16Hf => return Some(super::qf32_pair_mpy_qf16_hf(u, v)),
        F::MpyQf32Qf16Qf16 => return Some(super::qf32_pair_mpy_qf16_qf16(u, v)),
        F::AddQf16HfHf => super::qf16_add_hf_hf(u, v),
        F::AddQf16Qf16Hf => super::qf16_add_qf16_hf(u, v),
        F::AddQf16Qf16Qf16 => super::qf16_add_qf16_qf16(u, v),
        F::SubQf16HfHf => super::qf16_sub_hf_hf(u, v),
        F::SubQf16Qf16Hf => super::qf16_sub_qf16_hf(u, v),
        F::SubQf16HfQf16 => super::halfwords2(u, v, qf::qf16_sub_hf_qf16),
        F::SubQf16Qf16Qf16 => super::qf16_sub_qf16_qf16(u, v),
        F::MpyQf16HfHf => super::qf16_mpy_hf_hf(u, v),
        F::MpyQf16Qf16Hf => super::qf16_mpy_qf16_hf(u, v),
        F::MpyQf16Qf16Qf16 => super::qf16_mpy_qf16_qf16(u, v),
        F::MpyRtQf16HfHf => super::qf16_mpy_hf_hf(u, &[scalar; 32]),
        F::MpyRtQf16Qf16Hf => super::qf16_mpy_qf16_hf(u, &[scalar; 32]),
        F::SfFromQf32 => super::sf_from_qf32(u),
        F::HfFromQf16 => super::hf_from_qf16(u),
        F::HfFromQf32 => super::hf_from_qf32_pair(uu),
        F::BfFromQf32 => narrow2(&uu[0], &uu[1], qf::bf_from_qf32),
        F::Qf32FromSf => words(u, |u| qf::qf32_add_sf_sf(u, 0)),
        F::Qf16FromHf => halfwords(u, |u| qf::qf16_add_hf_hf(u, 0)),
        // They drop the extension bits of v81's registers, which this model does not have.
        F::Qf32FromQf32 | F::Qf16FromQf16 => *u,
        F::NegQf32Sf => words(u, |u| qf::qf32_add_sf_sf(u ^ 0x8000_0000, 0)),
        F::NegQf32Qf32 => words(u, qf::qf32_neg),
        F::NegQf16Hf => halfwords(u, |u| qf::qf16_add_hf_hf(u ^ 0x8000, 0)),
        F::NegQf16Qf16 => halfwords(u, qf::qf16_neg),
        F::AbsQf32Sf => words(u, |u| qf::qf32_add_sf_sf(u & 0x7fff_ffff, 0)),
        F::AbsQf32Qf32 => words(u, qf::qf32_abs),
        F::AbsQf16Hf => halfwords(u, |u| qf::qf16_add_hf_hf(u & 0x7fff, 0)),
        F::AbsQf16Qf16 => halfwords(u, qf::qf16_abs),

        F::CvtHfF8 => return Some(widen_bytes(u, EVEN_ODD, f8::hf_from_f8)),
        F::CvtF8HfHf => narrow_bytes2(u, v, EVEN_ODD, f8::f8_from_hf),
        F::AddHfF8F8 => return Some(widen_bytes2(xx, u, v, |_, u, v| f8::hf_add_f8_f8(u, v))),
        F::SubHfF8F8 => return Some(widen_bytes2(xx, u, v, |_, u, v| f8::hf_sub_f8_f8(u, v))),
        F::MpyHfF8F8 => return Some(widen_bytes2(xx, u, v, |_, u, v| f8::hf_mpy_f8_f8(u, v))),
        F::MpyAccHfF8F8 => return Some(widen_bytes2(xx, u, v, f8::hf_mpy_acc_f8_f8)),
        F::FmaxF8F8F8 => bytes2(u, v, f8::fmax),
        F::FminF8F8F8 => bytes2(u, v, f8::fmin),
        F::AbsF8F8 => bytes2(u, u, |u, _| f8::abs(u)),
        F::FnegF8F8 => bytes2(u, u, |u, _| f8::neg(u)),

        F::SetExtension
        | F::GetExtension
        | F::GetExtensionOr
        | F::Merge
        | F::Ilog2WQf32
        | F::Ilog2WQf16
        | F::Ilog2WSf
        | F::Ilog2WHf
        | F::Qf16FromF8
        | F::F8FromQf16 => return None,
    };
    Some([vector, [0; 32]])
}

fn bf_pair(u: &Vector, v: &Vector, f: impl Fn(u32, u32) -> u32) -> Pair {
    widen2(u, v, |u, v| f(ieee::sf_from_bf(u), ieee::sf_from_bf(v)))
}

fn and(x: &Predicate, y: &Predicate) -> Predicate {
    words2(x, y, |x, y| x & y)
}

fn or(x: &Predicate, y: &Predicate) -> Predicate {
    words2(x, y, |x, y| x | y)
}

fn xor(x: &Predicate, y: &Predicate) -> Predicate {
    words2(x, y, |x, y| x ^ y)
}
