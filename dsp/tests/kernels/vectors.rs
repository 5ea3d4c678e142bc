//! Functions over one row, and the elementary functions beneath them.

use crate::stored::Chance;
use crate::{LENGTHS, U, bits, close};
use estream_dsp::kernels::{Kernels, math};
use estream_idl::recipe::RopePairs;

pub fn rms_norm(kernels: &dyn Kernels) {
    let mut chance = Chance(3);
    for n in LENGTHS {
        let (x, weight) = (chance.reals(n), chance.reals(n));
        for epsilon in [1e-5, 1e-6] {
            let mut out = vec![f32::NAN; n];
            kernels.rms_norm(&x, &weight, epsilon, &mut out);
            let squares: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            let factor = 1.0 / (squares / n as f64 + f64::from(epsilon)).sqrt();
            for i in 0..n {
                let want = f64::from(x[i]) * factor * f64::from(weight[i]);
                // Half the sum's relative error (a product and n/8 + 3 additions a lane), then mean, ε, root, two
                // products, and the reciprocal.
                let bound = (n as f64 / 16.0 + 8.0) * U * want.abs();
                close(out[i], want, bound, format_args!("n {n} i {i}"));
            }
        }
    }
    let mut out = vec![f32::NAN; 9];
    kernels.rms_norm(&[0.0; 9], &[1.0; 9], 1e-5, &mut out);
    assert_eq!(out, [0.0; 9]);
    kernels.rms_norm(&[], &[], 1e-5, &mut []);
}

fn silu(x: f32) -> f64 {
    let x = f64::from(x);
    x / (1.0 + (-x).exp())
}

pub fn swiglu(kernels: &dyn Kernels) {
    let mut chance = Chance(4);
    for n in LENGTHS {
        let gate: Vec<f32> = chance.reals(n).iter().map(|x| 20.0 * x).collect();
        let up = chance.reals(n);
        let mut out = vec![f32::NAN; n];
        kernels.swiglu(&gate, &up, &mut out);
        for i in 0..n {
            let want = silu(gate[i]) * f64::from(up[i]);
            // The exponential (4 U), a sum, two products and a quotient.
            close(out[i], want, 9.0 * U * want.abs(), format_args!("silu({}) · {}", gate[i], up[i]));
        }
    }
}

pub fn silu_is_stable(kernels: &dyn Kernels) {
    let gate: Vec<f32> =
        (-2100..2100).map(|i| i as f32 / 10.0).chain([f32::MAX, f32::MIN, 0.0, -0.0]).collect();
    let mut out = vec![f32::NAN; gate.len()];
    kernels.swiglu(&gate, &vec![1.0; gate.len()], &mut out);
    for (&gate, &got) in gate.iter().zip(&out) {
        let want = silu(gate);
        // Where e^x is subnormal it is off by at most 2^−149, and x times that.
        let bound = 9.0 * U * want.abs() + 2f64.powi(-149) * (f64::from(gate).abs().min(110.0) + 1.0);
        close(got, want, bound, format_args!("silu({gate})"));
    }
}

pub fn add_scaled_and_scale(kernels: &dyn Kernels) {
    let mut chance = Chance(5);
    for n in LENGTHS {
        let (x, before, factor) = (chance.reals(n), chance.reals(n), chance.real());
        let mut y = before.clone();
        kernels.add_scaled(factor, &x, &mut y);
        let mut scaled = x.clone();
        kernels.scale(factor, &mut scaled);
        for i in 0..n {
            let product = f64::from(factor) * f64::from(x[i]);
            let want = f64::from(before[i]) + product;
            close(y[i], want, U * (product.abs() + want.abs()), "a product and a sum");
            assert_eq!(scaled[i], product as f32, "one rounding");
        }
    }
}

pub fn rotate(kernels: &dyn Kernels) {
    let mut chance = Chance(6);
    for pairs in [1, 3, 8, 12, 32, 64, 67] {
        for trailing in [0, 5] {
            let head = chance.reals(2 * pairs + trailing);
            let (cos, sin) = (chance.reals(pairs), chance.reals(pairs));
            for kind in [RopePairs::Halves, RopePairs::Adjacent] {
                let mut out = head.clone();
                kernels.rotate(kind, &mut out, &cos, &sin);
                for i in 0..pairs {
                    let (a, b) = if kind == RopePairs::Halves { (i, i + pairs) } else { (2 * i, 2 * i + 1) };
                    let [x, y, c, s] = [head[a], head[b], cos[i], sin[i]].map(f64::from);
                    // Two products and a sum.
                    let bound = 2.0 * U * ((x * c).abs() + (y * s).abs());
                    close(out[a], x * c - y * s, bound, "first");
                    let bound = 2.0 * U * ((x * s).abs() + (y * c).abs());
                    close(out[b], x * s + y * c, bound, "second");
                }
                assert_eq!(out[2 * pairs..], head[2 * pairs..], "elements past the pairs do not turn");
            }
        }
    }
}

pub fn max(kernels: &dyn Kernels) {
    let mut chance = Chance(7);
    assert_eq!(kernels.max(&[]), f32::NEG_INFINITY);
    for n in LENGTHS {
        let mut x: Vec<f32> = chance.reals(n).iter().map(|x| x - 2.0).collect();
        assert_eq!(kernels.max(&x), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let at = chance.below(n as u64) as usize;
        x[at] = -0.5;
        assert_eq!(kernels.max(&x), -0.5, "at {at} of {n}");
        x.fill(f32::NEG_INFINITY);
        assert_eq!(kernels.max(&x), f32::NEG_INFINITY);
    }
}

pub fn exp_is_accurate(kernels: &dyn Kernels) {
    let x: Vec<f32> = (-104 * 4096..=88 * 4096).map(|i| i as f32 / 4096.0 + 1.0 / 12288.0).collect();
    let mut e = x.clone();
    kernels.exp_sum(&mut e, 0.0);
    let mut worst = 0f64;
    for (&x, &got) in x.iter().zip(&e) {
        let want = f64::from(x).exp();
        // Two units in the last place of the result, which is 2^−149 at least.
        let unit = f64::exp2(want.log2().floor() - 23.0).max(2f64.powi(-149));
        close(got, want, 2.0 * unit, format_args!("exp({x})"));
        worst = worst.max((f64::from(got) - want).abs() / unit);
    }
    eprintln!("exp within {worst:.3} ulp");
}

pub fn exp_at_the_ends(kernels: &dyn Kernels) {
    let exp = |x: f32| {
        let mut one = [x];
        kernels.exp_sum(&mut one, 0.0);
        one[0]
    };
    assert_eq!([exp(0.0), exp(-0.0)], [1.0, 1.0]);
    for x in [-105.0, -1e4, f32::MIN, f32::NEG_INFINITY] {
        assert_eq!(exp(x).to_bits(), 0, "exp({x})");
    }
    for x in [88.73, 89.0, 1e4, f32::MAX, f32::INFINITY] {
        assert_eq!(exp(x), f32::INFINITY, "exp({x})");
    }
    assert!(exp(f32::NAN).is_nan());
    assert!(kernels.sum_exp(&[0.0, f32::NAN, 0.0], 0.0).is_nan(), "a NaN is not lost in a sum");
}

pub fn exp_sums(kernels: &dyn Kernels) {
    let mut chance = Chance(8);
    assert_eq!(kernels.sum_exp(&[], 0.0), 0.0);
    for n in LENGTHS {
        let x: Vec<f32> = chance.reals(n).iter().map(|x| 30.0 * x).collect();
        let max = kernels.max(&x);
        let mut e = x.clone();
        let sum = kernels.exp_sum(&mut e, max);
        assert_eq!(sum.to_bits(), kernels.sum_exp(&x, max).to_bits(), "writing changes no bit");
        let want: f64 = x.iter().map(|&x| (f64::from(x) - f64::from(max)).exp()).sum();
        // Arguments of up to 60 round by 60 U, the exponential by 4 U, and n/8 + 3 additions a lane.
        close(sum, want, (64.0 + n as f64 / 8.0 + 3.0) * U * want, format_args!("n {n}"));
        // The written values sum to the sum in the fixed tree.
        let mut lanes = [0f32; 8];
        e.iter().enumerate().for_each(|(i, e)| lanes[i % 8] += e);
        let [a, b, c, d, e, f, g, h] = lanes;
        assert_eq!(sum, ((a + e) + (c + g)) + ((b + f) + (d + h)), "the tree of eight lanes");
    }
}

pub fn an_element_does_not_depend_on_its_place(kernels: &dyn Kernels) {
    let mut chance = Chance(9);
    let x: Vec<f32> = chance.reals(41).iter().map(|x| 10.0 * x).collect();
    let up = chance.reals(41);
    let mut whole = vec![0.0; 41];
    kernels.swiglu(&x, &up, &mut whole);
    for i in 0..41 {
        let mut one = [0.0];
        kernels.swiglu(&x[i..=i], &up[i..=i], &mut one);
        assert_eq!(one[0].to_bits(), whole[i].to_bits());
        kernels.add_scaled(0.3, &x[i..=i], &mut one);
        let mut all = whole.clone();
        kernels.add_scaled(0.3, &x, &mut all);
        assert_eq!(one[0].to_bits(), all[i].to_bits());
    }
    // The same row at another address.
    let shifted: Vec<f32> = [&[0.0][..], &x].concat();
    let (mut a, mut b) = (vec![0.0; 41], vec![0.0; 42]);
    kernels.rms_norm(&x, &up, 1e-5, &mut a);
    kernels.rms_norm(&shifted[1..], &up, 1e-5, &mut b[1..]);
    assert_eq!(bits(&a), bits(&b[1..]));
}

#[test]
fn rsqrt_rounds_twice() {
    for i in 1..1000 {
        let x = i as f32 * 0.37;
        let want = 1.0 / f64::from(x).sqrt();
        close(math::rsqrt(x), want, 2.0 * U * want * 1.001, "root and reciprocal");
    }
}
