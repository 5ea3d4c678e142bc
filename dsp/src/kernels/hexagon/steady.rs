//! The steady state of the nibble decoder below v79, in packets by hand: 24 a tile.
//!
//! The compiler's schedule of the same instructions takes 42. What binds is the shift unit, which both table lookups and
//! roundings to halves need: 8 and 16 a tile are 24 packets, and every other instruction has to fit beside them. So the
//! high nibbles come from a multiplication by 16 and an odd-byte shuffle in place of a shift, the scales of two tiles from
//! two fixed `vdelta` permutations in place of a shuffle, and three stages run side by side: the lookups of a vector, the
//! products of the one before, and the roundings and stores of the one before that.
//!
//! Six packets a nibble vector, q the vector and q′ the next (P0, P1: lookups; P2 to P5: a rounding with its store each):
//!
//! ```text
//! P0  ab = lut(q)      E:O = 16·q′
//! P1  cd = lut(high)
//! P2  store C4 of the vector before   m1 = a·s   high′ = odd bytes of E, O
//! P3  store C1                        m2 = b·s   load q″
//! P4  store C2                        m3 = c·s   scales of the next two tiles, a step each
//! P5  store C3                        m4 = d·s
//! ```
//! The loop begins at P3, so that every store is of a vector of its own tiles, and reads ahead into the next two tiles: the
//! last two are left to the caller. Elsewhere there is no such loop, and the caller does everything by the same
//! arithmetic: the bits are the same.

use super::decode::Tile;
use super::hvx::V;

/// Decodes pairs of tiles under shared scale vectors, all but the last pair and a single last tile, and returns how many
/// pairs. `worst` takes the scales' magnitudes in.
#[cfg(any(not(target_arch = "hexagon"), target_feature = "hvxv79"))]
pub(super) fn pairs(_: V, _: &[[V; 4]], _: &[V], _: &mut [Tile], _: &mut V) -> usize {
    0
}

#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
pub(super) fn pairs(table: V, codes: &[[V; 4]], scales: &[V], out: &mut [Tile], worst: &mut V) -> usize {
    let count = (codes.len().min(out.len()) / 2).min(scales.len()).saturating_sub(1);
    if count > 0 {
        // SAFETY: `count` pairs have their codes, scales and room, and one more pair its codes and scales.
        unsafe {
            steady(
                table,
                codes.as_ptr().cast(),
                scales.as_ptr(),
                out.as_mut_ptr().cast(),
                count as u32,
                worst,
            )
        };
    }
    count
}

/// Where each halfword of a vector of 64 halves comes from in a butterfly: halfword h takes number `base` + h / 2. Bit k + 1
/// of a byte says whether its stage of distance 2^(k + 1) bytes crosses over, which is whether bits k and k + 1 of its own
/// halfword number differ (the highest against the base).
#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
const fn doubling(base: u32) -> [u32; 32] {
    let mut words = [0; 32];
    let mut byte = 0;
    while byte < 128 {
        let half = byte as u32 / 2;
        let above = half >> 1 | (base / 32) << 5;
        words[byte / 4] |= ((half ^ above) << 1) << (8 * (byte % 4));
        byte += 1;
    }
    words
}

/// Those of a vector's first and second half: a constant, since a share of an operator has few tiles to bear their making.
#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
const DOUBLING: [[u32; 32]; 2] = [doubling(0), doubling(32)];

/// One nibble vector from P3 on, and the next one up to P2: its registers' numbers, and what P4 does besides.
#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
macro_rules! vector {
    ($q:literal, $next:literal, $s:literal, $scale_after:literal, $besides:literal, $end:literal) => {
        concat!(
            "{{ v14.hf = v11:10.qf32 ; vmem({o}++#1) = v14.new ; v13:12.qf32 = vmpy(v7.hf,",
            $s,
            ".hf) ; ",
            $q,
            " = vmem({q}++#1) }}\n",
            "{{ v14.hf = v13:12.qf32 ; vmem({o}++#1) = v14.new ; v11:10.qf32 = vmpy(v8.hf,",
            $s,
            ".hf)",
            $besides,
            " }}\n",
            "{{ v14.hf = v11:10.qf32 ; vmem({o}++#1) = v14.new ; v13:12.qf32 = vmpy(v9.hf,",
            $s,
            ".hf) }}\n",
            "{{ v7:6.h = vlut16(",
            $next,
            ".b,v18.h,r4):nomatch ; v3:2.uh = vmpy(",
            $q,
            ".ub,{m}.ub) }}\n",
            "{{ v9:8.h = vlut16(v4.b,v18.h,r4):nomatch }}\n",
            "{{ v14.hf = v13:12.qf32 ; vmem({o}++#1) = v14.new ; v11:10.qf32 = vmpy(v6.hf,",
            $scale_after,
            ".hf) ; v4.b = vshuffo(v3.b,v2.b) }}",
            $end,
            "\n"
        )
    };
}

/// The loop. Not inlined, and alone in its function: it uses the hardware loop that the compiler would give a loop around
/// it, and no operand can say so.
///
/// # Safety
/// `codes` and `scales` are those of `count` + 1 pairs of tiles, `out` has room for `count` pairs; `count` is not 0.
#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv79")))]
#[inline(never)]
unsafe fn steady(table: V, codes: *const V, scales: *const V, out: *mut V, count: u32, worst: &mut V) {
    use super::decode::MAGNITUDE;
    use super::hvx::{from_words, splat};
    let mut seen = worst.vector();
    // SAFETY: the loads and stores are those of the contract; every register written is an operand or given up, but for
    // the hardware loop's, which nobody else uses in this function.
    unsafe {
        core::arch::asm!(
            concat!(
                "v0 = vmem({q}++#1)\n",
                "v1 = vmem({q}++#1)\n",
                "v19 = vmem({s}++#1)\n",
                "v4.ub = vlsr(v0.ub,{four})\n",
                "v16 = vdelta(v19,v26)\n",
                "v23 = vand(v19,v24)\n",
                "v25.uh = vmax(v25.uh,v23.uh)\n",
                "{{ v7:6.h = vlut16(v0.b,v18.h,r4):nomatch ; v3:2.uh = vmpy(v1.ub,{m}.ub) }}\n",
                "{{ v9:8.h = vlut16(v4.b,v18.h,r4):nomatch }}\n",
                "{{ v11:10.qf32 = vmpy(v6.hf,v16.hf) ; v4.b = vshuffo(v3.b,v2.b) }}\n",
                "loop0(1f,{n})\n",
                "1:\n",
                vector!("v0", "v1", "v16", "v16", " ; v17 = vdelta(v19,v27)", ""),
                vector!("v1", "v0", "v16", "v16", " ; v19 = vmem({s}++#1)", ""),
                vector!("v0", "v1", "v16", "v16", " ; v23 = vand(v19,v24)", ""),
                vector!("v1", "v0", "v16", "v17", " ; v25.uh = vmax(v25.uh,v23.uh)", ""),
                vector!("v0", "v1", "v17", "v17", "", ""),
                vector!("v1", "v0", "v17", "v17", " ; v16 = vdelta(v19,v26)", ""),
                vector!("v0", "v1", "v17", "v17", "", ""),
                vector!("v1", "v0", "v17", "v16", "", ":endloop0"),
            ),
            q = inout(reg) codes => _,
            s = inout(reg) scales => _,
            o = inout(reg) out => _,
            n = in(reg) count,
            m = in(reg) 0x1010_1010,
            four = in(reg) 4,
            in("r4") 0,
            in("v18") table.vector(),
            in("v24") splat(MAGNITUDE).vector(),
            inout("v25") seen,
            in("v26") from_words(DOUBLING[0]).vector(),
            in("v27") from_words(DOUBLING[1]).vector(),
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v6") _, out("v7") _, out("v8") _,
            out("v9") _, out("v10") _, out("v11") _, out("v12") _, out("v13") _, out("v14") _, out("v16") _,
            out("v17") _, out("v19") _, out("v23") _,
            options(nostack)
        );
    }
    *worst = V::of(seen);
}
