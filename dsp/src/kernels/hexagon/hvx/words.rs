//! The face on Hexagon: one function, one instruction (two where a predicate lies between).
//!
//! Below v79 floats go through qfloat: a [`Q`] is the unit's internal format, which has no bits to look at, and is
//! brought back by [`float`] or [`narrow`]. From v79 on the IEEE forms exist and a [`Q`] is a plain f32.

use core::arch::asm;
use core::arch::hexagon::v128::*;

/// A vector of 128 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct V(HvxVector);

impl V {
    /// The register's value, for words written by hand.
    #[must_use]
    #[inline(always)]
    pub const fn vector(self) -> HvxVector {
        self.0
    }

    /// A register's value.
    #[must_use]
    #[inline(always)]
    pub const fn of(vector: HvxVector) -> Self {
        Self(vector)
    }
}

/// 32 floats in the unit's own format.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Q(HvxVector);

impl Q {
    /// The register's value, for words written by hand.
    #[must_use]
    #[inline(always)]
    pub const fn vector(self) -> HvxVector {
        self.0
    }
}

/// Defines functions of one instruction each.
macro_rules! words {
    ($($(#[$doc:meta])* fn $name:ident($($a:ident: $t:ty),*) -> $r:ty = $e:expr;)+) => {
        $($(#[$doc])*
        #[must_use]
        #[inline(always)]
        pub fn $name($($a: $t),*) -> $r {
            // SAFETY: the instruction reads and writes registers only, and the target has the vector unit.
            unsafe { $e }
        })+
    };
}

/// The two vectors of a pair, low first.
#[inline(always)]
fn split(pair: HvxVectorPair) -> (V, V) {
    // SAFETY: registers only.
    unsafe { (V(q6_v_lo_w(pair)), V(q6_v_hi_w(pair))) }
}

words! {
    /// All bits zero.
    fn zero() -> V = V(q6_v_vzero());
    /// A word in all lanes.
    fn splat(word: u32) -> V = V(q6_v_vsplat_r(word.cast_signed()));
    /// A halfword in all lanes.
    fn splat_h(half: u16) -> V = V(q6_vh_vsplat_r(i32::from(half)));
    /// A byte in all lanes.
    fn splat_b(byte: u8) -> V = V(q6_vb_vsplat_r(i32::from(byte)));
    /// Bitwise and.
    fn and(a: V, b: V) -> V = V(q6_v_vand_vv(a.0, b.0));
    /// Bitwise or.
    fn or(a: V, b: V) -> V = V(q6_v_vor_vv(a.0, b.0));
    /// Bitwise exclusive or.
    fn xor(a: V, b: V) -> V = V(q6_v_vxor_vv(a.0, b.0));
    /// Words, sum.
    fn add_w(a: V, b: V) -> V = V(q6_vw_vadd_vwvw(a.0, b.0));
    /// Words, difference.
    fn sub_w(a: V, b: V) -> V = V(q6_vw_vsub_vwvw(a.0, b.0));
    /// Bytes, difference.
    fn sub_b(a: V, b: V) -> V = V(q6_vb_vsub_vbvb(a.0, b.0));
    /// Words, to the left.
    fn shl_w(a: V, bits: u32) -> V = V(q6_vw_vasl_vwr(a.0, bits.cast_signed()));
    /// Words, to the right, zeros in.
    fn shr_w(a: V, bits: u32) -> V = V(q6_vuw_vlsr_vuwr(a.0, bits.cast_signed()));
    /// Bytes, to the right, zeros in.
    fn shr_b(a: V, bits: u32) -> V = V(q6_vub_vlsr_vubr(a.0, bits.cast_signed()));
    /// Signed words, the larger.
    fn max_w(a: V, b: V) -> V = V(q6_vw_vmax_vwvw(a.0, b.0));
    /// Unsigned halfwords, the larger.
    fn max_uh(a: V, b: V) -> V = V(q6_vuh_vmax_vuhvuh(a.0, b.0));
    /// The vector with another first word.
    fn insert_w(v: V, word: u32) -> V = V(q6_vw_vinsert_vwr(v.0, word.cast_signed()));
    /// The vector turned towards lane 0 by `bytes`.
    fn rotate(v: V, bytes: u32) -> V = V(q6_v_vror_vr(v.0, bytes.cast_signed()));
    /// Entry b mod 16 of table `number` of the four that a vector holds: even bytes, odd bytes. Table 0 is the low halves
    /// of the first sixteen words, 1 those of the others, 2 and 3 the high halves.
    fn lookup_in(bytes: V, tables: V, number: u32) -> (V, V) =
        split(q6_wh_vlut16_vbvhr_nomatch(bytes.0, tables.0, number.cast_signed()));
    /// Halfwords, sum.
    fn add_h(a: V, b: V) -> V = V(q6_vh_vadd_vhvh(a.0, b.0));
    /// Unsigned halfwords, sum or the largest there is.
    fn add_uh(a: V, b: V) -> V = V(q6_vuh_vadd_vuhvuh_sat(a.0, b.0));
    /// Unsigned halfwords, difference or 0.
    fn sub_uh(a: V, b: V) -> V = V(q6_vuh_vsub_vuhvuh_sat(a.0, b.0));
    /// Signed halfwords as fractions of 2^15, product, rounded and held in range.
    fn mul_h(a: V, b: V) -> V = V(q6_vh_vmpy_vhvh_s1_rnd_sat(a.0, b.0));
    /// Halfwords, to the left.
    fn shl_h(a: V, bits: u32) -> V = V(q6_vh_vasl_vhr(a.0, bits.cast_signed()));
    /// Signed halfwords, to the right.
    fn sar_h(a: V, bits: u32) -> V = V(q6_vh_vasr_vhr(a.0, bits.cast_signed()));
    /// The high bytes of halfwords: `low`'s in the even bytes, `high`'s in the odd ones.
    fn high_bytes(low: V, high: V) -> V = V(q6_vb_vshuffo_vbvb(high.0, low.0));
    /// Halves as signed halfwords, towards zero.
    fn whole_h(v: V) -> V = V(q6_vh_equals_vhf(v.0));
    /// Signed bytes to halfwords: even bytes, odd bytes.
    fn widen_b(v: V) -> (V, V) = split(q6_wh_vsxt_vb(v.0));
    /// Unsigned bytes to halfwords in order: the first 64, the last 64.
    fn unpack_ub(v: V) -> (V, V) = split(q6_wuh_vunpack_vub(v.0));
    /// Signed bytes to halfwords in order.
    fn unpack_b(v: V) -> (V, V) = split(q6_wh_vunpack_vb(v.0));
    /// Signed halfwords to words in order: the first 32, the last 32.
    fn unpack_h(v: V) -> (V, V) = split(q6_ww_vunpack_vh(v.0));
    /// The even halfwords of `low` and `high` in turns.
    fn even_halves(low: V, high: V) -> V = V(q6_vh_vshuffe_vhvh(high.0, low.0));
    /// The odd halfwords of `low` and `high` in turns.
    fn odd_halves(low: V, high: V) -> V = V(q6_vh_vshuffo_vhvh(high.0, low.0));
    /// Halfwords of `low` and `high` in turns.
    fn interleave_h(low: V, high: V) -> (V, V) = split(q6_w_vshuff_vvr(high.0, low.0, -2));
    /// Words of `low` and `high` in turns.
    fn interleave_w(low: V, high: V) -> (V, V) = split(q6_w_vshuff_vvr(high.0, low.0, -4));
    /// The even and the odd words of `low` and `high`.
    fn deal_w(low: V, high: V) -> (V, V) = split(q6_w_vdeal_vvr(high.0, low.0, -4));
    /// Signed halfwords as halves, rounded.
    fn half_of_h(v: V) -> V = V(q6_vhf_equals_vh(v.0));
    /// Signed words as floats, rounded.
    fn float_of_w(v: V) -> V = V(q6_vsf_equals_vw(v.0));
    /// Halves, the larger.
    fn max_hf(a: V, b: V) -> V = V(q6_vhf_vmax_vhfvhf(a.0, b.0));
    /// Floats, the larger.
    fn max_sf(a: V, b: V) -> V = V(q6_vsf_vmax_vsfvsf(a.0, b.0));
    /// Floats, the smaller.
    fn min_sf(a: V, b: V) -> V = V(q6_vsf_vmin_vsfvsf(a.0, b.0));
}

#[cfg(not(target_feature = "hvxv79"))]
words! {
    /// Halves, product: of the even ones, of the odd ones.
    fn mul_hf(a: V, b: V) -> (Q, Q) = {
        let (even, odd) = split(q6_wqf32_vmpy_vhfvhf(a.0, b.0));
        (Q(even.0), Q(odd.0))
    };
    /// Floats to halves, rounded once: `low` to the even ones, `high` to the odd ones.
    fn narrow(low: Q, high: Q) -> V = V(q6_vhf_equals_wqf32(q6_w_vcombine_vv(high.0, low.0)));
    /// Back to plain floats, rounded.
    fn float(q: Q) -> V = V(q6_vsf_equals_vqf32(q.0));
    /// Plain floats, product.
    fn mul(a: V, b: V) -> Q = Q(q6_vqf32_vmpy_vsfvsf(a.0, b.0));
    /// Product.
    fn mul_q(a: Q, b: Q) -> Q = Q(q6_vqf32_vmpy_vqf32vqf32(a.0, b.0));
    /// Plain floats, sum.
    fn add(a: V, b: V) -> Q = Q(q6_vqf32_vadd_vsfvsf(a.0, b.0));
    /// Sum.
    fn add_q(a: Q, b: Q) -> Q = Q(q6_vqf32_vadd_vqf32vqf32(a.0, b.0));
    /// Sum with plain floats.
    fn add_qv(a: Q, b: V) -> Q = Q(q6_vqf32_vadd_vqf32vsf(a.0, b.0));
    /// Plain floats, difference.
    fn sub(a: V, b: V) -> Q = Q(q6_vqf32_vsub_vsfvsf(a.0, b.0));
}

#[cfg(target_feature = "hvxv79")]
words! {
    /// Halves, product: of the even ones, of the odd ones.
    fn mul_hf(a: V, b: V) -> (Q, Q) = {
        let (even, odd) = split(q6_wsf_vmpy_vhfvhf(a.0, b.0));
        (Q(even.0), Q(odd.0))
    };
    /// Floats to halves, rounded once: `low` to the even ones, `high` to the odd ones.
    fn narrow(low: Q, high: Q) -> V = V(q6_vhf_vcvt_vsfvsf(low.0, high.0));
    /// Plain floats, product.
    fn mul(a: V, b: V) -> Q = Q(q6_vsf_vmpy_vsfvsf(a.0, b.0));
    /// Product.
    fn mul_q(a: Q, b: Q) -> Q = Q(q6_vsf_vmpy_vsfvsf(a.0, b.0));
    /// Plain floats, sum.
    fn add(a: V, b: V) -> Q = Q(q6_vsf_vadd_vsfvsf(a.0, b.0));
    /// Sum.
    fn add_q(a: Q, b: Q) -> Q = Q(q6_vsf_vadd_vsfvsf(a.0, b.0));
    /// Sum with plain floats.
    fn add_qv(a: Q, b: V) -> Q = Q(q6_vsf_vadd_vsfvsf(a.0, b.0));
    /// Plain floats, difference.
    fn sub(a: V, b: V) -> Q = Q(q6_vsf_vsub_vsfvsf(a.0, b.0));
}

/// Back to plain floats, which a [`Q`] is.
#[cfg(target_feature = "hvxv79")]
#[must_use]
#[inline(always)]
pub const fn float(q: Q) -> V {
    V(q.0)
}

/// `a` where `x > y` as signed words, else `b`. By hand: LLVM 22 cannot select the intrinsics that predicates go through.
#[must_use]
#[inline(always)]
pub fn where_gt_w(x: V, y: V, a: V, b: V) -> V {
    let chosen: HvxVector;
    // SAFETY: registers only, and the predicate is given up.
    unsafe {
        asm!(
            "q0 = vcmp.gt({x}.w,{y}.w)",
            "{d} = vmux(q0,{a},{b})",
            x = in(vreg) x.0,
            y = in(vreg) y.0,
            a = in(vreg) a.0,
            b = in(vreg) b.0,
            d = out(vreg) chosen,
            out("q0") _,
            options(pure, nomem, nostack)
        );
    }
    V(chosen)
}

/// The byte `value[i mod 4]` where `v` has a bit of `mask[i mod 4]` set in byte i, else 0. By hand as [`where_gt_w`].
#[must_use]
#[inline(always)]
pub fn bits_to_bytes(v: V, mask: u32, value: u32) -> V {
    let bytes: HvxVector;
    // SAFETY: registers only, and the predicate is given up.
    unsafe {
        asm!(
            "q0 = vand({v},{m})",
            "{d} = vand(q0,{w})",
            v = in(vreg) v.0,
            m = in(reg) mask,
            w = in(reg) value,
            d = out(vreg) bytes,
            out("q0") _,
            options(pure, nomem, nostack)
        );
    }
    V(bytes)
}

/// Words from memory, wherever they begin.
#[must_use]
#[inline(always)]
pub fn load(from: &[f32; 32]) -> V {
    // SAFETY: the array is 128 bytes, and the read asks for no alignment.
    V(unsafe { core::ptr::from_ref(from).cast::<HvxVector>().read_unaligned() })
}

/// Words to memory, wherever they begin.
#[inline(always)]
pub fn store(v: V, to: &mut [f32; 32]) {
    // SAFETY: the array is 128 bytes, and the write asks for no alignment.
    unsafe { core::ptr::from_mut(to).cast::<HvxVector>().write_unaligned(v.0) }
}

/// The first lane's bits as the unit holds it, for [`splat_q`].
#[must_use]
#[inline(always)]
pub fn first_q(q: Q) -> u32 {
    to_words(V(q.0))[0]
}

/// All lanes' bits as the unit holds them, for [`splat_q`].
#[must_use]
#[inline(always)]
pub fn words_q(q: Q) -> [u32; 32] {
    to_words(V(q.0))
}

/// What [`first_q`] gave, in all lanes.
#[must_use]
#[inline(always)]
pub fn splat_q(bits: u32) -> Q {
    Q(splat(bits).0)
}

/// The vector as words.
#[must_use]
#[inline(always)]
pub fn to_words(v: V) -> [u32; 32] {
    // SAFETY: both are 128 plain bytes.
    unsafe { core::mem::transmute(v.0) }
}

/// The words as a vector.
#[must_use]
#[inline(always)]
pub fn from_words(words: [u32; 32]) -> V {
    // SAFETY: both are 128 plain bytes.
    V(unsafe { core::mem::transmute::<[u32; 32], HvxVector>(words) })
}
