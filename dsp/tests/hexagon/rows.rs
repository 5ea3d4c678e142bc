//! Functions of rows against f64, whatever their length.

use crate::Random;
use estream_dsp::kernels::hexagon::Vector;
use estream_dsp::kernels::{Chain, Kernels};
use estream_dsp::view::{Block, Rows};
use estream_idl::recipe::RopePairs;

const LENGTHS: [usize; 7] = [1, 31, 32, 33, 64, 100, 257];

fn row(random: &mut Random, length: usize) -> Vec<f32> {
    (0..length).map(|_| random.unit() * 3.0).collect()
}

fn near(value: f32, exact: f64, scale: f64) {
    assert!((f64::from(value) - exact).abs() <= scale * 4e-6, "{value} for {exact}");
}

#[test]
fn norms_are_those_of_the_formula() {
    let mut random = Random::new(3);
    for length in LENGTHS {
        let (x, weight) = (row(&mut random, length), row(&mut random, length));
        let mut out = vec![0.0; length];
        Vector.rms_norm(&x, &weight, 1e-5, &mut out);
        let square = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / length as f64;
        for i in 0..length {
            let exact = f64::from(x[i]) * f64::from(weight[i]) / (square + 1e-5).sqrt();
            near(out[i], exact, exact.abs().max(1e-3));
        }
    }
}

#[test]
fn sums_of_exponentials_agree_and_maxima_are_exact() {
    let mut random = Random::new(4);
    for length in LENGTHS {
        let mut x = row(&mut random, length);
        let largest = x.iter().copied().fold(f32::MIN, f32::max);
        assert_eq!(Vector.max(&x), largest);
        let exact: f64 = x.iter().map(|&x| (f64::from(x) - f64::from(largest)).exp()).sum();
        let unwritten = Vector.sum_exp(&x, largest);
        let before = x.clone();
        let sum = Vector.exp_sum(&mut x, largest);
        assert_eq!(sum.to_bits(), unwritten.to_bits());
        near(sum, exact, exact);
        for (after, before) in x.iter().zip(before) {
            let exact = (f64::from(before) - f64::from(largest)).exp();
            near(*after, exact, exact);
        }
    }
}

#[test]
fn pairs_are_turned() {
    let mut random = Random::new(5);
    for pairs in [1, 5, 16, 32, 48, 64, 70] {
        let angles: Vec<f64> = (0..pairs).map(|_| f64::from(random.unit())).collect();
        let cos: Vec<f32> = angles.iter().map(|angle| angle.cos() as f32).collect();
        let sin: Vec<f32> = angles.iter().map(|angle| angle.sin() as f32).collect();
        for kind in [RopePairs::Halves, RopePairs::Adjacent] {
            let head = row(&mut random, 2 * pairs);
            let mut turned = head.clone();
            Vector.rotate(kind, &mut turned, &cos, &sin);
            for (pair, angle) in angles.iter().enumerate() {
                let (i, j) = match kind {
                    RopePairs::Halves => (pair, pairs + pair),
                    RopePairs::Adjacent => (2 * pair, 2 * pair + 1),
                };
                let (a, b) = (f64::from(head[i]), f64::from(head[j]));
                let (c, s) = (angle.cos(), angle.sin());
                near(turned[i], a * c - b * s, 3.0);
                near(turned[j], a * s + b * c, 3.0);
            }
        }
    }
}

#[test]
fn products_do_not_depend_on_rows_or_parts_and_are_near() {
    let mut random = Random::new(6);
    let (rows, k) = (7, 96);
    let (x, weights) = (row(&mut random, rows * k), row(&mut random, k * 32));
    let mut whole = vec![0.0; rows * 32];
    Vector.multiply(Rows::new(&x, k), &weights, Block::new(&mut whole, 32), Chain::Start);
    for (r, out) in whole.chunks_exact(32).enumerate() {
        for (c, &out) in out.iter().enumerate() {
            let exact: f64 = (0..k).map(|i| f64::from(x[r * k + i]) * f64::from(weights[i * 32 + c])).sum();
            near(out, exact, 100.0);
        }
        let mut alone = [0.0; 32];
        Vector.multiply(
            Rows::new(&x[r * k..(r + 1) * k], k),
            &weights,
            Block::new(&mut alone, 32),
            Chain::Start,
        );
        assert_eq!(alone, out);
    }
}

#[test]
fn rows_are_scaled_and_added() {
    let mut random = Random::new(7);
    for length in LENGTHS {
        let (x, y) = (row(&mut random, length), row(&mut random, length));
        let (mut sum, mut scaled, mut gated) = (y.clone(), x.clone(), vec![0.0; length]);
        Vector.add_scaled(0.7, &x, &mut sum);
        Vector.scale(0.7, &mut scaled);
        Vector.swiglu(&x, &y, &mut gated);
        for i in 0..length {
            let (x, y) = (f64::from(x[i]), f64::from(y[i]));
            near(sum[i], f64::from(0.7f32) * x + y, 3.0);
            near(scaled[i], f64::from(0.7f32) * x, 3.0);
            near(gated[i], x / (1.0 + (-x).exp()) * y, 3.0);
        }
    }
}
