//! Passes on paper: shapes of models, routes drawn by a fixed generator, and the time that kernels take.

use super::Device;
use crate::random::Random;
use estream_idl::address::PAGE;

/// The numbers of a model that matter for time.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its name in tables.
    pub name: &'static str,
    /// Layers, all of them with experts.
    pub layers: u32,
    /// Experts of a layer.
    pub experts: u32,
    /// Experts that a token goes to.
    pub chosen: u32,
    /// Width of the residual stream.
    pub width: u64,
    /// Inner width of an expert.
    pub inner: u64,
    /// Vocabulary entries.
    pub vocab: u64,
}

/// Three shapes: many small experts, very many, few large ones.
pub const SHAPES: [Shape; 3] = [
    Shape { name: "olmoe", layers: 16, experts: 64, chosen: 8, width: 2048, inner: 1024, vocab: 50_304 },
    Shape { name: "qwen3moe", layers: 48, experts: 128, chosen: 8, width: 2048, inner: 768, vocab: 151_936 },
    Shape { name: "mixtral", layers: 32, experts: 8, chosen: 2, width: 4096, inner: 14_336, vocab: 32_000 },
];

/// A layer on paper. Times are nanoseconds.
#[derive(Clone, Debug)]
pub struct Layer {
    /// W_l.
    pub record_bytes: u32,
    /// Mixer and router.
    pub mixer_ns: u64,
    /// What all tokens pass besides.
    pub unit_ns: u64,
    /// One call of an expert, whatever its rows.
    pub call_ns: u64,
    /// Each row of it.
    pub row_ns: u64,
    /// Routes of each storage position.
    pub rows: Vec<u32>,
}

/// A pass on paper.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The layers.
    pub layers: Vec<Layer>,
    /// Before the first layer.
    pub embed_ns: u64,
    /// After the last one.
    pub head_ns: u64,
}

impl Shape {
    /// W_e in Q4_0: 4.5 bits a weight, in whole pages.
    #[must_use]
    pub fn record_bytes(&self) -> u32 {
        (3 * self.width * self.inner * 9 / 16).next_multiple_of(PAGE as u64) as u32
    }

    /// A pass of `tokens` tokens on `device`; the experts' shares of the routes follow Zipf's law with exponent `skew`.
    #[must_use]
    pub fn workload(&self, device: &Device, tokens: u32, skew: f64) -> Workload {
        let ns = |macs: u64| (macs as f64 / device.macs * 1e9) as u64;
        let tokens_wide = u64::from(tokens);
        let row = 3 * self.width * self.inner;
        // Four products of the width, and attention over all earlier tokens.
        let mixer = tokens_wide * (4 * self.width * self.width + tokens_wide * self.width);
        let mut random = Random::new(u64::from(tokens) ^ self.inner);
        let layer = |_| Layer {
            record_bytes: self.record_bytes(),
            mixer_ns: ns(mixer),
            unit_ns: 0,
            // Decoding the weights costs as much as four rows.
            call_ns: ns(4 * row),
            row_ns: ns(row),
            rows: self.routes(tokens, skew, &mut random),
        };
        Workload {
            layers: (0..self.layers).map(layer).collect(),
            embed_ns: 200_000,
            head_ns: ns(self.width * self.vocab),
        }
    }

    /// Routes of each expert of one layer.
    fn routes(&self, tokens: u32, skew: f64, random: &mut Random) -> Vec<u32> {
        let experts = self.experts as usize;
        // Which expert is how popular is drawn for each layer.
        let weights: Vec<f64> =
            random.permutation(experts).iter().map(|&rank| ((rank + 1) as f64).powf(-skew)).collect();
        let mut rows = vec![0; experts];
        for _ in 0..tokens {
            let mut left = weights.clone();
            for _ in 0..self.chosen {
                let mut point = random.bits() as f64 / 2f64.powi(64) * left.iter().sum::<f64>();
                let chosen = left.iter().position(|&weight| {
                    point -= weight;
                    point < 0.0 && weight > 0.0
                });
                let chosen = chosen.unwrap_or_else(|| left.iter().rposition(|&w| w > 0.0).unwrap_or(0));
                left[chosen] = 0.0;
                rows[chosen] += 1;
            }
        }
        rows
    }
}
