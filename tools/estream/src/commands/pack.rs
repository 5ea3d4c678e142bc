//! `estream pack`: a GGUF becomes a pack.

use crate::cli::Pack;
use crate::commands::distinct::distinct;
use crate::console::{Console, table};
use crate::interrupt::interruptible;
use estream::Result;
use estream::size::human;
use estream_pack::{Mapping, Options, convert};
use std::path::PathBuf;

/// Runs the command.
pub fn run(arguments: &Pack, console: &Console) -> Result<()> {
    let Pack { input, output, order } = arguments;
    distinct(output, std::iter::once(input).chain(order).map(PathBuf::as_path))?;
    let report = interruptible(|_| {
        let bar = console.bytes_bar("packing");
        let progress = |done, total| bar.show(done, total);
        let options = Options { order: order.clone(), progress: &progress };
        Ok(convert(input, output, &options)?)
    })?;
    console.answer(&report, || {
        let experts = format!(
            "{} layers of {} experts, {} ({} the largest record)",
            report.sparse_layers,
            report.experts,
            human(report.expert_bytes),
            human(report.record_bytes)
        );
        let tied = if report.tied_head { " (the head repeats the embedding)" } else { "" };
        table(&[
            ("pack", format!("{}, {}", output.display(), human(report.file_bytes))),
            ("architecture", report.architecture.clone()),
            ("experts", experts),
            ("resident", format!("{}{tied}", human(report.dense_bytes))),
            ("stored", stored(&report.tensors)),
        ])
    })
}

/// Types with the codecs that hold them, in the order of their first tensors; `--json` tells it tensor by tensor.
fn stored(tensors: &[Mapping]) -> String {
    let mut kinds: Vec<(&Mapping, usize)> = Vec::new();
    for tensor in tensors {
        match kinds.iter_mut().find(|(first, _)| first.r#type == tensor.r#type) {
            Some((_, count)) => *count += 1,
            None => kinds.push((tensor, 1)),
        }
    }
    let text = |(first, count): &(&Mapping, usize)| {
        // Plain elements are kept, whatever codec's order they stand in.
        let storage = if first.sub_block.is_some() { first.codec } else { "it is" };
        format!("{count} × {} as {storage}", first.r#type)
    };
    kinds.iter().map(text).collect::<Vec<_>>().join(", ")
}
