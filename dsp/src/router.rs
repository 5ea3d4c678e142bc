//! The router: logits to chosen experts and weights, a token at a time.
//!
//! Softmax over all experts, then the k most likely; ties go to the lowest index, so the choice is a function of the
//! logits alone. Where the recipe renormalises, the chosen weights are divided by their sum (not below 2⁻¹⁴, as the
//! published engines do).

use crate::kernels::Kernels;
use estream_idl::recipe::Experts;

/// The floor of a sum of chosen weights, 2⁻¹⁴.
const SUM_FLOOR: f32 = 6.103_515_6e-5;

/// Chooses for one token: `logits[experts]` becomes probabilities, `chosen[k]` experts best first, `weights[k]` their α.
pub fn choose(
    kernels: &dyn Kernels,
    experts: &Experts,
    logits: &mut [f32],
    chosen: &mut [u16],
    weights: &mut [f32],
) {
    let max = kernels.max(logits);
    let sum = kernels.exp_sum(logits, max);
    for (rank, (expert, weight)) in chosen.iter_mut().zip(weights.iter_mut()).enumerate() {
        // Chosen entries are marked below zero, which no probability is.
        let mut best = usize::MAX;
        for (index, &value) in logits.iter().enumerate() {
            if value >= 0.0 && (best == usize::MAX || value > logits[best]) {
                best = index;
            }
        }
        // Only values that are not numbers leave nothing to choose: the index stays valid, the pass fails at its end.
        let best = if best == usize::MAX { rank } else { best };
        *expert = best as u16;
        *weight = logits[best] / sum;
        logits[best] = -1.0;
    }
    if experts.renormalise {
        let total: f32 = weights.iter().sum::<f32>().max(SUM_FLOOR);
        weights.iter_mut().for_each(|weight| *weight /= total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::scalar::Scalar;

    fn experts(renormalise: bool) -> Experts {
        Experts { experts: 4, chosen: 2, width: 32, renormalise }
    }

    #[test]
    fn ties_go_to_the_lowest_index_and_weights_are_probabilities() {
        let (mut chosen, mut weights) = ([0; 2], [0.0; 2]);
        choose(&Scalar, &experts(false), &mut [1.0, 3.0, 3.0, 3.0], &mut chosen, &mut weights);
        assert_eq!(chosen, [1, 2]);
        let expected = 1.0 / (3.0 + (-2.0f64).exp());
        assert!(weights.iter().all(|&weight| (f64::from(weight) - expected).abs() < 1e-7), "{weights:?}");
    }

    #[test]
    fn renormalised_weights_sum_to_one() {
        let (mut chosen, mut weights) = ([0; 2], [0.0; 2]);
        choose(&Scalar, &experts(true), &mut [0.5, -1.0, 2.0, 0.0], &mut chosen, &mut weights);
        assert_eq!(chosen, [2, 0]);
        assert!((weights[0] + weights[1] - 1.0).abs() < 1e-6);
        assert!((weights[0] / weights[1] - 1.5f32.exp()).abs() < 1e-4);
    }

    #[test]
    fn values_that_are_not_numbers_choose_distinct_experts() {
        let (mut chosen, mut weights) = ([0; 2], [0.0; 2]);
        choose(&Scalar, &experts(false), &mut [f32::NAN; 4], &mut chosen, &mut weights);
        assert_eq!(chosen, [0, 1]);
    }
}
