//! SwiGLU of whole row tiles; below v79 in packets by hand: 22 for two vectors, with the next two begun meanwhile.
//!
//! A fence: products are met and left by address, those of a row tile at a distance from those of the next.
//!
//! The words of two vectors fill 81 places of units, so 21 packets would hold them, but only with a third pair under way. The
//! order was found by trying many at random; a product, a lookup or a rounding is used two packets after it, any other word
//! in the next. A gate is read three times, as few registers are as free as a load is: for its magnitude, for its sign, and
//! as a factor. The loop runs on from tile to tile, where the last store of one moves the address on to the next: whether it
//! was the last is what the address itself says.
//!
//! Elsewhere there is no such loop, and the generic code does everything by the same arithmetic: the bits are the same.

use super::{BLOCK, Tile, V, activate, zero};
use crate::kernels::hexagon::hvx::max_uh;

/// Row pairs of a tile.
const PAIRS: usize = crate::kernels::hexagon::decode::PAIRS;

/// `silu(g)·u` of row tiles, tile i to `to` + i · `stride` bytes. Otherwise as [`activate`].
///
/// # Panics
/// When there are not as many tiles of each, or on Hexagon a tile at `to` would not stand at a multiple of its bytes.
///
/// # Safety
/// There are as many tiles at `to`, and nobody else reads or writes them meanwhile.
#[must_use]
pub unsafe fn activate_tiles(
    gates: &[Tile],
    ups: &[Tile],
    offsets: &[[u32; PAIRS]],
    to: *mut Tile,
    stride: usize,
) -> V {
    let count = gates.len();
    assert!(ups.len() == count && offsets.len() == count, "tiles alike");
    #[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
    if count > 0 {
        // The matrix unit's rule, on which the loop counts. Its model counts from the pad's first byte, wherever that is.
        let border = |bytes: usize| bytes.is_multiple_of(size_of::<Tile>());
        assert!(border(to.addr()) && border(stride), "tiles at their borders");
        let [gates, ups] = [gates, ups].map(|tiles| tiles.as_ptr().cast());
        // SAFETY: whole tiles of each, and the caller's contract.
        return unsafe { run(gates, ups, offsets.as_ptr().cast(), to.cast(), stride, count * PAIRS / 2) };
    }
    let mut seen = zero();
    for (i, ((gates, ups), offsets)) in gates.iter().zip(ups).zip(offsets).enumerate() {
        // SAFETY: the caller's contract.
        let out = unsafe { &mut *to.wrapping_byte_add(i * stride) };
        let (gates, ups, out) = (gates.as_chunks().0, ups.as_chunks().0, out.as_chunks_mut::<BLOCK>().0);
        seen = max_uh(seen, activate(gates, ups, offsets.as_chunks().0, out));
    }
    seen
}

/// [`activate`] by the loop by hand, where there is one and something to do.
#[cfg(any(not(target_arch = "hexagon"), target_feature = "hvxv79"))]
pub(super) const fn blocks(
    _: &[[V; BLOCK]],
    _: &[[V; BLOCK]],
    _: &[[u32; BLOCK]],
    _: &mut [[V; BLOCK]],
) -> Option<V> {
    None
}

#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
pub(super) fn blocks(
    gates: &[[V; BLOCK]],
    ups: &[[V; BLOCK]],
    offsets: &[[u32; BLOCK]],
    out: &mut [[V; BLOCK]],
) -> Option<V> {
    if out.is_empty() || !offsets.as_ptr().addr().is_multiple_of(8) {
        return None;
    }
    let [gates, ups] = [gates, ups].map(|blocks| blocks.as_ptr().cast());
    let (count, to) = (out.len() * BLOCK / 2, out.as_mut_ptr().cast());
    // SAFETY: as many blocks of each by `activate`; tiles at a tile's distance follow each other.
    Some(unsafe { run(gates, ups, offsets.as_ptr().cast(), to, size_of::<Tile>(), count) })
}

/// The loop over `twos` times two vectors. Alone in its function for the hardware loop's sake, as the decoder's
/// ([`crate::kernels::hexagon::steady`]).
///
/// # Safety
/// There are as many gates, ups and offsets, which begin at a multiple of eight bytes, and at least two. `to` has room for
/// as many vectors, where those from a multiple of a tile's bytes on stand `stride` bytes after those of the tile before.
#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
#[inline(never)]
unsafe fn run(
    gates: *const V,
    ups: *const V,
    offsets: *const u32,
    to: *mut V,
    stride: usize,
    twos: usize,
) -> V {
    use super::{ACTIVATION_ROOM, LIFT, PLACES, TABLES};
    use crate::kernels::hexagon::hvx::{from_words, splat, splat_b, splat_h};
    let mut seen = zero().vector();
    // SAFETY: the loads and stores are those of the contract; every register written is an operand or given up, but for
    // the hardware loop's, which nobody else uses in this function.
    unsafe {
        core::arch::asm!(
            "{{ r5:4 = memd({f}++#8) ; v6 = vmem({a}++#1) }}",
            "{{ v7 = vmem({a}++#1) }}",
            "{{ v8 = vsplat(r4) ; v6 = vand(v6,v26) }}",
            "{{ v0 = vand(v7,v26) }}",
            "{{ v8 = vsplat(r5) ; v22.uh = vadd(v6.uh,v8.uh):sat }}",
            "{{ v4.uh = vsub(v22.uh,v25.uh):sat ; v30.uh = vmax(v30.uh,v6.uh) }}",
            "{{ v30.uh = vmax(v30.uh,v0.uh) }}",
            "{{ v20.uh = vadd(v0.uh,v8.uh):sat ; v8.h = v4.hf }}",
            "{{ v4.uh = vsub(v20.uh,v25.uh):sat }}",
            "{{ v19.h = v4.hf }}",
            "{{ v9.h = vasl(v8.h,r6) }}",
            "{{ v13.b = vshuffo(v19.b,v8.b) ; v8.h = vasl(v19.h,r6) }}",
            "{{ v17.b = vadd(v13.b,v27.b) }}",
            "{{ v17.ub = vlsr(v17.ub,r3) }}",
            "{{ v1:0.h = vlut16(v17.b,v24.h,r3):nomatch }}",
            "{{ v21.h = vmpy(v0.h,v9.h):<<1:rnd:sat ; v5:4.h = vlut16(v17.b,v24.h,r2):nomatch }}",
            "{{ v0.h = vmpy(v1.h,v8.h):<<1:rnd:sat }}",
            "{{ v20.h = vadd(v21.h,v4.h) ; v7:6.h = vlut16(v17.b,v24.h,r1):nomatch }}",
            "{{ v4.h = vadd(v0.h,v5.h) ; v12.h = vmpy(v20.h,v9.h):<<1:rnd:sat }}",
            "{{ v31.tmp = vmem({b}++#1) ; v21.h = vasr(v31.h,r7) ; v4.h = vmpy(v4.h,v8.h):<<1:rnd:sat }}",
            "{{ v11.h = vadd(v12.h,v6.h) ; v1:0.h = vlut16(v17.b,v24.h,r0):nomatch }}",
            "loop0(1f,{n})",
            "1:",
            "{{ r5:4 = memd({f}++#8) ; v6 = vmem({a}++#1) ; v15.h = vadd(v4.h,v7.h) ; v4.h = vmpy(v11.h,v9.h):<<1:rnd:sat }}",
            "{{ v7 = vmem({a}++#1) ; v9.h = vmpy(v15.h,v8.h):<<1:rnd:sat }}",
            "{{ v4.h = vadd(v4.h,v0.h) ; v8 = vsplat(r4) ; v6 = vand(v6,v26) }}",
            "{{ v31.tmp = vmem({b}++#1) ; v9.h = vasr(v31.h,r7) ; v10.h = vadd(v9.h,v1.h) ; v0 = vand(v7,v26) }}",
            "{{ v13 = vxor(v4,v21) ; v7 = vxor(v10,v9) ; v8 = vsplat(r5) ; v22.uh = vadd(v6.uh,v8.uh):sat }}",
            "{{ v9 = vmem({u}++#1) ; v6.h = vadd(v13.h,v28.h) ; v4.uh = vsub(v22.uh,v25.uh):sat ; v30.uh = vmax(v30.uh,v6.uh) }}",
            "{{ v13 = vmem({u}++#1) ; v6.h = vadd(v7.h,v28.h) ; v7.hf = v6.h ; v30.uh = vmax(v30.uh,v0.uh) }}",
            "{{ v31.tmp = vmem({c}++#1) ; v1:0.qf32 = vmpy(v31.hf,v9.hf) ; v20.uh = vadd(v0.uh,v8.uh):sat ; v8.h = v4.hf }}",
            "{{ v17.hf = v6.h ; v7:6.qf32 = vmpy(v7.hf,v29.hf) ; v4.uh = vsub(v20.uh,v25.uh):sat }}",
            "{{ v21 = vand(v9,v26) ; v9 = vand(v13,v26) ; v19.h = v4.hf }}",
            "{{ v31.tmp = vmem({c}++#1) ; v5:4.qf32 = vmpy(v31.hf,v13.hf) ; v30.uh = vmax(v30.uh,v9.uh) ; v9.h = vasl(v8.h,r6) }}",
            "{{ v2.qf32 = vmpy(v0.qf32,v6.qf32) ; v13.b = vshuffo(v19.b,v8.b) ; v8.h = vasl(v19.h,r6) }}",
            "{{ v13:12.qf32 = vmpy(v17.hf,v29.hf) ; v30.uh = vmax(v30.uh,v21.uh) ; v17.b = vadd(v13.b,v27.b) }}",
            "{{ v3.qf32 = vmpy(v1.qf32,v7.qf32) ; v17.ub = vlsr(v17.ub,r3) }}",
            "{{ v6.qf32 = vmpy(v4.qf32,v12.qf32) ; v1:0.h = vlut16(v17.b,v24.h,r3):nomatch }}",
            "{{ v7.qf32 = vmpy(v5.qf32,v13.qf32) ; v12.hf = v3:2.qf32 ; vmem({o}++#1) = v12.new }}",
            "{{ v21.h = vmpy(v0.h,v9.h):<<1:rnd:sat ; v5:4.h = vlut16(v17.b,v24.h,r2):nomatch }}",
            "{{ v15.hf = v7:6.qf32 ; vmem({o}++#1) = v15.new ; v6 = vand(v12,v26) ; v0.h = vmpy(v1.h,v8.h):<<1:rnd:sat }}",
            "{{ p0 = bitsclr({o},{m}) ; v30.uh = vmax(v30.uh,v6.uh) ; v20.h = vadd(v21.h,v4.h) ; v7:6.h = vlut16(v17.b,v24.h,r1):nomatch }}",
            "{{ if (p0) {o} = add({o},{j}) ; v0 = vand(v15,v26) ; v4.h = vadd(v0.h,v5.h) ; v12.h = vmpy(v20.h,v9.h):<<1:rnd:sat }}",
            "{{ v31.tmp = vmem({b}++#1) ; v21.h = vasr(v31.h,r7) ; v30.uh = vmax(v30.uh,v0.uh) ; v4.h = vmpy(v4.h,v8.h):<<1:rnd:sat }}",
            "{{ v11.h = vadd(v12.h,v6.h) ; v1:0.h = vlut16(v17.b,v24.h,r0):nomatch }}:endloop0",
            "{{ v15.h = vadd(v4.h,v7.h) ; v4.h = vmpy(v11.h,v9.h):<<1:rnd:sat }}",
            "{{ v9.h = vmpy(v15.h,v8.h):<<1:rnd:sat }}",
            "{{ v4.h = vadd(v4.h,v0.h) }}",
            "{{ v31.tmp = vmem({b}++#1) ; v9.h = vasr(v31.h,r7) ; v10.h = vadd(v9.h,v1.h) }}",
            "{{ v13 = vxor(v4,v21) ; v7 = vxor(v10,v9) }}",
            "{{ v9 = vmem({u}++#1) ; v6.h = vadd(v13.h,v28.h) }}",
            "{{ v13 = vmem({u}++#1) ; v6.h = vadd(v7.h,v28.h) ; v7.hf = v6.h }}",
            "{{ v31.tmp = vmem({c}++#1) ; v1:0.qf32 = vmpy(v31.hf,v9.hf) }}",
            "{{ v17.hf = v6.h ; v7:6.qf32 = vmpy(v7.hf,v29.hf) }}",
            "{{ v21 = vand(v9,v26) ; v9 = vand(v13,v26) }}",
            "{{ v31.tmp = vmem({c}++#1) ; v5:4.qf32 = vmpy(v31.hf,v13.hf) ; v30.uh = vmax(v30.uh,v9.uh) }}",
            "{{ v2.qf32 = vmpy(v0.qf32,v6.qf32) }}",
            "{{ v13:12.qf32 = vmpy(v17.hf,v29.hf) ; v30.uh = vmax(v30.uh,v21.uh) }}",
            "{{ v3.qf32 = vmpy(v1.qf32,v7.qf32) }}",
            "{{ v6.qf32 = vmpy(v4.qf32,v12.qf32) }}",
            "{{ v7.qf32 = vmpy(v5.qf32,v13.qf32) ; v12.hf = v3:2.qf32 ; vmem({o}++#1) = v12.new }}",
            "{{ v15.hf = v7:6.qf32 ; vmem({o}++#1) = v15.new ; v6 = vand(v12,v26) }}",
            "{{ p0 = bitsclr({o},{m}) ; v30.uh = vmax(v30.uh,v6.uh) }}",
            "{{ if (p0) {o} = add({o},{j}) ; v0 = vand(v15,v26) }}",
            "{{ v30.uh = vmax(v30.uh,v0.uh) }}",
            a = inout(reg) gates => _,
            b = inout(reg) gates => _,
            c = inout(reg) gates => _,
            u = inout(reg) ups => _,
            f = inout(reg) offsets => _,
            o = inout(reg) to => _,
            m = in(reg) size_of::<Tile>() - 1,
            j = in(reg) stride.wrapping_sub(size_of::<Tile>()),
            n = in(reg) twos - 1,
            in("r0") 0, in("r1") 1, in("r2") 2, in("r3") PLACES - 8,
            in("r6") 16 - PLACES, in("r7") 15,
            out("r4") _, out("r5") _, out("p0") _,
            in("v24") from_words(TABLES).vector(),
            in("v25") splat_h(LIFT).vector(),
            in("v26") splat(0x7fff_7fff).vector(),
            in("v27") splat_b(1 << (PLACES - 1 - 8)).vector(),
            in("v28") splat_h(1 << 14).vector(),
            in("v29") splat_h((ACTIVATION_ROOM << 10) as u16).vector(),
            inout("v30") seen,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v7") _,
            out("v8") _, out("v9") _, out("v10") _, out("v11") _, out("v12") _, out("v13") _, out("v15") _,
            out("v17") _, out("v19") _, out("v20") _, out("v21") _, out("v22") _, out("v31") _,
            options(nostack)
        );
    }
    V::of(seen)
}
