//! The head: logits of the asked rows, panel by panel, and what is kept of them.
//!
//! Rows are few and columns many, so the head walks the vocabulary in panels of whole strips. A panel is either lent to
//! the host (whole rows of logits, for a file) or read here and reused. What is kept of a row — its best candidates,
//! log-sum-exp and target — is folded strip by strip in ascending order, so that the size of a panel changes nothing.

use crate::batch::OutputSpan;
use crate::kernels::Kernels;
use estream_idl::address::TILE;
use estream_idl::io::NO_TARGET;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A candidate: vocabulary entry and its logit.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Candidate {
    /// Vocabulary entry.
    pub id: u32,
    /// Logit.
    pub logit: f32,
}

/// What is kept of one row of logits.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Summary {
    /// Σ exp(logit − max), in f64.
    sum: f64,
    /// The largest logit so far.
    max: f32,
    /// The target's logit.
    target: f32,
    /// Candidates kept so far.
    kept: u32,
    /// Zero.
    reserved: u32,
}

impl Summary {
    /// Nothing seen yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { sum: 0.0, max: f32::NEG_INFINITY, target: f32::NEG_INFINITY, kept: 0, reserved: 0 }
    }

    /// Folds logits of consecutive entries from `first` in, `best` being this row's candidates, best first. The slice
    /// begins at a strip.
    pub fn fold(
        &mut self,
        kernels: &dyn Kernels,
        logits: &[f32],
        first: u32,
        target: u32,
        best: &mut [Candidate],
    ) {
        for (strip, logits) in logits.chunks(TILE).enumerate() {
            let max = kernels.max(logits);
            let sum = f64::from(kernels.sum_exp(logits, max));
            if max > self.max {
                self.sum = self.sum * libm::exp(f64::from(self.max) - f64::from(max)) + sum;
                self.max = max;
            } else {
                self.sum += sum * libm::exp(f64::from(max) - f64::from(self.max));
            }
            let base = first + (strip * TILE) as u32;
            for (id, &logit) in (base..).zip(logits) {
                self.offer(Candidate { id, logit }, best);
                if id == target && target != NO_TARGET {
                    self.target = logit;
                }
            }
        }
    }

    /// Keeps a candidate if it is better than the worst kept; equal logits keep the lower id, which came first.
    fn offer(&mut self, candidate: Candidate, best: &mut [Candidate]) {
        let kept = self.kept as usize;
        if kept == best.len() && best.last().is_none_or(|worst| candidate.logit <= worst.logit) {
            return;
        }
        let at = best[..kept].partition_point(|other| other.logit >= candidate.logit);
        let end = (kept + 1).min(best.len());
        best[at..end].rotate_right(1);
        best[at] = candidate;
        self.kept = end as u32;
    }

    /// Candidates kept.
    #[must_use]
    pub const fn kept(&self) -> usize {
        self.kept as usize
    }

    /// log Σ exp of all logits folded in.
    #[must_use]
    pub fn log_sum(&self) -> f64 {
        f64::from(self.max) + libm::log(self.sum)
    }

    /// Whether everything folded in was a finite number.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        self.max.is_finite() && self.sum.is_finite()
    }

    /// Log-probability of a logit.
    #[must_use]
    pub fn log_prob(&self, logit: f32) -> f32 {
        (f64::from(logit) - self.log_sum()) as f32
    }

    /// Log-probability of the target, or 0 where none was asked for.
    #[must_use]
    pub fn target_log_prob(&self, output: &OutputSpan) -> f32 {
        if output.target == NO_TARGET { 0.0 } else { self.log_prob(self.target) }
    }
}

impl Default for Summary {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::scalar::Scalar;
    use std::vec::Vec;

    #[test]
    fn candidates_and_log_probabilities_do_not_depend_on_the_cut() {
        let logits: Vec<f32> = (0..200u32).map(|i| ((i * 7919) % 97) as f32 / 7.0 - 5.0).collect();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        let exact = logits.iter().map(|&l| f64::from(l).exp()).sum::<f64>().ln();
        let mut sums = Vec::new();
        for cut in [32, 64, 200] {
            let (mut summary, mut best) = (Summary::new(), [Candidate::default(); 5]);
            for (index, part) in logits.chunks(cut).enumerate() {
                summary.fold(&Scalar, part, (index * cut) as u32, 77, &mut best);
            }
            let ids: Vec<usize> = best.iter().map(|candidate| candidate.id as usize).collect();
            assert_eq!(ids, order[..5]);
            assert!((summary.log_sum() - exact).abs() < 1e-6);
            let output = OutputSpan { token: 0, target: 77 };
            assert_eq!(summary.target_log_prob(&output), summary.log_prob(logits[77]));
            sums.push(summary.log_sum().to_bits());
        }
        assert!(sums.iter().all(|&bits| bits == sums[0]));
    }

    #[test]
    fn fewer_entries_than_candidates_are_all_kept() {
        let (mut summary, mut best) = (Summary::new(), [Candidate::default(); 8]);
        summary.fold(&Scalar, &[1.0, 3.0, 2.0], 0, NO_TARGET, &mut best);
        assert_eq!(summary.kept(), 3);
        assert_eq!(best[..3].iter().map(|c| c.id).collect::<Vec<_>>(), [1, 2, 0]);
    }
}
