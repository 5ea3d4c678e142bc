//! Output tiles to rows of f32: each row pair's vector is widened, weighted, and added to two rows or written over them.
//!
//! A fence: rows are met by address, in the order of the routes.
//!
//! # Packets
//! A vector of 64 that is added takes 3 loads and 2 stores: 3 packets, as one holds a load and a store. Before they bind
//! the shift unit, which sums and roundings to f32 need (4), and the instructions: with the products, the factors, the rows'
//! addresses and the watch for saturation they are 19, and a packet has four, so 4.75. Below v79 the loop is written by
//! hand ([`steady`]) at 5, because the compiler pipelines no loop: it takes 9 for four pairs side by side.
//! Factors are kept as the unit holds them, so that a lane's word is enough and nothing is converted.

use super::hvx::{Q, V, add_qv, float, mul_q, splat_q, widen};
use super::tiles::watch;

/// Where the rows of a pair go, and what they are multiplied by on the way.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Aim {
    /// Bytes from the first row.
    pub rows: [usize; 2],
    /// The factors, as [`super::hvx::first_q`] gives them.
    pub factors: [u32; 2],
}

/// The two rows of an output vector, each times its factor.
#[must_use]
#[inline(always)]
pub fn weighted(halves: V, factors: [u32; 2]) -> [Q; 2] {
    let (a, b) = widen(halves);
    [mul_q(a, splat_q(factors[0])), mul_q(b, splat_q(factors[1]))]
}

/// Adds row pairs to the rows that `aims` name from `first` on, or writes them where `add` is not set. `seen` takes in the
/// magnitudes of `halves`.
///
/// # Panics
/// When there is not one aim a vector.
///
/// # Safety
/// The rows are different ones and stand at vectors' borders, and nobody else reads or writes them meanwhile.
pub unsafe fn scatter(halves: &[V], aims: &[Aim], first: *mut V, add: bool, seen: &mut V) {
    assert!(halves.len() == aims.len(), "an aim a vector");
    // SAFETY: the caller's contract.
    let done = if add { unsafe { added(halves, aims, first, seen) } } else { 0 };
    if done < halves.len() {
        // SAFETY: the caller's contract.
        unsafe { one_by_one(&halves[done..], &aims[done..], first, add, seen) };
    }
}

/// Adds or writes pairs one by one. Not inlined, for the sake of callers that only ever take the loop by hand.
///
/// # Safety
/// As [`scatter`].
#[inline(never)]
unsafe fn one_by_one(halves: &[V], aims: &[Aim], first: *mut V, add: bool, seen: &mut V) {
    for (&halves, aim) in halves.iter().zip(aims) {
        *seen = watch(*seen, halves);
        let rows = aim.rows.map(|bytes| first.wrapping_byte_add(bytes));
        for (row, product) in rows.into_iter().zip(weighted(halves, aim.factors)) {
            // SAFETY: the caller's contract.
            unsafe { *row = float(if add { add_qv(product, *row) } else { product }) };
        }
    }
}

/// Adds as many pairs as the loop by hand takes, and returns how many: none where there is no such loop.
#[cfg(any(not(target_arch = "hexagon"), target_feature = "hvxv79"))]
const unsafe fn added(_: &[V], _: &[Aim], _: *mut V, _: &mut V) -> usize {
    0
}

/// # Safety
/// As [`scatter`].
#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
unsafe fn added(halves: &[V], aims: &[Aim], first: *mut V, seen: &mut V) -> usize {
    if halves.len() < 2 {
        return 0;
    }
    // SAFETY: there are at least two pairs, as many aims, and the caller's contract.
    unsafe { steady(halves.as_ptr(), aims.as_ptr(), halves.len() as u32, first, seen) };
    halves.len()
}

/// The loop: packets of pair i (by dashes) and of the next one, whose inputs are read an iteration ahead. A product, a sum
/// or a rounding is used two packets after it.
///
/// ```text
/// product of row b -   addresses -       factors           load of halves
/// factors              factors           load, sum of a -
/// widen                magnitudes        load, sum of b -
/// rounding of a -      store -           largest           rows
/// rounding of b -      store -           product of row a
/// ```
/// Alone in its function for the hardware loop's sake, as the decoder's ([`super::steady`]).
///
/// # Safety
/// As [`scatter`], for `count` pairs, which are at least two.
#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
#[inline(never)]
unsafe fn steady(halves: *const V, aims: *const Aim, count: u32, first: *mut V, seen: &mut V) {
    use super::hvx::{splat, splat_h};
    let mut largest = seen.vector();
    // SAFETY: the loads and stores are those of the contract; every register written is an operand or given up, but for
    // the hardware loop's, which nobody else uses in this function.
    unsafe {
        core::arch::asm!(
            "{{ r5:4 = memd({t}+#0) ; v0 = vmem({h}++#1) }}",
            "{{ r9:8 = memd({t}+#8) ; {t} = add({t},#16) }}",
            "{{ v3:2.qf32 = vmpy(v0.hf,v15.hf) ; v1 = vand(v0,v14) }}",
            "{{ v4 = vsplat(r8) ; v5 = vsplat(r9) }}",
            "loop0(1f,{n})",
            "{{ v6.qf32 = vmpy(v2.qf32,v4.qf32) ; v13.uh = vmax(v13.uh,v1.uh) }}",
            "1:",
            "{{ v7.qf32 = vmpy(v3.qf32,v5.qf32) ; r7:6 = vaddw(r5:4,r3:2) ; r9:8 = memd({t}+#8) ; v0 = vmem({h}++#1) }}",
            "{{ v4 = vsplat(r8) ; v5 = vsplat(r9) ; v16.tmp = vmem(r6+#0) ; v8.qf32 = vadd(v6.qf32,v16.sf) }}",
            "{{ v3:2.qf32 = vmpy(v0.hf,v15.hf) ; v1 = vand(v0,v14) ; v16.tmp = vmem(r7+#0) ; v9.qf32 = vadd(v7.qf32,v16.sf) }}",
            "{{ v10.sf = v8.qf32 ; vmem(r6+#0) = v10.new ; v13.uh = vmax(v13.uh,v1.uh) ; r5:4 = memd({t}++#16) }}",
            "{{ v10.sf = v9.qf32 ; vmem(r7+#0) = v10.new ; v6.qf32 = vmpy(v2.qf32,v4.qf32) }}:endloop0",
            "{{ v7.qf32 = vmpy(v3.qf32,v5.qf32) ; r7:6 = vaddw(r5:4,r3:2) }}",
            "{{ v16.tmp = vmem(r6+#0) ; v8.qf32 = vadd(v6.qf32,v16.sf) }}",
            "{{ v16.tmp = vmem(r7+#0) ; v9.qf32 = vadd(v7.qf32,v16.sf) }}",
            "{{ v10.sf = v8.qf32 ; vmem(r6+#0) = v10.new }}",
            "{{ v10.sf = v9.qf32 ; vmem(r7+#0) = v10.new }}",
            h = inout(reg) halves => _,
            t = inout(reg) aims => _,
            n = in(reg) count - 1,
            in("r2") first,
            in("r3") first,
            in("v14") splat(0x7fff_7fff).vector(),
            in("v15") splat_h(0x3c00).vector(),
            inout("v13") largest,
            out("r4") _, out("r5") _, out("r6") _, out("r7") _, out("r8") _, out("r9") _,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v7") _,
            out("v8") _, out("v9") _, out("v10") _, out("v16") _,
            options(nostack)
        );
    }
    *seen = V::of(largest);
}
