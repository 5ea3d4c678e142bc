//! The router: logits to chosen experts and weights, a token at a time.
//!
//! Logits become probabilities (softmax over all experts, or each one's logistic function); the k best are chosen, by
//! probability plus bias where the recipe has one. Ties go to the lowest index, so the choice is a function of the logits
//! alone. The bias never enters a weight. Where the recipe renormalises, the chosen weights are divided by their sum (not
//! below 2⁻¹⁴, as the published engines do).

use crate::kernels::Kernels;
use estream_idl::recipe::{Experts, Gating};

/// The floor of a sum of chosen weights, 2⁻¹⁴.
const SUM_FLOOR: f32 = 6.103_515_6e-5;

/// Chooses for one token: `logits[experts]` becomes probabilities, `chosen[k]` experts best first, `weights[k]` their α.
/// `bias` is empty or one a expert.
pub fn choose(
    kernels: &dyn Kernels,
    experts: &Experts,
    logits: &mut [f32],
    bias: &[f32],
    chosen: &mut [u16],
    weights: &mut [f32],
) {
    match experts.gating {
        Gating::Softmax => {
            let max = kernels.max(logits);
            let sum = kernels.exp_sum(logits, max);
            logits.iter_mut().for_each(|value| *value /= sum);
        }
        Gating::Sigmoid => logits.chunks_mut(64).for_each(|part| logistic(kernels, part)),
    }
    let score = |index: usize| logits[index] + bias.get(index).copied().unwrap_or(0.0);
    for (rank, weight) in weights.iter_mut().enumerate().take(chosen.len()) {
        let (taken, rest) = chosen.split_at_mut(rank);
        let mut best = None;
        for index in (0..logits.len()).filter(|&index| !taken.contains(&(index as u16))) {
            // A score that is not a number is never better; the first free index stands in, and the pass fails later.
            if best.is_none_or(|(_, high)| score(index) > high) {
                best = Some((index, score(index)));
            }
        }
        let Some((index, _)) = best else { return };
        rest[0] = index as u16;
        *weight = logits[index];
    }
    if experts.renormalise {
        let total: f32 = weights.iter().sum::<f32>().max(SUM_FLOOR);
        weights.iter_mut().for_each(|weight| *weight /= total);
    }
    if experts.scale != 1.0 {
        weights.iter_mut().for_each(|weight| *weight *= experts.scale);
    }
}

/// `1 / (1 + e^−x)` of up to 64 values, by the exponential of −|x| so that neither side overflows.
fn logistic(kernels: &dyn Kernels, values: &mut [f32]) {
    let mut powers = [0f32; 64];
    let powers = &mut powers[..values.len()];
    powers.iter_mut().zip(&*values).for_each(|(power, value)| *power = -value.abs());
    kernels.exp_sum(powers, 0.0);
    for (value, &mut power) in values.iter_mut().zip(powers) {
        *value = if *value < 0.0 { power / (1.0 + power) } else { 1.0 / (1.0 + power) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::scalar::Scalar;

    fn experts(renormalise: bool) -> Experts {
        Experts {
            experts: 4,
            chosen: 2,
            width: 32,
            gating: Gating::Softmax,
            biased: false,
            renormalise,
            scale: 1.0,
            shared: 0,
        }
    }

    #[test]
    fn ties_go_to_the_lowest_index_and_weights_are_probabilities() {
        let (mut chosen, mut weights) = ([0; 2], [0.0; 2]);
        choose(&Scalar, &experts(false), &mut [1.0, 3.0, 3.0, 3.0], &[], &mut chosen, &mut weights);
        assert_eq!(chosen, [1, 2]);
        let expected = 1.0 / (3.0 + (-2.0f64).exp());
        assert!(weights.iter().all(|&weight| (f64::from(weight) - expected).abs() < 1e-7), "{weights:?}");
    }

    #[test]
    fn renormalised_weights_sum_to_one() {
        let (mut chosen, mut weights) = ([0; 2], [0.0; 2]);
        choose(&Scalar, &experts(true), &mut [0.5, -1.0, 2.0, 0.0], &[], &mut chosen, &mut weights);
        assert_eq!(chosen, [2, 0]);
        assert!((weights[0] + weights[1] - 1.0).abs() < 1e-6);
        assert!((weights[0] / weights[1] - 1.5f32.exp()).abs() < 1e-4);
    }

    #[test]
    fn values_that_are_not_numbers_choose_distinct_experts() {
        let (mut chosen, mut weights) = ([0; 2], [0.0; 2]);
        choose(&Scalar, &experts(false), &mut [f32::NAN; 4], &[], &mut chosen, &mut weights);
        assert_eq!(chosen, [0, 1]);
    }

    #[test]
    fn the_bias_chooses_and_the_sigmoid_weighs() {
        let experts = Experts { gating: Gating::Sigmoid, biased: true, scale: 2.0, ..experts(false) };
        let (mut chosen, mut weights) = ([0; 2], [0.0; 2]);
        let logits = [1.0f32, -2.0, 0.5, -100.0];
        choose(&Scalar, &experts, &mut logits.clone(), &[0.0, 10.0, 0.0, 0.0], &mut chosen, &mut weights);
        assert_eq!(chosen, [1, 0]);
        for (weight, logit) in weights.iter().zip([-2.0f64, 1.0]) {
            assert!((f64::from(*weight) - 2.0 / (1.0 + (-logit).exp())).abs() < 1e-6, "{weights:?}");
        }
    }
}
