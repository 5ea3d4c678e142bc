//! The roofline: what this machine gives at its best, measured in this run, and how much of it each kernel takes.
//!
//! Everything is measured on one thread. A product is bound by the instruction it is made of, and its digits are counted
//! as what they are: with two, a multiply-add is two byte products. What touches each number once is bound by memory: it
//! walks through more of it than any cache holds, and the bytes that it brings in (lines that are written are read first) are
//! held against plain reading, the best of one stream and of several.
//! Attention is bound by multiply-adds, of which only those that the causal mask leaves count.

mod bounds;

use super::storage::{self, Storage};
use crate::cli::Bench;
use crate::console::Console;
use crate::interrupt::{Interrupt, interruptible};
use bounds::{Bounds, LARGE, numbers, rate, read};
use estream::size::human;
use estream::{Error, Exit, KernelSet, Result, Verify};
use estream_dsp::kernels::peak::{Peak, peaks};
use estream_dsp::kernels::{Backend, choose};
use estream_host::Pack;
use estream_idl::format::Format;
use serde::Serialize;

/// Steps of a peak's loop in one turn.
const STEPS: u32 = 100_000;

/// One of each way in which weights are stored.
const FORMATS: [(&str, Format); 5] = [
    ("Q4_0", Format::Q4_0),
    ("Q4_K", Format::Q4_K),
    ("Q8_0", Format::Q8_0),
    ("Q6_K", Format::Q6_K),
    ("F16", Format::F16),
];

/// What `bench --roofline --json` prints.
#[derive(Debug, Serialize)]
pub struct Roofline {
    kernels: &'static str,
    peaks: Vec<Top>,
    memory_read_bytes_per_second: f64,
    storage: Storage,
    rows: Vec<Row>,
}

/// A unit's peak.
#[derive(Debug, Serialize)]
struct Top {
    name: &'static str,
    unit: &'static str,
    per_second: f64,
}

/// One kernel.
#[derive(Debug, Serialize)]
struct Row {
    kernel: &'static str,
    format: Option<&'static str>,
    activations: Option<&'static str>,
    unit: &'static str,
    per_second: f64,
    bound: Option<&'static str>,
    share: Option<f64>,
}

/// Runs the command.
pub fn run(arguments: &Bench, console: &Console) -> Result<()> {
    let roofline = interruptible(|interrupt| measure(arguments, interrupt))?;
    console.answer(&roofline, || markdown(&roofline))
}

fn measure(arguments: &Bench, interrupt: &Interrupt) -> Result<Roofline> {
    let pack = Pack::open(&arguments.pack, Verify::Never, &|_, _| ())?;
    let wanted = KernelSet::from(arguments.machine.kernels);
    let two = backend(wanted)?;
    let mut rows = Vec::new();
    let tops: Vec<(Peak, f64)> = peaks().map(|peak| (peak, rate(|| (peak.run)(STEPS)))).collect();
    interrupt.check()?;
    let memory = numbers(LARGE / 4);
    let read = rate(|| read::<1>(&memory)).max(rate(|| read::<4>(&memory)));
    let bound = Bounds { tops: &tops, read };
    for (name, format) in FORMATS {
        interrupt.check()?;
        rows.push(bound.decode(&two, name, format));
    }
    let integers = KernelSet::DIGITS.intersects(two.set);
    let one = if integers { Some(backend(wanted | KernelSet::ONE_DIGIT)?) } else { None };
    for backend in [Some(two), one].into_iter().flatten() {
        for (name, format) in FORMATS {
            interrupt.check()?;
            let products = backend.serving(&[format]);
            // The second backend has the same products in f32.
            if !products.in_place() || backend.set == two.set {
                rows.push(bound.multiply(&backend, products, name, format));
            }
        }
        let products = backend.serving(&[Format::Q4_0]);
        if !products.in_place() {
            rows.push(bound.pack(&backend, products, &memory));
        }
    }
    interrupt.check()?;
    rows.extend(bound.vectors(&two, memory));
    rows.extend(bound.attention(&two));
    let storage = storage::measure(&pack, interrupt)?;
    let peaks = tops.iter().map(|(peak, per_second)| Top {
        name: peak.name,
        unit: peak.unit,
        per_second: *per_second,
    });
    Ok(Roofline {
        kernels: two.set.name(),
        peaks: peaks.collect(),
        memory_read_bytes_per_second: read,
        storage,
        rows,
    })
}

fn backend(wanted: KernelSet) -> Result<Backend> {
    choose(wanted).filter(|backend| !backend.matrix).ok_or_else(|| {
        Error::new("kernels", Exit::Device, format!("no vector kernels {} here", wanted.name()))
    })
}

/// The report as markdown.
fn markdown(roofline: &Roofline) -> String {
    let giga = |rate: f64| format!("{:.1} G", rate / 1e9);
    let bytes = |rate: f64| format!("{}/s", human(rate as u64));
    let mut text =
        String::from("One thread of this machine, at its best:\n\n| what | a second |\n|---|---|\n");
    for top in &roofline.peaks {
        text += &format!("| {} | {} {} |\n", top.name, giga(top.per_second), top.unit);
    }
    text += &format!("| reading memory | {} |\n", bytes(roofline.memory_read_bytes_per_second));
    text += &format!("| reading storage | {} |\n", bytes(roofline.storage.best_bytes_per_second));
    text += &format!("\n{} kernels:\n\n", roofline.kernels);
    text += "| kernel | weights | activations | a second | bound | share |\n|---|---|---|---|---|---|\n";
    for row in &roofline.rows {
        let rate = match row.unit {
            "bytes" => bytes(row.per_second),
            unit => format!("{} {unit}", giga(row.per_second)),
        };
        let share = row.share.map_or(String::new(), |share| format!("{:.0} %", 100.0 * share));
        let [format, activations, bound] =
            [row.format, row.activations, row.bound].map(Option::unwrap_or_default);
        text += &format!("| {} | {format} | {activations} | {rate} | {bound} | {share} |\n", row.kernel);
    }
    text
}
