//! A GGUF, by the names of its tensors.

use super::{Inspection, Records, Sizes, Tally, duplicates, groups};
use crate::error::Result;
use crate::gguf::Gguf;
use crate::layout;
use crate::model::{Matrix, Model};
use crate::model_files::ModelFiles;

pub(super) fn inspect(files: &ModelFiles) -> Result<Inspection> {
    let gguf = files.gguf()?;
    let mut tally = Tally::default();
    for tensor in &gguf.tensors {
        tally.add(component(&tensor.name), tensor.ggml.name.to_owned(), 1, tensor.bytes);
    }
    let mut inspection = Inspection {
        kind: "gguf",
        file_bytes: files.bytes(),
        architecture: gguf.string("general.architecture")?,
        name: gguf.string("general.name")?,
        components: tally.components(),
        ..Inspection::default()
    };
    match Model::of(&gguf) {
        Ok(model) => describe(&mut inspection, &gguf, &model)?,
        Err(error) => inspection.refusal = Some(error.to_string()),
    }
    Ok(inspection)
}

fn describe(inspection: &mut Inspection, gguf: &Gguf<'_>, model: &Model) -> Result<()> {
    inspection.model = Sizes::of(&model.recipe);
    let name = |matrix: Matrix| gguf.tensors[matrix.tensor].ggml.name.to_owned();
    for layer in &model.sparse {
        let record = layer.record(0);
        let (_, record_bytes) = layout::record(&record)?;
        let [gate, up, down] = record.map(name);
        inspection.sparse_layers.push(Records {
            layer: layer.layer,
            experts: layer.experts,
            record_bytes,
            gate,
            up,
            down,
            order: None,
        });
    }
    let largest = inspection.sparse_layers.iter().max_by_key(|layer| layer.record_bytes);
    if let Some((experts, record_bytes)) = largest.map(|layer| (layer.experts, layer.record_bytes)) {
        inspection.record_bytes = Some(record_bytes);
        inspection.groups = groups(experts, record_bytes);
    }
    inspection.duplicates = duplicates(model);
    Ok(())
}

/// The component of a tensor, by the names that llama.cpp's converter gives.
fn component(name: &str) -> &'static str {
    let part = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(name, |(_, part)| part);
    match part {
        "token_embd.weight" => "embedding",
        "output.weight" => "head",
        _ if part.contains("norm") => "norms",
        _ if part.contains("_exps.") || is_one_expert(part) => "experts",
        _ if part.contains("_shexp.") => "shared experts",
        _ if part.starts_with("ffn_gate_inp") || part.starts_with("exp_probs") => "router",
        _ if part.starts_with("ffn_") => "dense feed-forward",
        _ if part.starts_with("attn_") => "attention",
        _ if part.starts_with("shortconv.") => "short convolution",
        _ => "other",
    }
}

/// `ffn_gate.7.weight`: a tensor of one expert.
fn is_one_expert(part: &str) -> bool {
    let number = part.strip_prefix("ffn_").and_then(|rest| rest.split('.').nth(1));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}
