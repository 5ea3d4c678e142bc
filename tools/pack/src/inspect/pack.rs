//! A pack, by its directory.

use super::{Inspection, Records, Sizes, Tally, groups, tied_head};
use crate::convert::TIED_HEAD;
use crate::error::Result;
use crate::gguf::{Gguf, Value};
use crate::mapping::format_name;
use crate::pack_file::{PackFile, stored_order};
use estream_idl::format::FormatBytes;
use estream_idl::pack::{MatrixEntry, Role};
use std::path::Path;

pub(super) fn inspect(path: &Path) -> Result<Inspection> {
    let pack = PackFile::open(path)?;
    let header = pack.header;
    let directory = pack.directory()?;
    let mut tally = Tally::default();
    let mut head_bytes = 0;
    for matrix in directory.matrices.iter() {
        tally.add(component(&matrix), type_name(&matrix.format), 1, matrix.bytes);
        if matrix.role == Role::Head as u16 {
            head_bytes = matrix.bytes;
        }
    }
    tally.add("embedding", type_name(&directory.header.embedding_format), 1, header.embedding.bytes);
    let mut sparse_layers = Vec::new();
    for layer in directory.layers.iter() {
        let [gate, up, down] = [&layer.gate, &layer.up, &layer.down].map(|part| type_name(&part.format));
        let mixed = if gate == up && up == down { gate.clone() } else { format!("{gate}/{up}/{down}") };
        tally.add(
            "experts",
            mixed,
            3 * u64::from(layer.experts),
            u64::from(layer.experts) * layer.record_bytes,
        );
        let order = stored_order(&directory, &layer);
        sparse_layers.push(Records {
            layer: layer.layer,
            experts: layer.experts,
            record_bytes: layer.record_bytes,
            gate,
            up,
            down,
            order: order.filter(|order| !order.iter().enumerate().all(|(place, &e)| usize::from(e) == place)),
        });
    }
    let model = Sizes::of(&pack.recipe);
    let tokenizer = pack.file.narrow(header.tokenizer.file, header.tokenizer.bytes.into());
    let text = Gguf::read(&tokenizer)?;
    let tied = text.entry(TIED_HEAD).is_some_and(|entry| entry.value == Value::Bool(true));
    Ok(Inspection {
        kind: "pack",
        file_bytes: header.file_bytes,
        architecture: text.string("general.architecture")?,
        name: text.string("general.name")?,
        refusal: None,
        model,
        components: tally.components(),
        record_bytes: Some(header.record_bytes),
        sparse_layers,
        groups: groups(header.experts_per_layer, header.record_bytes),
        duplicates: if tied { vec![tied_head(head_bytes)] } else { Vec::new() },
    })
}

fn component(matrix: &MatrixEntry) -> &'static str {
    const ATTENTION: [Role; 4] = [Role::Query, Role::Key, Role::Value, Role::Output];
    let is = |role: Role| matrix.role == role as u16;
    if is(Role::Head) {
        "head"
    } else if is(Role::Router) {
        "router"
    } else if ATTENTION.into_iter().any(is) {
        "attention"
    } else {
        "norms"
    }
}

/// The ggml type that a descriptor stores.
fn type_name(bytes: &FormatBytes) -> String {
    bytes.check().map_or("?", |format| format_name(&format)).to_owned()
}
