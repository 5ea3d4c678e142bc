//! The IEEE forms against the host's own arithmetic and the `half` crate, exhaustively where that is feasible.

mod support;

use estream_kernels_asm::model::float::{self, Vector, f8, ieee};
use half::{bf16, f16};
use support::{Random, fixed, nearest_half};

/// Halves worth meeting every other half.
fn interesting() -> Vec<u16> {
    let mut random = Random(7);
    let edges =
        [0u16, 1, 2, 0x3ff, 0x400, 0x401, 0x3555, 0x3bff, 0x3c00, 0x3c01, 0x7bff, 0x7c00, 0x7c01, 0x7e00];
    edges
        .iter()
        .flat_map(|bits| [*bits, bits | 0x8000])
        .chain((0..16).map(|_| random.next() as u16))
        .collect()
}

/// Bits of a half; one NaN for all.
fn bits(value: f16) -> u16 {
    if value.is_nan() { ieee::HF_NAN } else { value.to_bits() }
}

#[test]
fn halves_widen_and_narrow_as_the_half_crate_says() {
    for a in 0..=u16::MAX {
        let wide = f16::from_bits(a).to_f32();
        let expected = if wide.is_nan() { ieee::SF_NAN } else { wide.to_bits() };
        assert_eq!(ieee::sf_from_hf(a), expected, "{a:#06x}");
        assert_eq!(ieee::hf_from_sf(expected), bits(f16::from_bits(a)));
    }
    let mut random = Random(8);
    for _ in 0..2_000_000 {
        // Exponents around those of halves, and all kinds of fractions.
        let exponent = 127 - 30 + random.below(60) as u32;
        let fraction = random.next() as u32 & 0x7f_ffff & [!0, !0xfff, !0x1fff][random.below(3) as usize];
        let a = (random.next() as u32 & 1 << 31) | exponent << 23 | fraction;
        assert_eq!(ieee::hf_from_sf(a), bits(f16::from_f32(f32::from_bits(a))), "{a:#010x}");
    }
}

/// Sums and products of halves are exact in double or far from a tie, so the double rounded once is the reference.
#[test]
fn arithmetic_on_halves_rounds_once() {
    for b in interesting() {
        for a in 0..=u16::MAX {
            let (x, y) = (f16::from_bits(a), f16::from_bits(b));
            let finite = x.is_finite() && y.is_finite();
            let operations = [
                (ieee::hf_add as fn(u16, u16) -> u16, x.to_f32() + y.to_f32(), (fixed(x) + fixed(y)) << 24),
                (ieee::hf_sub, x.to_f32() - y.to_f32(), (fixed(x) - fixed(y)) << 24),
                (ieee::hf_mpy, x.to_f32() * y.to_f32(), fixed(x) * fixed(y)),
            ];
            for (operation, special, exact) in operations {
                let nearest = nearest_half(exact);
                let expected = match nearest {
                    _ if !finite || exact == 0 => bits(f16::from_f32(special)),
                    // At and beyond the exponent of all ones IEEE has only infinities; 65520 is the first to go there.
                    _ if exact.unsigned_abs() >= 65520 << 48 => bits(f16::from_f32(special)),
                    nearest => bits(nearest),
                };
                assert_eq!(operation(a, b), expected, "{x} {y}");
            }
        }
    }
}

#[test]
fn the_fused_half_product_rounds_once() {
    let mut random = Random(9);
    let finite = |random: &mut Random| loop {
        let half = f16::from_bits(random.next() as u16);
        if half.is_finite() {
            return half;
        }
    };
    for round in 0..1_000_000 {
        let (a, b) = (finite(&mut random), finite(&mut random));
        // Half of the time an accumulator near the product, where rounding is hardest.
        let near = f16::from_f32(-a.to_f32() * b.to_f32() * (1.0 + random.below(3) as f32 / 512.0));
        let x = if round % 2 == 0 && near.is_finite() { near } else { finite(&mut random) };
        let exact = fixed(a) * fixed(b) + (fixed(x) << 24);
        let model = f16::from_bits(ieee::hf_mpy_acc(x.to_bits(), a.to_bits(), b.to_bits()));
        if exact == 0 {
            assert_eq!(model.to_f32(), 0.0);
        } else if exact.unsigned_abs() < 65520 << 48 {
            assert_eq!(model.to_bits(), nearest_half(exact).to_bits(), "{x} + {a}*{b}");
        } else {
            assert!(model.is_infinite(), "{x} + {a}*{b}");
        }
    }
    assert_eq!(ieee::hf_mpy_acc(0x7c00, 0xbc00, 0x7c00), ieee::HF_NAN);
    assert_eq!(ieee::hf_mpy_acc(0x3c00, 0xbc00, 0x7c00), 0xfc00);
}

#[test]
fn integers_and_halves() {
    for a in 0..=u16::MAX {
        let value = f16::from_bits(a).to_f64();
        let even = value.round_ties_even();
        // Rust's casts saturate; a NaN is the largest for `vcvt` and goes by its sign otherwise.
        let nan = value.is_nan();
        let negative = a >> 15 == 1;
        assert_eq!(ieee::h_from_hf_nearest(a) as i16, if nan { i16::MAX } else { even as i16 }, "{value}");
        assert_eq!(ieee::uh_from_hf_nearest(a), if nan { u16::MAX } else { even as u16 }, "{value}");
        assert_eq!(ieee::b_from_hf_nearest(a) as i8, if nan { i8::MAX } else { even as i8 }, "{value}");
        assert_eq!(ieee::ub_from_hf_nearest(a), if nan { u8::MAX } else { even as u8 }, "{value}");
        let truncated = match (nan, negative) {
            (true, false) => i16::MAX,
            (true, true) => i16::MIN,
            _ => value as i16,
        };
        assert_eq!(ieee::h_from_hf(a) as i16, truncated, "{value}");
        assert_eq!(ieee::hf_from_h(a), f16::from_f32(f32::from(a as i16)).to_bits());
        assert_eq!(ieee::hf_from_uh(a), f16::from_f32(f32::from(a)).to_bits());
    }
}

#[test]
fn integers_and_singles() {
    let w = |value: f32| ieee::w_from_sf(value.to_bits()) as i32;
    for (value, expected) in
        [(0.9, 0), (-0.9, 0), (2.5, 2), (-2.5, -2), (3e9, i32::MAX), (-3e9, i32::MIN), (f32::NAN, i32::MAX)]
    {
        assert_eq!(w(value), expected, "{value}");
    }
    assert_eq!(w(-f32::NAN), i32::MIN);
    assert_eq!(w(f32::NEG_INFINITY), i32::MIN);
    for (word, expected) in
        [(16_777_217, 16_777_216.0), (16_777_219, 16_777_220.0), (-7, -7.0), (i32::MIN, -2147483648.0)]
    {
        assert_eq!(f32::from_bits(ieee::sf_from_w(word as u32)), expected);
    }
}

#[test]
fn bfloat_rounds_as_the_half_crate_says() {
    let mut random = Random(10);
    for _ in 0..1_000_000 {
        let a = random.next() as u32 & [!0, !0x7fff][random.below(2) as usize];
        let expected = bf16::from_f32(f32::from_bits(a));
        let expected = if expected.is_nan() { 0x7fff } else { expected.to_bits() };
        assert_eq!(ieee::bf_from_sf(a), expected, "{a:#010x}");
    }
}

/// NaNs lie beyond the infinities on the side of their sign for `vmax` and `vcmp.gt`, and win for `vfmax`.
#[test]
fn order() {
    let total = |a: u16, b: u16| f16::from_bits(a).total_cmp(&f16::from_bits(b));
    for b in interesting() {
        for a in 0..=u16::MAX {
            let (x, y) = (f16::from_bits(a), f16::from_bits(b));
            let (larger, smaller) = if total(a, b).is_ge() { (a, b) } else { (b, a) };
            assert_eq!((ieee::hf_max(a, b), ieee::hf_min(a, b)), (larger, smaller));
            let nan = x.is_nan() || y.is_nan();
            assert_eq!(ieee::hf_fmax(a, b), if nan { ieee::HF_NAN } else { larger });
            assert_eq!(ieee::hf_fmin(a, b), if nan { ieee::HF_NAN } else { smaller });
            let zeros = x == f16::ZERO && y == f16::ZERO;
            assert_eq!(ieee::hf_gt(a, b), total(a, b).is_gt() && !zeros);
            assert_eq!(ieee::hf_eq(a, b), x == y);
            // The same order on singles.
            let (wide_a, wide_b) = (x.to_f32().to_bits(), y.to_f32().to_bits());
            if !nan {
                assert_eq!(ieee::sf_max(wide_a, wide_b), f16::from_bits(larger).to_f32().to_bits());
                assert_eq!(ieee::sf_gt(wide_a, wide_b), x > y);
                assert_eq!(ieee::sf_eq(wide_a, wide_b), x == y);
            }
        }
    }
    assert!(ieee::sf_gt(0x7fc0_0000, 0x7f80_0000) && ieee::sf_gt(0xff80_0000, 0xffc0_0000));
}

/// fp8 has 8 exponent values below its bias and no infinity.
#[test]
fn fp8() {
    let value = |a: u8| {
        let (exponent, fraction) = (i32::from(a >> 3 & 15), f64::from(a & 7));
        let magnitude = if exponent == 0 {
            fraction / 8.0 * 2f64.powi(-7)
        } else {
            (1.0 + fraction / 8.0) * 2f64.powi(exponent - 8)
        };
        if a >> 7 == 1 { -magnitude } else { magnitude }
    };
    for a in 0..=u8::MAX {
        if a == 0x80 {
            assert_eq!(f8::hf_from_f8(a), ieee::HF_NAN);
            continue;
        }
        assert_eq!(f16::from_bits(f8::hf_from_f8(a)).to_f64(), value(a));
        assert_eq!(f8::f8_from_hf(f8::hf_from_f8(a)), a);
        for b in (0..=u8::MAX).filter(|b| *b != 0x80) {
            let half = |value| bits(f16::from_f32(value as f32));
            assert_eq!(f8::hf_add_f8_f8(a, b), half(value(a) + value(b)));
            assert_eq!(f8::hf_mpy_f8_f8(a, b), half(value(a) * value(b)));
            assert_eq!(value(f8::fmax(a, b)), value(a).max(value(b)));
            assert_eq!(value(f8::fmin(a, b)), value(a).min(value(b)));
        }
    }
    // Nearest of all 255 values, ties to the even pattern; beyond 240 by half a step the NaN.
    for a in 0..0x7c00u16 {
        let half = f16::from_bits(a).to_f64();
        let distance = |b: u8| (value(b) - half).abs();
        let nearest = (0..0x80u8)
            .min_by(|x, y| distance(*x).total_cmp(&distance(*y)).then((x & 1).cmp(&(y & 1))))
            .expect("there are some");
        let expected = if half >= 248.0 { 0x80 } else { nearest };
        assert_eq!(f8::f8_from_hf(a), expected, "{half}");
        let negative = if expected & 0x7f == 0 { expected } else { expected | 0x80 };
        assert_eq!(f8::f8_from_hf(a | 0x8000), negative, "-{half}");
    }
}

/// Which lane goes where, by values that name their place.
#[test]
fn lanes_of_conversions() {
    let word = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
    let half = |value: usize| f16::from_f32(value as f32).to_bits();
    let single = |value: usize| (value as f32).to_bits();
    let halves =
        |at: usize| -> Vector { std::array::from_fn(|i| word(half(at + 2 * i), half(at + 2 * i + 1))) };
    let singles = |at: usize| -> Vector { std::array::from_fn(|i| single(at + i)) };

    let [low, high] = float::sf_pair_from_hf(&halves(0));
    assert_eq!((low[3], high[3]), (single(6), single(7)));
    assert_eq!(float::hf_from_sf_sf(&singles(0), &singles(100))[5], word(half(5), half(105)));
    let bytes: Vector =
        std::array::from_fn(|i| u32::from_le_bytes(std::array::from_fn(|j| (4 * i + j) as u8)));
    let [low, high] = float::hf_pair_from_ub(&bytes);
    assert_eq!((low[2], high[2]), (word(half(8), half(9)), word(half(10), half(11))));
    let [low, high] = float::hf_pair_from_ub_even_odd(&bytes);
    assert_eq!((low[2], high[2]), (word(half(8), half(10)), word(half(9), half(11))));
    let narrow = float::ub_from_hf_hf(&halves(0), &halves(100));
    assert_eq!(narrow[3].to_le_bytes(), [6, 7, 106, 107]);
    let signed = float::hf_pair_from_b(&[0xff80_7f01; 32]);
    assert_eq!(signed[1][0], word(f16::from_f32(-128.0).to_bits(), f16::from_f32(-1.0).to_bits()));
}
