//! The packets of nibbles. What binds them is the shift unit: two lookups a vector, and a rounding and two sums a pair.

use super::{Factors, Q, Tile, V};
use crate::kernels::hexagon::decode::MAGNITUDE;
use crate::kernels::hexagon::hvx::{and, max_uh, splat, splat_h, zero};
use core::arch::asm;

/// 1 as a half.
const ONE: u16 = 0x3c00;
/// What a nibble is multiplied by, so that an odd-byte shuffle finds the high one: all without the shift unit.
const SIXTEENS: u32 = 0x1010_1010;

macro_rules! shuffle {
    () => {
        "v19.b = vshuffo(v13.b,v12.b)"
    };
}

/// The low nibbles' codes, and on the way to the high ones.
macro_rules! low {
    () => {
        packet!("v9:8.h = vlut16(v18.b,v20.h,r4):nomatch ; v13:12.uh = vmpy(v18.ub,{m}.ub)")
    };
}

/// The high nibbles' codes.
macro_rules! high {
    ($besides:expr) => {
        packet!("v11:10.h = vlut16(v19.b,v20.h,r4):nomatch", $besides)
    };
}

/// A tile of nibbles: `$pair!` is a pair's products beside the sums and the store of the pair before it. The first of a
/// vector has the shuffle in the place of taking magnitudes in, which the lookup after it then does.
macro_rules! nibbles {
    ($first:ident, $pair:ident, $watch:expr) => {
        concat!(
            "v18 = vmem({q}++#1)\n",
            low!(),
            $first!("v8", "v16"),
            high!(""),
            $pair!("v9", "v16", "v22", $watch, ""),
            $pair!("v10", "v16", "v22", $watch, ""),
            $pair!("v11", "v16", "v22", $watch, " ; v18 = vmem({q}++#1)"),
            low!(),
            $pair!("v8", "v16", "v22", concat!(" ; ", shuffle!()), ""),
            high!($watch),
            $pair!("v9", "v16", "v22", $watch, ""),
            $pair!("v10", "v16", "v22", $watch, ""),
            $pair!("v11", "v16", "v22", $watch, " ; v18 = vmem({q}++#1)"),
            low!(),
            $pair!("v8", "v17", "v22", concat!(" ; ", shuffle!()), ""),
            high!($watch),
            $pair!("v9", "v17", "v23", $watch, ""),
            $pair!("v10", "v17", "v23", $watch, ""),
            $pair!("v11", "v17", "v23", $watch, " ; v18 = vmem({q}++#1)"),
            low!(),
            $pair!("v8", "v17", "v23", concat!(" ; ", shuffle!()), ""),
            high!($watch),
            $pair!("v9", "v17", "v23", $watch, ""),
            $pair!("v10", "v17", "v23", $watch, ""),
            $pair!("v11", "v17", "v23", $watch, ""),
        )
    };
}

macro_rules! halves_first {
    ($c:literal, $s:literal) => {
        packet!(product!("v3:2", $c, $s), " ; ", shuffle!())
    };
}

macro_rules! halves_pair {
    ($c:literal, $s:literal, $min:literal, $besides:expr, $load:literal) => {
        concat!(
            packet!(plus!("v4", "v2", $min), $besides),
            packet!(plus!("v5", "v3", $min), " ; ", product!("v3:2", $c, $s)),
            packet!(store!("v5:4"), $load),
        )
    };
}

macro_rules! floats_first {
    ($c:literal, $s:literal) => {
        concat!(
            packet!(product!("v1:0", $c, "v21"), " ; ", shuffle!()),
            packet!(times!("v2", "v0", $s)),
            packet!(times!("v3", "v1", $s)),
        )
    };
}

macro_rules! floats_pair {
    ($c:literal, $s:literal, $min:literal, $besides:expr, $load:literal) => {
        concat!(
            packet!(product!("v1:0", $c, "v21"), " ; ", store!("v3:2")),
            packet!(times!("v2", "v0", $s), " ; ", magnitudes!()),
            packet!(times!("v3", "v1", $s), $besides, $load),
        )
    };
}

macro_rules! sums_pair {
    ($c:literal, $s:literal, $min:literal, $besides:expr, $load:literal) => {
        concat!(
            packet!(product!("v1:0", $c, "v21"), " ; ", plus!("v4", "v2", $min), " ; ", magnitudes!()),
            packet!(times!("v2", "v0", $s), " ; ", plus!("v5", "v3", $min), $besides),
            packet!(times!("v3", "v1", $s), " ; ", store!("v5:4"), $load),
        )
    };
}

/// The sums and the store of a tile's last pair.
macro_rules! last_sums {
    () => {
        concat!(
            packet!(plus!("v4", "v2", "v23"), " ; ", magnitudes!()),
            packet!(plus!("v5", "v3", "v23"), " ; ", watch!()),
            packet!(store!("v5:4")),
        )
    };
}

/// Nibbles under halves, with minima.
#[inline(always)]
pub(crate) fn nibbles_halves(table: V, codes: &[V; 4], scales: [V; 2], mins: [Q; 2], out: &mut Tile) {
    // SAFETY: reads four vectors of codes and writes sixteen of a tile, which are the operands; every register written is
    // an operand or given up.
    unsafe {
        asm!(
            nibbles!(halves_first, halves_pair, ""),
            packet!(plus!("v4", "v2", "v23")),
            packet!(plus!("v5", "v3", "v23")),
            packet!(store!("v5:4")),
            q = inout(reg) codes.as_ptr() => _,
            o = inout(reg) out.as_mut_ptr() => _,
            m = in(reg) SIXTEENS,
            in("r4") 0,
            in("v16") scales[0].vector(),
            in("v17") scales[1].vector(),
            in("v20") table.vector(),
            in("v22") mins[0].vector(),
            in("v23") mins[1].vector(),
            out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v8") _, out("v9") _, out("v10") _,
            out("v11") _, out("v12") _, out("v13") _, out("v18") _, out("v19") _,
            options(nostack)
        );
    }
}

/// Nibbles under floats; the larger magnitudes of `worst` and what was decoded.
#[inline(always)]
pub(crate) fn nibbles_floats(table: V, codes: &[V; 4], factors: Factors, out: &mut Tile, worst: V) -> V {
    let Factors { scales, mins } = factors;
    let (mut seen, mut last) = (worst.vector(), zero().vector());
    if let Some(mins) = mins {
        // SAFETY: as in `nibbles_halves`.
        unsafe {
            asm!(
                nibbles!(floats_first, sums_pair, concat!(" ; ", watch!())),
                last_sums!(),
                q = inout(reg) codes.as_ptr() => _,
                o = inout(reg) out.as_mut_ptr() => _,
                m = in(reg) SIXTEENS,
                in("r4") 0,
                in("v16") scales[0].vector(),
                in("v17") scales[1].vector(),
                in("v20") table.vector(),
                in("v21") splat_h(ONE).vector(),
                in("v22") mins[0].vector(),
                in("v23") mins[1].vector(),
                in("v24") splat(MAGNITUDE).vector(),
                inout("v25") seen,
                inout("v6") last,
                inout("v7") zero().vector() => _,
                out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v8") _, out("v9") _,
                out("v10") _, out("v11") _, out("v12") _, out("v13") _, out("v18") _, out("v19") _,
                options(nostack)
            );
        }
    } else {
        // SAFETY: as in `nibbles_halves`.
        unsafe {
            asm!(
                nibbles!(floats_first, floats_pair, concat!(" ; ", watch!())),
                packet!(store!("v3:2"), " ; ", watch!()),
                q = inout(reg) codes.as_ptr() => _,
                o = inout(reg) out.as_mut_ptr() => _,
                m = in(reg) SIXTEENS,
                in("r4") 0,
                in("v16") scales[0].vector(),
                in("v17") scales[1].vector(),
                in("v20") table.vector(),
                in("v21") splat_h(ONE).vector(),
                in("v24") splat(MAGNITUDE).vector(),
                inout("v25") seen,
                inout("v6") last,
                inout("v7") zero().vector() => _,
                out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v8") _, out("v9") _, out("v10") _,
                out("v11") _, out("v12") _, out("v13") _, out("v18") _, out("v19") _,
                options(nostack)
            );
        }
    }
    max_uh(V::of(seen), and(V::of(last), splat(MAGNITUDE)))
}
