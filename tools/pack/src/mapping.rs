//! How each tensor was stored: its type in the file, its codec in the pack, and what a weight costs in both.

use crate::encode;
use crate::gguf::{Gguf, Tensor};
use crate::model::{Matrix, Model, Place};
use estream_idl::format::{Codec, Format, Min, Scale};
use serde::Serialize;
use std::collections::BTreeSet;

/// One tensor's storage. A tied head is stored twice and listed twice.
#[derive(Clone, Debug, Serialize)]
pub struct Mapping {
    /// The tensor's name.
    pub tensor: String,
    /// Its extents, the contiguous one first.
    pub shape: Vec<u64>,
    /// Its ggml type.
    pub r#type: &'static str,
    /// The codec: `N4`, `B8` or `F16`.
    pub codec: &'static str,
    /// `strips`, `rows` (the embedding) or `vector`.
    pub layout: &'static str,
    /// Weights that share a scale; `None` for plain elements.
    pub sub_block: Option<usize>,
    /// How their scale is stored; `None` for plain elements.
    pub scale: Option<&'static str>,
    /// How their minimum is stored; `None` where they have none.
    pub min: Option<&'static str>,
    /// Bits a weight in the pack, scales included, without the padding of extents to pages.
    pub bits_per_weight: f64,
    /// Bits a weight in the file.
    pub file_bits_per_weight: f64,
}

/// What a model's tensors become, in the order of the pack.
pub(crate) fn mappings(gguf: &Gguf<'_>, model: &Model) -> Vec<Mapping> {
    let stored = |matrix: &Matrix| (&gguf.tensors[matrix.tensor], *matrix);
    let strips = |(tensor, matrix): (&Tensor, Matrix)| {
        let (k, n) = (matrix.k as usize, matrix.n as usize);
        match n {
            0 => mapping(tensor, &Format::F32, "vector", 32.0),
            _ => {
                let bits = matrix.format.matrix_bytes(k, n) as f64 * 8.0 / (k * n) as f64;
                mapping(tensor, &matrix.format, "strips", bits)
            }
        }
    };
    let mut all: Vec<Mapping> = model.dense.iter().map(|dense| strips(stored(&dense.matrix))).collect();
    let (tensor, matrix) = stored(&model.embedding);
    let row = matrix.format.row(matrix.k as usize).bytes as f64 * 8.0 / f64::from(matrix.k);
    all.push(mapping(tensor, &matrix.format, "rows", row));
    let mut seen = BTreeSet::new();
    for layer in &model.sparse {
        for projection in [&layer.gate, &layer.up, &layer.down] {
            let tensors = match &projection.place {
                Place::Stacked { tensor, .. } => std::slice::from_ref(tensor),
                Place::Each(tensors) => tensors,
            };
            // A fused tensor holds two projections.
            let new = tensors.iter().filter(|&&tensor| seen.insert(tensor));
            all.extend(new.map(|&tensor| strips((&gguf.tensors[tensor], projection.of(0)))));
        }
    }
    all
}

fn mapping(tensor: &Tensor, format: &Format, layout: &'static str, bits_per_weight: f64) -> Mapping {
    let used = tensor.dims.iter().rposition(|&dim| dim != 1).map_or(1, |last| last + 1);
    Mapping {
        tensor: tensor.name.clone(),
        shape: tensor.dims[..used].to_vec(),
        r#type: tensor.ggml.name,
        codec: codec_name(format),
        layout,
        sub_block: (format.codec != Codec::F16).then_some(format.sub_block),
        scale: match format.scale {
            Scale::None => None,
            Scale::F16 => Some("f16"),
            Scale::E8M0 => Some("e8m0"),
            Scale::SuperU8 => Some("super-u8"),
            Scale::SuperI8 => Some("super-i8"),
        },
        min: match format.min {
            Min::None => None,
            Min::F16 => Some("f16"),
            Min::SuperU8 => Some("super-u8"),
        },
        bits_per_weight,
        file_bits_per_weight: tensor.bytes as f64 * 8.0 / tensor.elements() as f64,
    }
}

fn codec_name(format: &Format) -> &'static str {
    match format.codec {
        Codec::N4 => "N4",
        Codec::B8 => "B8",
        Codec::F16 => "F16",
    }
}

/// The ggml type that a format stores, or its codec where it is no known type's.
pub(crate) fn format_name(format: &Format) -> &'static str {
    encode::type_name(format).unwrap_or_else(|| codec_name(format))
}
