//! The router and its experts: probabilities of all, the k best by probability and bias (ties to the lowest index), each
//! `down(silu(gate·x) ∘ (up·x))` weighted after down; and the units that every token passes.

use super::gguf::Values;
use super::keys::Keys;
use super::linear::{Rows, multiply, softmax};
use super::{Choice, Error};

/// llama.cpp's floor of the sum that weights are divided by, 2⁻¹⁴.
const LEAST_SUM: f64 = 6.103_515_625e-5;

/// Gated units: one, or one for each expert.
#[derive(Clone, Debug)]
pub struct Units {
    /// Width → inner width.
    pub gate: Values,
    /// Width → inner width.
    pub up: Values,
    /// Inner width → width.
    pub down: Values,
}

impl Units {
    pub(super) fn load(keys: &Keys<'_>, layer: usize, suffix: &str) -> Result<Self, Error> {
        let part = |name: &str| keys.part(layer, &format!("ffn_{name}{suffix}.weight"));
        Ok(Self { gate: part("gate")?, up: part("up")?, down: part("down")? })
    }

    /// What unit `index` makes of the rows `x`.
    pub(super) fn forward(&self, x: &Rows, index: usize) -> Rows {
        let mut hidden = multiply(x, &self.gate, index);
        let up = multiply(x, &self.up, index);
        for (gate, up) in hidden.data.iter_mut().zip(&up.data) {
            *gate *= up / (1.0 + (-*gate).exp());
        }
        multiply(&hidden, &self.down, index)
    }
}

/// The router's function of its logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
    /// The logistic function of each.
    Sigmoid,
}

/// Which number of a chosen expert becomes its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighing {
    /// Its probability: right for every model.
    Probability,
    /// Its probability and bias, by which it was chosen: a mistake that engines have made, for the tests of the tests.
    Score,
}

/// How experts are chosen and weighed.
#[derive(Clone, Debug)]
pub struct Router {
    /// Experts of a token.
    pub chosen: usize,
    /// From logits to probabilities.
    pub gating: Gating,
    /// Added to probabilities for the choice alone.
    pub bias: Option<Values>,
    /// What is taken for weights.
    pub weighing: Weighing,
    /// Whether weights are divided by their sum.
    pub renormalise: bool,
    /// Factor of the weights.
    pub scale: f64,
}

impl Router {
    fn choose(&self, logits: &mut [f64]) -> Choice {
        match self.gating {
            Gating::Softmax => softmax(logits),
            Gating::Sigmoid => logits.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp())),
        }
        let probabilities = &*logits;
        let bias = |expert: usize| self.bias.as_ref().map_or(0.0, |bias| f64::from(bias.data[expert]));
        let score = |expert: usize| probabilities[expert] + bias(expert);
        let mut order: Vec<usize> = (0..probabilities.len()).collect();
        // A stable sort leaves equal scores in ascending order of index.
        order.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
        let margin =
            order.get(self.chosen).map_or(f64::INFINITY, |&next| score(order[self.chosen - 1]) - score(next));
        order.truncate(self.chosen);
        let mut weights: Vec<f64> = match self.weighing {
            Weighing::Probability => order.iter().map(|&expert| probabilities[expert]).collect(),
            Weighing::Score => order.iter().map(|&expert| score(expert)).collect(),
        };
        if self.renormalise {
            let sum = weights.iter().sum::<f64>().max(LEAST_SUM);
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        weights.iter_mut().for_each(|weight| *weight *= self.scale);
        Choice { experts: order, weights, margin }
    }
}

/// One layer's router and experts.
#[derive(Clone, Debug)]
pub struct Experts {
    /// Width → experts.
    pub logits: Values,
    /// How they are chosen.
    pub router: Router,
    /// The experts.
    pub units: Units,
    /// What every token passes besides, with weight 1.
    pub shared: Option<Units>,
}

impl Experts {
    pub(super) fn load(keys: &Keys<'_>, layer: usize, renormalise: bool) -> Result<Self, Error> {
        let gating = match keys.count("expert_gating_func")?.unwrap_or(1) {
            0 | 1 => Gating::Softmax,
            2 => Gating::Sigmoid,
            other => return Err(Error::Model(format!("gating function {other}"))),
        };
        let biased = keys.has_part(layer, "exp_probs_b.bias");
        let shared = keys.has_part(layer, "ffn_gate_shexp.weight");
        let router = Router {
            chosen: keys.needed("expert_used_count")?,
            gating,
            bias: biased.then(|| keys.part(layer, "exp_probs_b.bias")).transpose()?,
            weighing: Weighing::Probability,
            // A bool.
            renormalise: keys.count("expert_weights_norm")?.map_or(renormalise, |value| value != 0),
            // 0 is what converters write for "not scaled".
            scale: keys.float("expert_weights_scale")?.filter(|&scale| scale != 0.0).unwrap_or(1.0),
        };
        Ok(Self {
            logits: keys.part(layer, "ffn_gate_inp.weight")?,
            router,
            units: Units::load(keys, layer, "_exps")?,
            shared: shared.then(|| Units::load(keys, layer, "_shexp")).transpose()?,
        })
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.logits.shape[1]
    }

    /// The experts' contribution for the normed rows `x`, and what the router chose for each.
    pub(super) fn forward(&self, x: &Rows) -> (Rows, Vec<Choice>) {
        let mut logits = multiply(x, &self.logits, 0);
        let choices: Vec<_> = logits.iter_mut().map(|row| self.router.choose(row)).collect();
        let mut out = match &self.shared {
            Some(unit) => unit.forward(x, 0),
            None => Rows::zeros(x.len(), x.width),
        };
        for expert in 0..self.count() {
            let routes: Vec<(usize, f64)> = choices
                .iter()
                .enumerate()
                .filter_map(|(t, choice)| {
                    let place = choice.experts.iter().position(|&e| e == expert)?;
                    Some((t, choice.weights[place]))
                })
                .collect();
            if routes.is_empty() {
                continue;
            }
            let gathered =
                Rows { data: routes.iter().flat_map(|&(t, _)| x.row(t)).copied().collect(), width: x.width };
            let down = self.units.forward(&gathered, expert);
            for (row, &(t, weight)) in routes.iter().enumerate() {
                let sum = &mut out.data[t * x.width..][..x.width];
                sum.iter_mut().zip(down.row(row)).for_each(|(sum, term)| *sum += weight * term);
            }
        }
        (out, choices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(gating: Gating, renormalise: bool) -> Router {
        Router { chosen: 2, gating, bias: None, weighing: Weighing::Probability, renormalise, scale: 1.0 }
    }

    #[test]
    fn ties_go_to_the_lowest_index_and_the_margin_is_the_gap() {
        let logits = [0.1f64, 0.3, 0.2, 0.3, 0.1].map(f64::ln);
        let choice = router(Gating::Softmax, false).choose(&mut logits.clone());
        assert_eq!(choice.experts, [1, 3]);
        assert!(choice.weights.iter().all(|weight| (weight - 0.3).abs() < 1e-15));
        assert!((choice.margin - 0.1).abs() < 1e-15);
        let choice = router(Gating::Softmax, true).choose(&mut [0.0; 4]);
        assert_eq!(choice, Choice { experts: vec![0, 1], weights: vec![0.5; 2], margin: 0.0 });
        assert_eq!(router(Gating::Softmax, false).choose(&mut [0.0; 2]).margin, f64::INFINITY);
    }

    /// Case O13 of the users' list: a bias of 10 chooses an expert, whose weight stays its own.
    #[test]
    fn the_bias_chooses_and_does_not_weigh() {
        let bias = Some(Values { shape: vec![3], data: vec![0.0, 10.0, 0.0] });
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let biased = Router { bias, scale: 2.5, ..router(Gating::Sigmoid, false) };
        let choice = biased.choose(&mut [1.0, -2.0, 0.5]);
        assert_eq!(choice.experts, [1, 0]);
        assert_eq!(choice.weights, [2.5 * sigmoid(-2.0), 2.5 * sigmoid(1.0)]);
        let shares = Router { renormalise: true, ..biased }.choose(&mut [1.0, -2.0, 0.5]).weights;
        assert!((shares[0] - 2.5 * sigmoid(-2.0) / (sigmoid(-2.0) + sigmoid(1.0))).abs() < 1e-15);
    }
}
