//! How far two sets of logits are apart: KL per position, top-1 agreement, largest difference.
//!
//! KL is Σ p·(log p − log q) with p the reference's softmax, both log-softmaxes in f64. The sum of squares of the tiny
//! differences survives in f64 down to about 1e-15, far below every bound in use. A NaN anywhere makes the figures NaN,
//! and every test is written as `figure <= bound`, which NaN fails.

use ndarray::{Array2, ArrayView1, ArrayView2};
use std::path::Path;

/// Figures over all positions compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// Mean KL(reference ‖ other).
    pub kl_mean: f64,
    /// Largest KL of a position.
    pub kl_max: f64,
    /// Share of positions with the same most probable token.
    pub top1: f64,
    /// Largest absolute difference of two logits.
    pub max_abs: f64,
}

impl Agreement {
    /// The gate of every comparison with a reference: the mean KL is bounded and every most probable token is the same.
    /// It is one function, so that what refuses the broken on purpose is what passes the right one.
    #[must_use]
    pub fn passes(&self, kl_mean: f64) -> bool {
        self.kl_mean <= kl_mean && self.top1 == 1.0
    }
}

/// Compares logits `[positions, vocabulary]` with the reference's.
///
/// # Panics
/// When the shapes differ or there are no positions.
#[must_use]
pub fn compare(reference: ArrayView2<'_, f32>, other: ArrayView2<'_, f32>) -> Agreement {
    assert_eq!(reference.dim(), other.dim(), "the shapes of the logits differ");
    assert!(reference.nrows() > 0, "no positions to compare");
    let positions = reference.nrows() as f64;
    let mut sum = Agreement { kl_mean: 0.0, kl_max: 0.0, top1: 0.0, max_abs: 0.0 };
    for (p, q) in reference.rows().into_iter().zip(other.rows()) {
        let kl = kl(p, q);
        sum.kl_mean += kl / positions;
        sum.kl_max = worse(sum.kl_max, kl);
        sum.top1 += f64::from(u8::from(argmax(p) == argmax(q))) / positions;
        for (a, b) in p.iter().zip(q) {
            sum.max_abs = worse(sum.max_abs, (f64::from(*a) - f64::from(*b)).abs());
        }
    }
    // A sum of n terms 1/n may miss 1 by rounding.
    sum.top1 = (sum.top1 * positions).round() / positions;
    sum
}

/// KL divergence of two rows of logits, reference first; never below 0 by more than rounding.
#[must_use]
pub fn kl(reference: ArrayView1<'_, f32>, other: ArrayView1<'_, f32>) -> f64 {
    let (p, q) = (log_softmax(reference), log_softmax(other));
    p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum()
}

/// The larger, or NaN where either is: `f64::max` would hide it.
fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || a >= b { a } else { b }
}

fn log_softmax(logits: ArrayView1<'_, f32>) -> Vec<f64> {
    let max = logits.iter().fold(f64::NEG_INFINITY, |max, &l| max.max(f64::from(l)));
    let sum: f64 = logits.iter().map(|&l| (f64::from(l) - max).exp()).sum();
    logits.iter().map(|&l| f64::from(l) - max - sum.ln()).collect()
}

/// The index of the largest logit, of equal ones the lowest; `None` where a logit is NaN.
fn argmax(logits: ArrayView1<'_, f32>) -> Option<usize> {
    let mut best = 0;
    for (index, logit) in logits.iter().enumerate() {
        match logit.partial_cmp(&logits[best])? {
            std::cmp::Ordering::Greater => best = index,
            _ => continue,
        }
    }
    Some(best)
}

/// Reads float32 `[positions, vocabulary]` in NumPy's format.
///
/// # Errors
/// When the file cannot be read or holds something else.
pub fn read_npy(path: &Path) -> Result<Array2<f32>, ndarray_npy::ReadNpyError> {
    ndarray_npy::read_npy(path)
}

/// Reads a float32 vector in NumPy's format.
///
/// # Errors
/// As [`read_npy`].
pub fn read_npy_vector(path: &Path) -> Result<Vec<f32>, ndarray_npy::ReadNpyError> {
    ndarray_npy::read_npy(path).map(|vector: ndarray::Array1<f32>| vector.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    /// p = (1/2, 1/2), q = (1/4, 3/4): KL = ½ ln 2 + ½ ln (2/3) = ½ ln (4/3).
    #[test]
    fn kl_by_hand() {
        let (p, q) = (array![[0.0f32, 0.0]], array![[0.0f32, 3f32.ln()]]);
        let agreement = compare(p.view(), q.view());
        assert!((agreement.kl_mean - 0.5 * (4.0f64 / 3.0).ln()).abs() < 1e-7, "{agreement:?}");
        assert_eq!(agreement.kl_mean, agreement.kl_max);
        assert_eq!(agreement.top1, 0.0, "a tie goes to the lowest index");
        assert!((agreement.max_abs - 3f64.ln()).abs() < 1e-7);
    }

    #[test]
    fn a_shift_of_all_logits_changes_nothing_and_top1_counts_positions() {
        let p = array![[1.0f32, 2.0, 3.0], [1.0, 0.0, 0.0], [0.0, 0.0, 5.0]];
        assert!(compare(p.view(), (&p + 100.0).view()).kl_max < 1e-12);
        let q = array![[1.0f32, 2.0, 3.0], [0.0, 1.0, 0.0], [0.0, 0.0, 5.0]];
        assert_eq!(compare(p.view(), q.view()).top1, 2.0 / 3.0);
        assert_eq!(compare(p.view(), p.view()).top1, 1.0);
    }

    #[test]
    fn nan_fails_every_bound() {
        let p = array![[1.0f32, 2.0], [1.0, 2.0]];
        let q = array![[f32::NAN, 2.0], [1.0, 2.0]];
        let agreement = compare(p.view(), q.view());
        assert!(agreement.kl_mean.is_nan() && agreement.kl_max.is_nan() && agreement.max_abs.is_nan());
        assert_eq!(agreement.top1, 0.5);
        assert!(!agreement.passes(f64::INFINITY));
        let same = compare(p.view(), p.view());
        assert!(same.passes(0.0) && !Agreement { top1: 0.99, ..same }.passes(1.0));
        assert!(!Agreement { kl_mean: f64::NAN, ..same }.passes(1.0));
    }
}
