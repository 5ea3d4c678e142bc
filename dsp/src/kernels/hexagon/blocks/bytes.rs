//! The packets of bytes. What binds them is the shift unit under halves (a conversion and a rounding a pair) and with
//! minima, else the multipliers.

use super::{Factors, Tile, TileBytes, V};
use crate::kernels::hexagon::decode::MAGNITUDE;
use crate::kernels::hexagon::hvx::{and, max_uh, splat, splat_b, splat_h, zero};
use core::arch::asm;

/// 1 as a half.
const ONE: u16 = 0x3c00;

/// Two pairs' bytes as integers.
macro_rules! extend {
    () => {
        "v1:0.h = vsxt(v18.b)"
    };
}

macro_rules! load {
    () => {
        "v18 = vmem({q}++#1)"
    };
}

/// A pair's codes as halves.
macro_rules! convert {
    ($to:literal, $from:literal) => {
        concat!($to, ".hf = ", $from, ".h")
    };
}

/// Two pairs under halves, `$store` of the pair before them.
macro_rules! halves {
    ($scale:literal, $store:expr) => {
        concat!(
            packet!(extend!(), " ; v18.cur = vmem({q}++#1)", $store),
            packet!(convert!("v4", "v0")),
            packet!(convert!("v5", "v1"), " ; ", product!("v9:8", "v4", $scale)),
            packet!(store!("v9:8"), " ; ", product!("v11:10", "v5", $scale)),
        )
    };
}

/// Two pairs under floats: `$store` of the pair before them, and `$extend` and `$convert` of the next two, whose bytes
/// have come; `$load` brings those after them.
macro_rules! floats {
    ($scale:literal, $store:expr, $extend:expr, $convert:expr, $load:expr) => {
        concat!(
            packet!(product!("v13:12", "v4", "v21"), " ; ", convert!("v5", "v1"), " ; ", watch!()),
            packet!(times!("v8", "v12", $scale), $store),
            packet!(times!("v9", "v13", $scale), $extend),
            packet!(product!("v13:12", "v5", "v21"), $convert, " ; ", magnitudes!()),
            packet!(times!("v10", "v12", $scale), " ; ", store!("v9:8"), " ; ", watch!()),
            packet!(times!("v11", "v13", $scale), " ; ", magnitudes!(), $load),
        )
    };
}

/// As [`floats!`] with minima: `$even` and `$odd` are the sums of the pair before.
macro_rules! sums {
    ($scale:literal, $min:literal, $even:expr, $odd:expr, $store:expr, $next:expr, $convert:expr) => {
        concat!(
            packet!(product!("v13:12", "v4", "v21"), " ; ", convert!("v5", "v1"), " ; ", watch!()),
            packet!(times!("v8", "v12", $scale), $even),
            packet!(times!("v9", "v13", $scale), $odd),
            packet!(product!("v13:12", "v5", "v21"), $store),
            packet!(times!("v10", "v12", $scale), " ; ", plus!("v14", "v8", $min), " ; ", magnitudes!()),
            packet!(times!("v11", "v13", $scale), " ; ", plus!("v15", "v9", $min), " ; ", watch!()),
            packet!(store!("v15:14"), $next),
            packet!(magnitudes!(), $convert),
        )
    };
}

/// Two pairs in the middle of a tile, the minima before them `$before`.
macro_rules! middle {
    ($scale:literal) => {
        floats!(
            $scale,
            concat!(" ; ", store!("v11:10")),
            concat!(" ; ", extend!()),
            concat!(" ; ", convert!("v4", "v0")),
            concat!(" ; ", load!())
        )
    };
    ($scale:literal, $min:literal, $before:literal) => {
        sums!(
            $scale,
            $min,
            concat!(" ; ", plus!("v14", "v10", $before)),
            concat!(" ; ", plus!("v15", "v11", $before)),
            concat!(" ; ", store!("v15:14")),
            concat!(" ; ", extend!(), " ; ", load!()),
            concat!(" ; ", convert!("v4", "v0"))
        )
    };
}

/// The first vector's bytes, and the second's on the way.
macro_rules! begin {
    () => {
        concat!(packet!(load!()), packet!(extend!(), " ; ", load!()), packet!(convert!("v4", "v0")),)
    };
}

/// Bytes under halves.
#[inline(always)]
pub(crate) fn bytes_halves(codes: &TileBytes, scales: [V; 2], out: &mut Tile) {
    // SAFETY: reads eight vectors of codes and writes sixteen of a tile, which are the operands; every register written is
    // an operand or given up.
    unsafe {
        asm!(
            halves!("v16", ""),
            halves!("v16", concat!(" ; ", store!("v11:10"))),
            halves!("v16", concat!(" ; ", store!("v11:10"))),
            halves!("v16", concat!(" ; ", store!("v11:10"))),
            halves!("v17", concat!(" ; ", store!("v11:10"))),
            halves!("v17", concat!(" ; ", store!("v11:10"))),
            halves!("v17", concat!(" ; ", store!("v11:10"))),
            halves!("v17", concat!(" ; ", store!("v11:10"))),
            packet!(store!("v11:10")),
            q = inout(reg) codes.as_ptr() => _,
            o = inout(reg) out.as_mut_ptr() => _,
            in("v16") scales[0].vector(),
            in("v17") scales[1].vector(),
            out("v0") _, out("v1") _, out("v4") _, out("v5") _, out("v6") _, out("v8") _, out("v9") _, out("v10") _,
            out("v11") _, out("v18") _,
            options(nostack)
        );
    }
}

/// Bytes under floats; the larger magnitudes of `worst` and what was decoded.
#[inline(always)]
pub(crate) fn bytes_floats(codes: &TileBytes, factors: Factors, out: &mut Tile, worst: V) -> V {
    let Factors { scales, mins } = factors;
    let (mut seen, mut last) = (worst.vector(), zero().vector());
    if let Some(mins) = mins {
        // SAFETY: as in `bytes_halves`.
        unsafe {
            asm!(
                begin!(),
                sums!("v16", "v22", "", "", "", concat!(" ; ", extend!(), " ; ", load!()), concat!(" ; ", convert!("v4", "v0"))),
                middle!("v16", "v22", "v22"),
                middle!("v16", "v22", "v22"),
                middle!("v16", "v22", "v22"),
                middle!("v17", "v23", "v22"),
                middle!("v17", "v23", "v23"),
                sums!(
                    "v17",
                    "v23",
                    concat!(" ; ", plus!("v14", "v10", "v23")),
                    concat!(" ; ", plus!("v15", "v11", "v23")),
                    concat!(" ; ", store!("v15:14")),
                    concat!(" ; ", extend!()),
                    concat!(" ; ", convert!("v4", "v0"))
                ),
                sums!(
                    "v17",
                    "v23",
                    concat!(" ; ", plus!("v14", "v10", "v23")),
                    concat!(" ; ", plus!("v15", "v11", "v23")),
                    concat!(" ; ", store!("v15:14")),
                    "",
                    concat!(" ; ", plus!("v14", "v10", "v23"))
                ),
                packet!(plus!("v15", "v11", "v23"), " ; ", watch!()),
                packet!(store!("v15:14")),
                q = inout(reg) codes.as_ptr() => _,
                o = inout(reg) out.as_mut_ptr() => _,
                in("v16") scales[0].vector(),
                in("v17") scales[1].vector(),
                in("v21") splat_h(ONE).vector(),
                in("v22") mins[0].vector(),
                in("v23") mins[1].vector(),
                in("v24") splat(MAGNITUDE).vector(),
                inout("v25") seen,
                inout("v6") last,
                inout("v7") zero().vector() => _,
                out("v0") _, out("v1") _, out("v4") _, out("v5") _, out("v8") _, out("v9") _, out("v10") _, out("v11") _,
                out("v12") _, out("v13") _, out("v14") _, out("v15") _, out("v18") _,
                options(nostack)
            );
        }
    } else {
        // SAFETY: as in `bytes_halves`.
        unsafe {
            asm!(
                begin!(),
                floats!("v16", "", concat!(" ; ", extend!()), concat!(" ; ", convert!("v4", "v0")), concat!(" ; ", load!())),
                middle!("v16"),
                middle!("v16"),
                middle!("v16"),
                middle!("v17"),
                middle!("v17"),
                floats!(
                    "v17",
                    concat!(" ; ", store!("v11:10")),
                    concat!(" ; ", extend!()),
                    concat!(" ; ", convert!("v4", "v0")),
                    ""
                ),
                floats!("v17", concat!(" ; ", store!("v11:10")), "", "", ""),
                packet!(store!("v11:10"), " ; ", watch!()),
                q = inout(reg) codes.as_ptr() => _,
                o = inout(reg) out.as_mut_ptr() => _,
                in("v16") scales[0].vector(),
                in("v17") scales[1].vector(),
                in("v21") splat_h(ONE).vector(),
                in("v24") splat(MAGNITUDE).vector(),
                inout("v25") seen,
                inout("v6") last,
                inout("v7") zero().vector() => _,
                out("v0") _, out("v1") _, out("v4") _, out("v5") _, out("v8") _, out("v9") _, out("v10") _, out("v11") _,
                out("v12") _, out("v13") _, out("v18") _,
                options(nostack)
            );
        }
    }
    max_uh(V::of(seen), and(V::of(last), splat(MAGNITUDE)))
}

/// Bytes of nibbles and bit planes, less a bias: what one packet finds for both halves of a nibble vector.
macro_rules! masks {
    () => {
        "q0 = vand(v3,{low}) ; q1 = vand(v3,{high})"
    };
}

/// A nibble vector with one plane, its lanes' byte brought to all four by `$spread`.
macro_rules! one_plane {
    ($spread:literal) => {
        concat!(
            packet!(
                "v18.cur = vmem({q}++#1) ; v4 = vand(v18,v20) ; v3 = vdelta(v16,",
                $spread,
                ") ; v5.ub = vlsr(v18.ub,{four})"
            ),
            packet!(masks!()),
            packet!("v4 |= vand(q0,{value}) ; v5 |= vand(q1,{value})"),
            packet!("v6.b = vsub(v4.b,v21.b) ; vmem({o}++#1) = v6.new"),
            packet!("v6.b = vsub(v5.b,v21.b) ; vmem({o}++#1) = v6.new"),
        )
    };
}

/// As [`one_plane!`] with two.
macro_rules! two_planes {
    ($spread:literal) => {
        concat!(
            packet!(
                "v18.cur = vmem({q}++#1) ; v4 = vand(v18,v20) ; v3 = vdelta(v16,",
                $spread,
                ") ; v5.ub = vlsr(v18.ub,{four})"
            ),
            packet!(masks!(), " ; v3 = vdelta(v17,", $spread, ")"),
            packet!("v4 |= vand(q0,{value}) ; v5 |= vand(q1,{value})"),
            packet!(masks!()),
            packet!("v4 |= vand(q0,{value2}) ; v5 |= vand(q1,{value2})"),
            packet!("v6.b = vsub(v4.b,v21.b) ; vmem({o}++#1) = v6.new"),
            packet!("v6.b = vsub(v5.b,v21.b) ; vmem({o}++#1) = v6.new"),
        )
    };
}

/// The butterfly that brings byte `from` of each lane to all four of it: a byte crosses over at distance 2 and 1 where its
/// own number has another bit there.
const fn spread(from: u32) -> u32 {
    0x0302_0100 ^ (0x0101_0101 * from)
}

/// A tile's bytes of its nibbles and its bit planes, `bias` taken off each.
#[inline(always)]
pub(crate) fn assemble<const PLANES: usize>(
    codes: &[V; 4],
    planes: &[V; PLANES],
    bias: i8,
    bytes: &mut TileBytes,
) {
    let bias = splat_b(bias.cast_unsigned());
    match planes.as_slice() {
        // SAFETY: reads four vectors of codes and writes eight of bytes, which are the operands; every register written is
        // an operand or given up.
        &[plane] => unsafe {
            asm!(
                one_plane!("v8"),
                one_plane!("v9"),
                one_plane!("v10"),
                one_plane!("v11"),
                q = inout(reg) codes.as_ptr() => _,
                o = inout(reg) bytes.as_mut_ptr() => _,
                low = in(reg) 0x4010_0401,
                high = in(reg) 0x8020_0802u32,
                value = in(reg) 0x1010_1010,
                four = in(reg) 4,
                in("v16") plane.vector(),
                in("v8") splat(spread(0)).vector(),
                in("v9") splat(spread(1)).vector(),
                in("v10") splat(spread(2)).vector(),
                in("v11") splat(spread(3)).vector(),
                in("v20") splat_b(15).vector(),
                in("v21") bias.vector(),
                out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v18") _, out("q0") _, out("q1") _,
                options(nostack)
            );
        },
        // SAFETY: as above.
        &[first, second] => unsafe {
            asm!(
                two_planes!("v8"),
                two_planes!("v9"),
                two_planes!("v10"),
                two_planes!("v11"),
                q = inout(reg) codes.as_ptr() => _,
                o = inout(reg) bytes.as_mut_ptr() => _,
                low = in(reg) 0x4010_0401,
                high = in(reg) 0x8020_0802u32,
                value = in(reg) 0x1010_1010,
                four = in(reg) 4,
                value2 = in(reg) 0x2020_2020,
                in("v16") first.vector(),
                in("v17") second.vector(),
                in("v8") splat(spread(0)).vector(),
                in("v9") splat(spread(1)).vector(),
                in("v10") splat(spread(2)).vector(),
                in("v11") splat(spread(3)).vector(),
                in("v20") splat_b(15).vector(),
                in("v21") bias.vector(),
                out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v18") _, out("q0") _, out("q1") _,
                options(nostack)
            );
        },
        _ => {}
    }
}
