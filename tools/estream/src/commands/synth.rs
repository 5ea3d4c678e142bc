//! `estream synth`: a model of a known shape with random weights.

use crate::cli::{Format, Synth};
use crate::commands::distinct::distinct;
use crate::console::{Console, table};
use crate::interrupt::interruptible;
use estream::Result;
use estream::size::human;
use estream_pack::{SynthFormat, SynthOptions};

/// Runs the command.
pub fn run(arguments: Synth, console: &Console) -> Result<()> {
    let output = arguments.output.display().to_string();
    distinct(&arguments.output, [])?;
    let report = interruptible(|_| {
        let bar = console.bytes_bar("writing");
        Ok(estream_pack::synth(&SynthOptions {
            shape: arguments.shape,
            layers: arguments.layers,
            seed: arguments.seed,
            skew: arguments.skew,
            format: match arguments.format {
                Format::Gguf => SynthFormat::Gguf,
                Format::Pack => SynthFormat::Pack,
            },
            output: arguments.output,
            progress: &|done, total| bar.show(done, total),
        })?)
    })?;
    console.answer(&report, || {
        let share = report.share.as_ref().map_or_else(
            || "not measured".to_owned(),
            |share| {
                format!(
                    "{:.2} % of the routes for the most wanted expert of layer {} (even: {:.2} %), of {} sampled tokens",
                    100.0 * share.max_share,
                    share.layer,
                    100.0 * share.even_share,
                    share.samples
                )
            },
        );
        table(&[
            ("file", format!("{output}, {}", human(report.file_bytes))),
            ("architecture", format!("{}, {} layers", report.architecture, report.layers)),
            ("share reached", share),
        ])
    })
}
