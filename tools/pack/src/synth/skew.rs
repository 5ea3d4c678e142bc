//! Biases under which a router with random rows gives its experts Zipf shares.
//!
//! A token's logits are `bias + noise` with about normal noise, and its best k experts are taken. No formula gives the
//! shares of the routes from the biases (for Gumbel noise and k = 1 it would be the softmax), so the biases are fitted:
//! each moves by the logarithm of wanted over found, on the same noise every time, until they agree. No expert can have
//! more than 1/k of the routes; what Zipf's law wants above that goes to the others.

use super::random::Random;

const ROUNDS: usize = 48;
/// Noise values that are kept; they set the number of sampled tokens.
const NOISE: usize = 1 << 19;
/// The part of a round's correction that is applied.
const STEP: f32 = 0.6;

/// Biases by rank, in units of the logits, for normal noise of deviation `noise`.
pub(super) fn biases(experts: usize, chosen: usize, skew: f32, noise: f32) -> Vec<f32> {
    let wanted = shares(experts, chosen, skew);
    let samples = (NOISE / experts).max(256);
    let mut random = Random::of(0x21bf, experts as u64);
    let noise_values: Vec<f32> = (0..samples * experts).map(|_| noise * random.normal()).collect();
    let mut biases: Vec<f32> = (1..=experts).map(|rank| -skew * (rank as f32).ln()).collect();
    for _ in 0..ROUNDS {
        let found = route(&biases, &noise_values, chosen);
        for ((bias, wanted), found) in biases.iter_mut().zip(&wanted).zip(&found) {
            // A quarter of a route on either side keeps experts that got none finite.
            let routes = (samples * chosen) as f32;
            *bias += STEP * noise * ((wanted * routes + 0.25) / (*found as f32 + 0.25)).ln();
        }
    }
    let mean = biases.iter().sum::<f32>() / experts as f32;
    biases.iter_mut().for_each(|bias| *bias -= mean);
    biases
}

/// Zipf shares by rank, none above 1/k (less a little, so that it can be reached).
pub(super) fn shares(experts: usize, chosen: usize, skew: f32) -> Vec<f32> {
    let limit = if chosen < experts { 0.98 / chosen as f32 } else { 1.0 };
    let weights: Vec<f32> = (1..=experts).map(|rank| (rank as f32).powf(-skew)).collect();
    let mut full = 0;
    loop {
        let rest: f32 = weights[full..].iter().sum();
        let scale = (1.0 - full as f32 * limit) / rest;
        // Weights fall with the rank: only the next one can be above the limit first.
        if full + 1 < experts && weights[full] * scale > limit {
            full += 1;
            continue;
        }
        let share = |(index, weight): (usize, &f32)| if index < full { limit } else { weight * scale };
        return weights.iter().enumerate().map(share).collect();
    }
}

fn route(biases: &[f32], noise: &[f32], chosen: usize) -> Vec<u32> {
    let mut counts = vec![0; biases.len()];
    let mut logits: Vec<(f32, usize)> = Vec::with_capacity(biases.len());
    for token in noise.chunks_exact(biases.len()) {
        logits.clear();
        logits.extend(biases.iter().zip(token).map(|(bias, noise)| bias + noise).zip(0..));
        if chosen < logits.len() {
            logits.select_nth_unstable_by(chosen - 1, |a, b| b.0.total_cmp(&a.0));
        }
        logits[..chosen].iter().for_each(|&(_, expert)| counts[expert] += 1);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_zipfs_up_to_the_limit() {
        let plain = shares(64, 1, 1.0);
        let harmonic: f32 = (1..=64).map(|rank| 1.0 / rank as f32).sum();
        assert!((plain[0] - 1.0 / harmonic).abs() < 1e-6 && (plain[9] - 0.1 / harmonic).abs() < 1e-6);
        let limited = shares(16, 4, 2.0);
        assert!((limited.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        assert!(limited.iter().all(|&share| share <= 0.245 + 1e-6));
        assert!(shares(8, 8, 1.0).iter().sum::<f32>() > 0.999);
    }
}
