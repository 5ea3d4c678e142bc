//! The experts' shares that a synthetic router gives: measured where that is cheap, and labelled with where that was.

use crate::encode;
use crate::error::{Error, Result};
use crate::gguf::{Gguf, Tensor};
use serde::Serialize;

/// Tokens that are routed for the measurement.
const SAMPLES: u64 = 2048;

/// How unevenly tokens choose experts, measured by routing sampled embeddings through the first router: exact for a
/// model without mixers, an estimate for the others and for deeper layers.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// The layer whose router was measured.
    pub layer: u32,
    /// Token embeddings that were routed.
    pub samples: u64,
    /// The largest share of routes that one expert got.
    pub max_share: f64,
    /// What every expert would get if all were equal, 1/E.
    pub even_share: f64,
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Routes sampled embeddings through the first router of the file.
pub(super) fn measure(gguf: &Gguf<'_>, layer: u32, chosen: usize) -> Result<Option<Share>> {
    let tensor = |name: &str| gguf.find(name).map(|index| &gguf.tensors[index]);
    let read = |tensor: &Tensor, row: u64, rows: u64| {
        let mut bytes = vec![0; (rows * tensor.row_bytes()) as usize];
        gguf.read_data(tensor, row * tensor.row_bytes(), &mut bytes)?;
        Ok::<_, Error>(bytes)
    };
    let names = ["ffn_norm", "ffn_gate_inp"].map(|part| format!("blk.{layer}.{part}.weight"));
    let (Some(embedding), Some(norm), Some(router)) =
        (tensor("token_embd.weight"), tensor(&names[0]), tensor(&names[1]))
    else {
        return Ok(None);
    };
    let Some(encoding) = encode::encoding(embedding.ggml) else { return Ok(None) };
    let (width, experts) = (router.dims[0] as usize, router.dims[1] as usize);
    let norm = floats(&read(norm, 0, 1)?);
    let router = floats(&read(router, 0, experts as u64)?);
    let vocab = embedding.dims[1];
    let samples = SAMPLES.min(vocab);
    let mut counts = vec![0u64; experts];
    for sample in 0..samples {
        let x = encode::decode_row(encoding, embedding.ggml, &read(embedding, sample * vocab / samples, 1)?);
        let rms = (x.iter().map(|x| x * x).sum::<f32>() / width as f32).sqrt();
        let x: Vec<f32> = x.iter().zip(&norm).map(|(x, weight)| x / rms * weight).collect();
        let logit = |row: &[f32]| row.iter().zip(&x).map(|(a, b)| a * b).sum::<f32>();
        let mut logits: Vec<(f32, usize)> = router.chunks_exact(width).map(logit).zip(0..).collect();
        logits.sort_by(|a, b| b.0.total_cmp(&a.0));
        logits.iter().take(chosen).for_each(|&(_, expert)| counts[expert] += 1);
    }
    let routes = (samples * chosen as u64) as f64;
    let max_share = counts.iter().copied().max().unwrap_or(0) as f64 / routes;
    Ok(Some(Share { layer, samples, max_share, even_share: 1.0 / experts as f64 }))
}
