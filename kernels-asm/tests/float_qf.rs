//! The qfloat forms against exact values: what the formats mean is read here once more, in doubles.

mod support;

use estream_kernels_asm::model::float::qf;
use half::f16;
use support::Random;

/// The value of a qf32, exact in double.
fn value32(word: u32) -> f64 {
    let significand = f64::from(2 * (word as i32 >> 8) + 1);
    significand * 2f64.powi((word & 0xff) as i32 - 127 - 23)
}

/// The value of a qf16.
fn value16(word: u16) -> f64 {
    let significand = f64::from(2 * i32::from(word as i16 >> 5) + 1);
    significand * 2f64.powi(i32::from(word & 31) - 15 - 10)
}

fn half(bits: u16) -> f64 {
    f16::from_bits(bits).to_f64()
}

/// A single with an exponent between −`spread` and `spread`.
fn single(random: &mut Random, spread: u64) -> f32 {
    let exponent = 127 - spread + random.below(2 * spread);
    f32::from_bits((random.next() as u32 & 0x807f_ffff) | (exponent as u32) << 23)
}

/// Half a unit of the result, or a whole one where only odd significands were to be had. The unit is that of the result's
/// exponent; even significands were stored one exponent higher, so the smaller of the two readings is asked for.
fn within(result: f64, exact: f64, exponent: i32, fraction: i32) -> bool {
    (result - exact).abs() <= 2f64.powi(exponent - fraction)
}

#[test]
fn every_product_of_halves_is_near_in_qf16() {
    let mut random = Random(21);
    for b in (0..48).map(|_| random.next() as u16 & 0xbfff).filter(|b| b & 0x7c00 != 0) {
        for a in (0..=u16::MAX).filter(|a| a & 0x7c00 != 0x7c00) {
            let exact = half(a) * half(b);
            let word = qf::qf16_mpy_hf_hf(a, b);
            let exponent = i32::from(word & 31) - 15;
            // Within the format's range; below it everything is the smallest number.
            if exact.abs() >= 2f64.powi(-13) && exact.abs() < 2f64.powi(16) {
                assert!(within(value16(word), exact, exponent, 10), "{a:#06x} {b:#06x}: {word:#06x}");
                // Converted, a half within one step of the exact product.
                let rounded = f64::from(f16::from_bits(qf::hf_from_qf16(word)).to_f32());
                let step = 2f64.powi(exact.abs().log2().floor() as i32 - 10);
                assert!((rounded - exact).abs() <= step, "{a:#06x} {b:#06x}: {rounded} for {exact}");
            }
        }
    }
}

/// The rule of rounding, by brute force: no number with the same exponent, or with an even significand one exponent up,
/// is nearer.
#[test]
fn qf16_rounds_to_the_nearest_of_its_neighbours() {
    let mut random = Random(22);
    for _ in 0..20_000 {
        let (a, b) = (random.half(-4, 3), random.half(-4, 3));
        let exact = a.to_f64() * b.to_f64();
        let word = qf::qf16_mpy_hf_hf(a.to_bits(), b.to_bits());
        // The exponent of the product before rounding, as the operands give it.
        let exponent = i32::from(a.to_bits() >> 10 & 31) + i32::from(b.to_bits() >> 10 & 31) - 30;
        let outgrown = exact.abs() >= 2f64.powi(exponent + 1);
        let candidates = (0..1u32 << 11).flat_map(|m| {
            let up = [exponent + 15, exponent + 16].map(|field| (m << 5 | field as u32) as u16);
            if outgrown { vec![up[1]] } else { up.to_vec() }
        });
        let nearest = candidates.map(|word| (value16(word) - exact).abs()).fold(f64::INFINITY, f64::min);
        assert_eq!((value16(word) - exact).abs(), nearest, "{a} * {b} = {word:#06x}");
    }
}

#[test]
fn qf32_sums_and_products_are_near() {
    let mut random = Random(23);
    for round in 0..1_000_000u32 {
        let spread = [2, 20, 60][round as usize % 3];
        let (a, b) = (single(&mut random, spread), single(&mut random, spread));
        let (x, y) = (a.to_bits(), b.to_bits());
        // Sums of singles 120 exponents apart are not exact in double, but far closer than a unit.
        for (word, exact) in [
            (qf::qf32_add_sf_sf(x, y), f64::from(a) + f64::from(b)),
            (qf::qf32_sub_sf_sf(x, y), f64::from(a) - f64::from(b)),
            (qf::qf32_mpy_sf_sf(x, y), f64::from(a) * f64::from(b)),
        ] {
            let exponent = (word & 0xff) as i32 - 127;
            assert!(
                within(value32(word), exact, exponent, 23),
                "{a:e} {b:e}: {:e} for {exact:e}",
                value32(word)
            );
            // The single is the one nearest to that.
            let value = value32(word);
            let single = f64::from(f32::from_bits(qf::sf_from_qf32(word)));
            let step = 2f64.powi((value.abs().log2().floor() as i32 - 23).max(-149));
            assert!((single - value).abs() <= step / 2.0, "{a:e} {b:e}: {single:e} for {value:e}");
        }
    }
}

/// Chains that stay in qfloat, as kernels write them, against doubles.
#[test]
fn mixed_chains() {
    let mut random = Random(24);
    for _ in 0..200_000 {
        let [a, b, c] = [0; 3].map(|_: i32| single(&mut random, 6));
        let product = qf::qf32_mpy_sf_sf(a.to_bits(), b.to_bits());
        let magnitude = f64::from(a * b).abs() + f64::from(c).abs();
        let near = |word: u32, exact: f64| (value32(word) - exact).abs() <= magnitude * 2f64.powi(-21);
        let exact = f64::from(a) * f64::from(b);
        assert!(near(qf::qf32_add_qf32_sf(product, c.to_bits()), exact + f64::from(c)));
        assert!(near(qf::qf32_sub_qf32_sf(product, c.to_bits()), exact - f64::from(c)));
        assert!(near(qf::qf32_sub_sf_qf32(c.to_bits(), product), f64::from(c) - exact));
        let other = qf::qf32_add_sf_sf(c.to_bits(), 0);
        assert!(near(qf::qf32_add_qf32_qf32(product, other), exact + f64::from(c)));
        assert!(near(qf::qf32_sub_qf32_qf32(product, other), exact - f64::from(c)));
        let squared = value32(qf::qf32_mpy_qf32_qf32(product, product));
        assert!((squared - exact * exact).abs() <= exact * exact * 2f64.powi(-20));
        assert_eq!(value32(qf::qf32_neg(product)), -value32(product));
        assert_eq!(value32(qf::qf32_abs(product)), value32(product).abs());
    }
}

/// Products of halves in qf32 are exact to 2^-22 of themselves, from any mixture of operands.
#[test]
fn halves_multiply_into_qf32() {
    let mut random = Random(25);
    for _ in 0..500_000 {
        let (a, b) = (random.half(-10, 10), random.half(-10, 10));
        let exact = a.to_f64() * b.to_f64();
        let (x, y) = (a.to_bits(), b.to_bits());
        let near = |word: u32, bits: i32| (value32(word) - exact).abs() <= exact.abs() * 2f64.powi(-bits);
        assert!(near(qf::qf32_mpy_hf_hf(x, y), 22));
        // A qf16 is off by up to one part in 2^10 itself.
        let (qx, qy) = (qf::qf16_add_hf_hf(x, 0), qf::qf16_add_hf_hf(y, 0));
        assert!(near(qf::qf32_mpy_qf16_hf(qx, y), 9));
        assert!(near(qf::qf32_mpy_qf16_qf16(qx, qy), 8));
        assert_eq!(f16::from_bits(qf::hf_from_qf32(qf::qf32_mpy_hf_hf(x, 0x3c00))), a);
    }
}

#[test]
fn zero_is_zero_and_nothing_else_is() {
    assert_eq!(qf::qf32_add_sf_sf(0, 0), 0);
    assert_eq!(qf::qf32_mpy_sf_sf(0, 1.5f32.to_bits()), 0);
    assert_eq!(qf::qf16_mpy_hf_hf(0x3c00, 0), 0);
    assert_eq!(qf::qf32_sub_sf_sf(1.5f32.to_bits(), 1.5f32.to_bits()), 0);
    assert_eq!((qf::sf_from_qf32(0), qf::hf_from_qf32(0), qf::hf_from_qf16(0)), (0, 0, 0));
    // A negative zero product is the smallest negative number, which is −0 again.
    let negative = qf::qf32_mpy_sf_sf((-0.0f32).to_bits(), 1f32.to_bits());
    assert_eq!(qf::sf_from_qf32(negative), (-0.0f32).to_bits());
}

/// A kernel that forgets a conversion must not get away with it: a qfloat read as an IEEE number is garbage, but for a
/// coincidence in a thousand.
#[test]
fn numbers_do_not_have_their_own_qfloat_bits() {
    let (mut equal, mut near) = (0, 0);
    for bits in (0x400..0x7c00u16).flat_map(|bits| [bits, bits | 0x8000]) {
        let word = qf::qf16_add_hf_hf(bits, 0);
        equal += u32::from(word == bits);
        let (read, meant) = (half(word), half(bits));
        near += u32::from((read - meant).abs() <= meant.abs() / 16.0);
    }
    assert!(equal <= 4 && near < 600, "{equal} equal and {near} near of 61440");
    let mut random = Random(26);
    for _ in 0..1_000_000 {
        let value = single(&mut random, 126);
        assert_ne!(qf::qf32_add_sf_sf(value.to_bits(), 0), value.to_bits());
    }
}

/// What the source's arithmetic is known for.
#[test]
fn quirks() {
    // A multiple of four has no place among odd significands: one unit up, for negative numbers towards zero.
    assert_eq!(qf::sf_from_qf32(qf::qf32_add_sf_sf(1f32.to_bits(), 0)), 0x3f80_0001);
    assert_eq!(qf::sf_from_qf32(qf::qf32_add_sf_sf((-1f32).to_bits(), 0)), 0xbf7f_fffe);
    // An infinity is an ordinary number: one becomes a NaN's pattern, the other a finite one's.
    assert_eq!(qf::sf_from_qf32(qf::qf32_add_sf_sf(f32::INFINITY.to_bits(), 0)), 0x7f80_0001);
    assert_eq!(qf::sf_from_qf32(qf::qf32_add_sf_sf(f32::NEG_INFINITY.to_bits(), 0)), 0xff7f_fffe);
    // Overflow is the largest number; converted, the pattern of all ones.
    let huge = qf::qf32_mpy_sf_sf(1e38f32.to_bits(), 1e38f32.to_bits());
    assert_eq!((huge, qf::sf_from_qf32(huge)), (0x7fff_ffff, 0x7fff_ffff));
    let tiny = qf::qf32_mpy_sf_sf(1e-38f32.to_bits(), 1e-38f32.to_bits());
    assert_eq!((tiny, qf::sf_from_qf32(tiny)), (0, 0));
    assert_eq!(qf::hf_from_qf32(qf::qf32_add_sf_sf(70000f32.to_bits(), 0)), 0x7c46);
    assert_eq!(qf::hf_from_qf32(qf::qf32_add_sf_sf(2e5f32.to_bits(), 0)), 0x7fff);
}
