//! Rows of f32 into tiles of halves: the largest magnitude of a row, then two rows scaled and side by side.
//!
//! A fence: tiles are written by address, a vector in each.
//!
//! # Packets
//! A vector of 64 halves is made of two vectors, each of which is loaded twice and the result stored once: 4 packets.
//! Below v79 both loops are written by hand and take 1 packet a loaded vector, 4 a stored one; the compiler's, which are
//! not pipelined, take 1.5 and 3.6 with four vectors side by side.

use super::hvx::{V, and, max_w, splat, zero};
use super::tiles::pack;

/// Bits of an f32 but its sign.
const MAGNITUDE: u32 = 0x7fff_ffff;

/// The largest magnitudes of a row's lanes, as words.
#[must_use]
pub fn largest(row: &[V]) -> V {
    #[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
    if !row.is_empty() {
        // SAFETY: a row that is not empty, and its length.
        return unsafe { largest_steady(row.as_ptr(), row.len() as u32) };
    }
    row.iter().fold(zero(), |largest, &v| max_w(largest, and(v, splat(MAGNITUDE))))
}

/// Packs two rows, each times its power, vector i to `to` + i · `stride` bytes.
///
/// # Panics
/// When the rows are not of one length.
///
/// # Safety
/// There are as many vectors at `to`, and nobody else reads or writes them meanwhile.
pub unsafe fn pack_rows(rows: [&[V]; 2], powers: [V; 2], to: *mut V, stride: usize) {
    assert!(rows[0].len() == rows[1].len(), "rows of one length");
    // SAFETY: the caller's contract.
    let done = unsafe { packed(rows, powers, to, stride) };
    if done < rows[0].len() {
        // SAFETY: as above.
        unsafe {
            pack_rest(rows.map(|row| &row[done..]), powers, to.wrapping_byte_add(done * stride), stride)
        };
    }
}

/// Packs vectors one by one. Not inlined: where there is a loop by hand, a caller has no use for a second, unrolled one.
///
/// # Safety
/// As [`pack_rows`].
#[inline(never)]
unsafe fn pack_rest(rows: [&[V]; 2], powers: [V; 2], mut to: *mut V, stride: usize) {
    for (&a, &b) in rows[0].iter().zip(rows[1]) {
        // SAFETY: the caller's contract.
        unsafe { to.write(pack([a, b], powers)) };
        to = to.wrapping_byte_add(stride);
    }
}

/// Packs as many vectors as the loop by hand takes, and returns how many: none where there is no such loop.
#[cfg(any(not(target_arch = "hexagon"), target_feature = "hvxv79"))]
const unsafe fn packed(_: [&[V]; 2], _: [V; 2], _: *mut V, _: usize) -> usize {
    0
}

/// # Safety
/// As [`pack_rows`].
#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
unsafe fn packed(rows: [&[V]; 2], powers: [V; 2], to: *mut V, stride: usize) -> usize {
    let twos = rows[0].len() / 2;
    if twos < 2 {
        return 0;
    }
    // SAFETY: two rows of twice `twos` vectors, of which there are two at least, and the caller's contract.
    unsafe { pack_steady(rows.map(<[V]>::as_ptr), powers, to, stride, twos as u32) };
    2 * twos
}

/// One packet a vector. Alone in its function for the hardware loop's sake, as the decoder's ([`super::steady`]).
///
/// # Safety
/// `row` is `count` vectors, at least one.
#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
#[inline(never)]
unsafe fn largest_steady(row: *const V, count: u32) -> V {
    let mut largest = zero().vector();
    // SAFETY: the loads are those of the contract; every register written is an operand or given up, but for the hardware
    // loop's, which nobody else uses in this function.
    unsafe {
        core::arch::asm!(
            "{{ loop0(1f,{n}) ; v1 = vxor(v1,v1) }}",
            "1:",
            "{{ v2.cur = vmem({a}++#1) ; v1 = vand(v2,v0) ; v3.w = vmax(v3.w,v1.w) }}:endloop0",
            "{{ v3.w = vmax(v3.w,v1.w) }}",
            a = inout(reg) row => _,
            n = in(reg) count,
            in("v0") splat(MAGNITUDE).vector(),
            inout("v3") largest,
            out("v1") _, out("v2") _,
            options(nostack, readonly)
        );
    }
    V::of(largest)
}

/// Two vectors in four packets, each packet a load and a product; a pair is rounded and stored two packets after its
/// second product. The second one's store falls into the next iteration.
///
/// # Safety
/// As [`pack_rows`], for rows of 2 · `twos` vectors, `twos` at least 2.
#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
#[inline(never)]
unsafe fn pack_steady(rows: [*const V; 2], powers: [V; 2], to: *mut V, stride: usize, twos: u32) {
    // SAFETY: the loads and stores are those of the contract; every register written is an operand or given up, but for
    // the hardware loop's, which nobody else uses in this function.
    unsafe {
        core::arch::asm!(
            "{{ v0.cur = vmem({a}++#1) ; v4.qf32 = vmpy(v0.sf,v2.sf) }}",
            "{{ v1.cur = vmem({b}++#1) ; v5.qf32 = vmpy(v1.sf,v3.sf) }}",
            "{{ v0.cur = vmem({a}++#1) ; v6.qf32 = vmpy(v0.sf,v2.sf) }}",
            "loop0(1f,{n})",
            "{{ v1.cur = vmem({b}++#1) ; v7.qf32 = vmpy(v1.sf,v3.sf) ; v8.hf = v5:4.qf32 ; vmem({o}+#0) = v8.new }}",
            "1:",
            "{{ v0.cur = vmem({a}++#1) ; v4.qf32 = vmpy(v0.sf,v2.sf) ; {o} = add({o},{s}) }}",
            "{{ v1.cur = vmem({b}++#1) ; v5.qf32 = vmpy(v1.sf,v3.sf) ; v8.hf = v7:6.qf32 ; vmem({o}+#0) = v8.new }}",
            "{{ v0.cur = vmem({a}++#1) ; v6.qf32 = vmpy(v0.sf,v2.sf) ; {o} = add({o},{s}) }}",
            "{{ v1.cur = vmem({b}++#1) ; v7.qf32 = vmpy(v1.sf,v3.sf) ; v8.hf = v5:4.qf32 ; vmem({o}+#0) = v8.new }}:endloop0",
            "{{ {o} = add({o},{s}) }}",
            "{{ v8.hf = v7:6.qf32 ; vmem({o}+#0) = v8.new }}",
            a = inout(reg) rows[0] => _,
            b = inout(reg) rows[1] => _,
            o = inout(reg) to => _,
            s = in(reg) stride,
            n = in(reg) twos - 1,
            in("v2") powers[0].vector(),
            in("v3") powers[1].vector(),
            out("v0") _, out("v1") _, out("v4") _, out("v5") _, out("v6") _, out("v7") _, out("v8") _,
            options(nostack)
        );
    }
}
