//! Elementary functions against f64, within the bounds that their module states.

use crate::Random;
use estream_dsp::kernels::hexagon::float::{exp, reciprocal, sigmoid};
use estream_dsp::kernels::hexagon::hvx::{V, float, from_words, lift, splat_f, to_words};

const UNIT: f64 = 1.0 / (1u32 << 23) as f64;

fn vector(values: [f32; 32]) -> V {
    from_words(values.map(f32::to_bits))
}

fn values(v: V) -> [f32; 32] {
    to_words(v).map(f32::from_bits)
}

#[test]
fn the_exponential_is_within_its_bound() {
    let mut random = Random::new(1);
    for round in 0..2000 {
        let scale = [1.0, 10.0, 85.0][round % 3];
        let x: [f32; 32] = core::array::from_fn(|_| random.unit() * scale);
        for (x, y) in x.into_iter().zip(values(exp(vector(x)))) {
            let exact = f64::from(x).exp();
            let error = (f64::from(y) / exact - 1.0).abs();
            assert!(
                error <= (24.0 + 2.0 * f64::from(x.abs())) * UNIT,
                "{x}: {y} for {exact}, {} units",
                error / UNIT
            );
        }
    }
}

#[test]
fn the_exponential_ends_in_zero_and_in_a_large_number() {
    for (x, low, high) in [
        (-87.0, 0.0, 0.0),
        (f32::MIN, 0.0, 0.0),
        (-1e9, 0.0, 0.0),
        (0.0, 0.999_997, 1.000_003),
        (200.0, 1e38, 3e38),
    ] {
        let y = values(exp(splat_f(x)))[0];
        assert!(y >= low && y <= high, "{x}: {y}");
    }
}

#[test]
fn reciprocals_and_sigmoids_are_within_their_bounds() {
    let mut random = Random::new(2);
    for _ in 0..2000 {
        let d: [f32; 32] = core::array::from_fn(|_| 1.5 + random.unit() / 2.0);
        for (d, y) in d.into_iter().zip(values(float(reciprocal(lift(vector(d)))))) {
            let error = (f64::from(y) * f64::from(d) - 1.0).abs();
            assert!(error <= 64.0 * UNIT, "{d}: {} units", error / UNIT);
        }
        let x: [f32; 32] = core::array::from_fn(|_| random.unit() * 30.0);
        for (x, y) in x.into_iter().zip(values(float(sigmoid(vector(x))))) {
            let exact = 1.0 / (1.0 + f64::from(-x).exp());
            let error = (f64::from(y) / exact - 1.0).abs();
            assert!(
                error <= (128.0 + 2.0 * f64::from(x.abs())) * UNIT,
                "{x}: {y} for {exact}, {} units",
                error / UNIT
            );
        }
    }
}
