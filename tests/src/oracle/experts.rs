//! The router and its experts: softmax over all, the k best (ties to the lowest index), each
//! `down(silu(gate·x) ∘ (up·x))` weighted after down.

use super::gguf::{Gguf, Values};
use super::linear::{Rows, multiply, softmax};
use super::{Choice, Error, model::Shape};

/// llama.cpp's floor of the sum that weights are divided by, 2⁻¹⁴.
const LEAST_SUM: f64 = 6.103_515_625e-5;

/// One layer's router and experts.
#[derive(Debug)]
pub(super) struct Experts {
    router: Values,
    gate: Values,
    up: Values,
    down: Values,
}

impl Experts {
    pub(super) fn load(file: &Gguf, layer: usize) -> Result<Self, Error> {
        let tensor = |name: &str| file.tensor(&format!("blk.{layer}.{name}.weight"));
        Ok(Self {
            router: tensor("ffn_gate_inp")?,
            gate: tensor("ffn_gate_exps")?,
            up: tensor("ffn_up_exps")?,
            down: tensor("ffn_down_exps")?,
        })
    }

    /// The experts' contribution for the normed rows `x`, and what the router chose for each.
    pub(super) fn forward(&self, x: &Rows, shape: &Shape) -> (Rows, Vec<Choice>) {
        let mut scores = multiply(x, &self.router, 0);
        let choices: Vec<_> = scores
            .iter_mut()
            .map(|row| {
                softmax(row);
                choose(row, shape.chosen, shape.renormalise)
            })
            .collect();
        let mut out = Rows::zeros(x.len(), x.width);
        for expert in 0..shape.experts {
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
            let mut hidden = multiply(&gathered, &self.gate, expert);
            let up = multiply(&gathered, &self.up, expert);
            for (gate, up) in hidden.data.iter_mut().zip(&up.data) {
                *gate *= up / (1.0 + (-*gate).exp());
            }
            let down = multiply(&hidden, &self.down, expert);
            for (row, &(t, weight)) in routes.iter().enumerate() {
                let sum = &mut out.data[t * x.width..][..x.width];
                sum.iter_mut().zip(down.row(row)).for_each(|(sum, term)| *sum += weight * term);
            }
        }
        (out, choices)
    }
}

/// The `count` best of `probabilities`.
fn choose(probabilities: &[f64], count: usize, renormalise: bool) -> Choice {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    // A stable sort leaves equal probabilities in ascending order of index.
    order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
    let margin =
        order.get(count).map_or(f64::INFINITY, |&next| probabilities[order[count - 1]] - probabilities[next]);
    order.truncate(count);
    let mut weights: Vec<f64> = order.iter().map(|&e| probabilities[e]).collect();
    if renormalise {
        let sum = weights.iter().sum::<f64>().max(LEAST_SUM);
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }
    Choice { experts: order, weights, margin }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_lowest_index_and_the_margin_is_the_gap() {
        let choice = choose(&[0.1, 0.3, 0.2, 0.3, 0.1], 2, false);
        assert_eq!((choice.experts, choice.weights), (vec![1, 3], vec![0.3, 0.3]));
        assert!((choice.margin - 0.1).abs() < 1e-15);
        assert_eq!(
            choose(&[0.25; 4], 2, true),
            Choice { experts: vec![0, 1], weights: vec![0.5; 2], margin: 0.0 }
        );
        assert_eq!(choose(&[0.5, 0.5], 2, false).margin, f64::INFINITY);
    }
}
