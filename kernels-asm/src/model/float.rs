//! HVX floating point on register values: a typed function for each instruction, and [`execute`] for a decoded form.
//!
//! The lanes' arithmetic is in [`ieee`], [`qf`] and [`f8`]; this module knows how lanes meet. A pair is low vector first.
//! A halfword operand that yields words gives even halfwords in the low vector and odd ones in the high; the other way
//! round the first operand fills the even halfwords. `vcvt` between bytes and halfwords keeps neighbours together, `vcvt2`
//! deals even and odd bytes (lane orders: the instruction definitions of Qualcomm's QEMU fork).
//!
//! All functions are pure and total: there is no rounding mode, no flag and no trap in these models.

mod execute;
pub mod f8;
pub mod ieee;
mod lanes;
pub mod qf;

pub use execute::{Operands, execute};

use lanes::{
    EVEN_ODD, NEIGHBOURS, compare_halfwords, compare_words, halfwords, halfwords2, halves, narrow_bytes2,
    narrow2, widen, widen_bytes, widen2, words, words2,
};

/// A vector register: 128 bytes as little-endian words.
pub type Vector = [u32; 32];
/// Two vectors, the low one first.
pub type Pair = [Vector; 2];
/// A predicate register as `Vd=vand(Qu,Rt)` stores it with Rt = −1: each byte all ones or zero.
pub type Predicate = Vector;

macro_rules! functions {
    ($($(#[$doc:meta])+ $name:ident($($operand:ident),+) -> $result:ident = $lanes:ident($lane:path $(, $extra:expr)?);)*) => {
        $(
            $(#[$doc])+
            #[must_use]
            pub fn $name($($operand: &Vector),+) -> $result {
                $lanes($($operand),+ $(, $extra)?, $lane)
            }
        )*
    };
}

functions! {
    /// `Vd.sf=vadd(Vu.sf,Vv.sf)`
    sf_add(u, v) -> Vector = words2(ieee::sf_add);
    /// `Vd.sf=vsub(Vu.sf,Vv.sf)`
    sf_sub(u, v) -> Vector = words2(ieee::sf_sub);
    /// `Vd.sf=vmpy(Vu.sf,Vv.sf)`
    sf_mpy(u, v) -> Vector = words2(ieee::sf_mpy);
    /// `Vd.sf=vmax(Vu.sf,Vv.sf)`
    sf_max(u, v) -> Vector = words2(ieee::sf_max);
    /// `Vd.sf=vmin(Vu.sf,Vv.sf)`
    sf_min(u, v) -> Vector = words2(ieee::sf_min);
    /// `Vd.sf=vfmax(Vu.sf,Vv.sf)`
    sf_fmax(u, v) -> Vector = words2(ieee::sf_fmax);
    /// `Vd.sf=vfmin(Vu.sf,Vv.sf)`
    sf_fmin(u, v) -> Vector = words2(ieee::sf_fmin);
    /// `Vd.hf=vadd(Vu.hf,Vv.hf)`
    hf_add(u, v) -> Vector = halfwords2(ieee::hf_add);
    /// `Vd.hf=vsub(Vu.hf,Vv.hf)`
    hf_sub(u, v) -> Vector = halfwords2(ieee::hf_sub);
    /// `Vd.hf=vmpy(Vu.hf,Vv.hf)`
    hf_mpy(u, v) -> Vector = halfwords2(ieee::hf_mpy);
    /// `Vd.hf=vmax(Vu.hf,Vv.hf)`
    hf_max(u, v) -> Vector = halfwords2(ieee::hf_max);
    /// `Vd.hf=vmin(Vu.hf,Vv.hf)`
    hf_min(u, v) -> Vector = halfwords2(ieee::hf_min);
    /// `Vd.hf=vfmax(Vu.hf,Vv.hf)`
    hf_fmax(u, v) -> Vector = halfwords2(ieee::hf_fmax);
    /// `Vd.hf=vfmin(Vu.hf,Vv.hf)`
    hf_fmin(u, v) -> Vector = halfwords2(ieee::hf_fmin);
    /// `Vd.bf=vmax(Vu.bf,Vv.bf)`
    bf_max(u, v) -> Vector = halfwords2(ieee::bf_max);
    /// `Vd.bf=vmin(Vu.bf,Vv.bf)`
    bf_min(u, v) -> Vector = halfwords2(ieee::bf_min);
    /// `Vdd.sf=vadd(Vu.hf,Vv.hf)`
    sf_pair_add_hf_hf(u, v) -> Pair = widen2(ieee::sf_add_hf_hf);
    /// `Vdd.sf=vsub(Vu.hf,Vv.hf)`
    sf_pair_sub_hf_hf(u, v) -> Pair = widen2(ieee::sf_sub_hf_hf);
    /// `Vdd.sf=vmpy(Vu.hf,Vv.hf)`
    sf_pair_mpy_hf_hf(u, v) -> Pair = widen2(ieee::sf_mpy_hf_hf);

    /// `Qd=vcmp.gt(Vu.sf,Vv.sf)`
    sf_gt(u, v) -> Predicate = compare_words(ieee::sf_gt);
    /// `Qd=vcmp.gt(Vu.hf,Vv.hf)`
    hf_gt(u, v) -> Predicate = compare_halfwords(ieee::hf_gt);
    /// `Qd=vcmp.gt(Vu.bf,Vv.bf)`
    bf_gt(u, v) -> Predicate = compare_halfwords(ieee::bf_gt);
    /// `Qd=vcmp.eq(Vu.sf,Vv.sf)`
    sf_eq(u, v) -> Predicate = compare_words(ieee::sf_eq);
    /// `Qd=vcmp.eq(Vu.hf,Vv.hf)`
    hf_eq(u, v) -> Predicate = compare_halfwords(ieee::hf_eq);

    /// `Vdd.sf=vcvt(Vu.hf)`
    sf_pair_from_hf(u) -> Pair = widen(ieee::sf_from_hf);
    /// `Vd.hf=vcvt(Vu.sf,Vv.sf)`: `u` in the even halfwords.
    hf_from_sf_sf(u, v) -> Vector = narrow2(ieee::hf_from_sf);
    /// `Vd.bf=vcvt(Vu.sf,Vv.sf)`: `u` in the even halfwords.
    bf_from_sf_sf(u, v) -> Vector = narrow2(ieee::bf_from_sf);
    /// `Vd.w=Vu.sf`, towards zero.
    w_from_sf(u) -> Vector = words(ieee::w_from_sf);
    /// `Vd.sf=Vu.w`
    sf_from_w(u) -> Vector = words(ieee::sf_from_w);
    /// `Vd.h=Vu.hf`, towards zero.
    h_from_hf(u) -> Vector = halfwords(ieee::h_from_hf);
    /// `Vd.hf=Vu.h`, and `Vd.hf=vcvt(Vu.h)`
    hf_from_h(u) -> Vector = halfwords(ieee::hf_from_h);
    /// `Vd.hf=vcvt(Vu.uh)`
    hf_from_uh(u) -> Vector = halfwords(ieee::hf_from_uh);
    /// `Vd.h=vcvt(Vu.hf)`, nearest; also `Vd.h=Vu.hf:rnd`
    h_from_hf_nearest(u) -> Vector = halfwords(ieee::h_from_hf_nearest);
    /// `Vd.uh=vcvt(Vu.hf)`, nearest.
    uh_from_hf_nearest(u) -> Vector = halfwords(ieee::uh_from_hf_nearest);
    /// `Vdd.hf=vcvt2(Vu.b)`: even bytes in the low vector.
    hf_pair_from_b_even_odd(u) -> Pair = widen_bytes(hf_from_b, EVEN_ODD);
    /// `Vdd.hf=vcvt2(Vu.ub)`: even bytes in the low vector.
    hf_pair_from_ub_even_odd(u) -> Pair = widen_bytes(hf_from_ub, EVEN_ODD);
    /// `Vdd.hf=vcvt(Vu.b)`: bytes 0 and 1 of each word in the low vector.
    hf_pair_from_b(u) -> Pair = widen_bytes(hf_from_b, NEIGHBOURS);
    /// `Vdd.hf=vcvt(Vu.ub)`: bytes 0 and 1 of each word in the low vector.
    hf_pair_from_ub(u) -> Pair = widen_bytes(hf_from_ub, NEIGHBOURS);
    /// `Vd.b=vcvt(Vu.hf,Vv.hf)`, nearest.
    b_from_hf_hf(u, v) -> Vector = narrow_bytes2(ieee::b_from_hf_nearest, NEIGHBOURS);
    /// `Vd.ub=vcvt(Vu.hf,Vv.hf)`, nearest.
    ub_from_hf_hf(u, v) -> Vector = narrow_bytes2(ieee::ub_from_hf_nearest, NEIGHBOURS);

    /// `Vd.qf32=vadd(Vu.sf,Vv.sf)`
    qf32_add_sf_sf(u, v) -> Vector = words2(qf::qf32_add_sf_sf);
    /// `Vd.qf32=vadd(Vu.qf32,Vv.sf)`
    qf32_add_qf32_sf(u, v) -> Vector = words2(qf::qf32_add_qf32_sf);
    /// `Vd.qf32=vadd(Vu.qf32,Vv.qf32)`
    qf32_add_qf32_qf32(u, v) -> Vector = words2(qf::qf32_add_qf32_qf32);
    /// `Vd.qf32=vsub(Vu.sf,Vv.sf)`
    qf32_sub_sf_sf(u, v) -> Vector = words2(qf::qf32_sub_sf_sf);
    /// `Vd.qf32=vsub(Vu.qf32,Vv.sf)`
    qf32_sub_qf32_sf(u, v) -> Vector = words2(qf::qf32_sub_qf32_sf);
    /// `Vd.qf32=vsub(Vu.qf32,Vv.qf32)`
    qf32_sub_qf32_qf32(u, v) -> Vector = words2(qf::qf32_sub_qf32_qf32);
    /// `Vd.qf32=vmpy(Vu.sf,Vv.sf)`
    qf32_mpy_sf_sf(u, v) -> Vector = words2(qf::qf32_mpy_sf_sf);
    /// `Vd.qf32=vmpy(Vu.qf32,Vv.qf32)`
    qf32_mpy_qf32_qf32(u, v) -> Vector = words2(qf::qf32_mpy_qf32_qf32);
    /// `Vdd.qf32=vmpy(Vu.hf,Vv.hf)`
    qf32_pair_mpy_hf_hf(u, v) -> Pair = widen2(qf::qf32_mpy_hf_hf);
    /// `Vdd.qf32=vmpy(Vu.qf16,Vv.hf)`
    qf32_pair_mpy_qf16_hf(u, v) -> Pair = widen2(qf::qf32_mpy_qf16_hf);
    /// `Vdd.qf32=vmpy(Vu.qf16,Vv.qf16)`
    qf32_pair_mpy_qf16_qf16(u, v) -> Pair = widen2(qf::qf32_mpy_qf16_qf16);
    /// `Vd.qf16=vadd(Vu.hf,Vv.hf)`
    qf16_add_hf_hf(u, v) -> Vector = halfwords2(qf::qf16_add_hf_hf);
    /// `Vd.qf16=vadd(Vu.qf16,Vv.hf)`
    qf16_add_qf16_hf(u, v) -> Vector = halfwords2(qf::qf16_add_qf16_hf);
    /// `Vd.qf16=vadd(Vu.qf16,Vv.qf16)`
    qf16_add_qf16_qf16(u, v) -> Vector = halfwords2(qf::qf16_add_qf16_qf16);
    /// `Vd.qf16=vsub(Vu.hf,Vv.hf)`
    qf16_sub_hf_hf(u, v) -> Vector = halfwords2(qf::qf16_sub_hf_hf);
    /// `Vd.qf16=vsub(Vu.qf16,Vv.hf)`
    qf16_sub_qf16_hf(u, v) -> Vector = halfwords2(qf::qf16_sub_qf16_hf);
    /// `Vd.qf16=vsub(Vu.qf16,Vv.qf16)`
    qf16_sub_qf16_qf16(u, v) -> Vector = halfwords2(qf::qf16_sub_qf16_qf16);
    /// `Vd.qf16=vmpy(Vu.hf,Vv.hf)`
    qf16_mpy_hf_hf(u, v) -> Vector = halfwords2(qf::qf16_mpy_hf_hf);
    /// `Vd.qf16=vmpy(Vu.qf16,Vv.hf)`
    qf16_mpy_qf16_hf(u, v) -> Vector = halfwords2(qf::qf16_mpy_qf16_hf);
    /// `Vd.qf16=vmpy(Vu.qf16,Vv.qf16)`
    qf16_mpy_qf16_qf16(u, v) -> Vector = halfwords2(qf::qf16_mpy_qf16_qf16);
    /// `Vd.sf=Vu.qf32`
    sf_from_qf32(u) -> Vector = words(qf::sf_from_qf32);
    /// `Vd.hf=Vu.qf16`
    hf_from_qf16(u) -> Vector = halfwords(qf::hf_from_qf16);
}

/// `Vd.hf=Vuu.qf32`: the low vector in the even halfwords.
#[must_use]
pub fn hf_from_qf32_pair(u: &Pair) -> Vector {
    narrow2(&u[0], &u[1], qf::hf_from_qf32)
}

/// `Vx.hf+=vmpy(Vu.hf,Vv.hf)`
#[must_use]
pub fn hf_mpy_acc(x: &Vector, u: &Vector, v: &Vector) -> Vector {
    core::array::from_fn(|i| {
        let ([x0, x1], [u0, u1], [v0, v1]) = (halves(x[i]), halves(u[i]), halves(v[i]));
        lanes::word([ieee::hf_mpy_acc(x0, u0, v0), ieee::hf_mpy_acc(x1, u1, v1)])
    })
}

/// `Vxx.sf+=vmpy(Vu.hf,Vv.hf)`
#[must_use]
pub fn sf_pair_mpy_acc_hf_hf(x: &Pair, u: &Vector, v: &Vector) -> Pair {
    accumulate_pair(x, u, v, ieee::sf_mpy_acc_hf_hf)
}

/// `Vd.sf=vdmpy(Vu.hf,Vv.hf)`
#[must_use]
pub fn sf_dmpy_hf_hf(u: &Vector, v: &Vector) -> Vector {
    words2(u, v, |u, v| ieee::sf_dmpy_hf_hf(halves(u), halves(v)))
}

/// `Vx.sf+=vdmpy(Vu.hf,Vv.hf)`
#[must_use]
pub fn sf_dmpy_acc_hf_hf(x: &Vector, u: &Vector, v: &Vector) -> Vector {
    core::array::from_fn(|i| ieee::sf_dmpy_acc_hf_hf(x[i], halves(u[i]), halves(v[i])))
}

/// `Vd.sf=vabs(Vu.sf)`
#[must_use]
pub fn sf_abs(u: &Vector) -> Vector {
    u.map(|u| u & 0x7fff_ffff)
}

/// `Vd.sf=vfneg(Vu.sf)`
#[must_use]
pub fn sf_neg(u: &Vector) -> Vector {
    u.map(|u| u ^ 0x8000_0000)
}

/// `Vd.hf=vabs(Vu.hf)`
#[must_use]
pub fn hf_abs(u: &Vector) -> Vector {
    u.map(|u| u & 0x7fff_7fff)
}

/// `Vd.hf=vfneg(Vu.hf)`
#[must_use]
pub fn hf_neg(u: &Vector) -> Vector {
    u.map(|u| u ^ 0x8000_8000)
}

fn accumulate_pair(x: &Pair, u: &Vector, v: &Vector, f: impl Fn(u32, u16, u16) -> u32) -> Pair {
    core::array::from_fn(|side| {
        core::array::from_fn(|i| f(x[side][i], halves(u[i])[side], halves(v[i])[side]))
    })
}

fn hf_from_b(byte: u8) -> u16 {
    ieee::hf_from_h(i16::from(byte as i8) as u16)
}

fn hf_from_ub(byte: u8) -> u16 {
    ieee::hf_from_uh(u16::from(byte))
}
