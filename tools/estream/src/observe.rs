//! From a pass to the tuner's trace: events and reads, matched by the pack's tables.
//!
//! Reads are matched by their place in the file, so the trace holds what the disk was asked for and not what somebody
//! thinks was asked for. On the native device events and reads carry the same clock.

use crate::Pass;
use crate::errors::{Error, Exit, Result};
use estream_host::Pack;
use estream_idl::address::{PAGE, Segment};
use estream_idl::message::{Event, EventKind};
use estream_idl::pack::LayerEntry;
use estream_tune::{LayerTrace, Load, Run, Trace};

/// The trace of a pass with groups of `group` experts.
///
/// # Errors
/// `events-dropped` where the account of the pass is not whole.
pub fn trace(pass: &Pass, pack: &Pack, group: u32) -> Result<Trace> {
    if pass.report.events_dropped > 0 {
        let message = format!("{} events of the pass were lost", pass.report.events_dropped);
        return Err(Error::new("events-dropped", Exit::Runtime, message));
    }
    let layers: Vec<LayerEntry> = pack.tables().layers.iter().collect();
    let first = |layer: u32, wanted: EventKind| {
        let found = pass.events.iter().find(|event| event.layer == layer && event.kind == wanted);
        found.map(|event| event.time_ns)
    };
    let layer_trace = |entry: &LayerEntry| {
        let begin_ns = first(entry.layer, EventKind::Layer)?;
        let routed_ns = first(entry.layer, EventKind::Routed)?;
        // What all tokens pass is over when the executor looks for a bank: it begins one, or waits. Waits before the routes
        // were for streamed weights.
        let opens = |event: &&Event| {
            event.layer == entry.layer
                && event.time_ns >= routed_ns
                && matches!(event.kind, EventKind::BankBegin | EventKind::WaitBegin)
        };
        let open_ns = pass.events.iter().find(opens).map_or(routed_ns, |event| event.time_ns);
        Some(LayerTrace { begin_ns, routed_ns, open_ns, groups: entry.experts.div_ceil(group) })
    };
    let traced: Option<Vec<_>> = layers.iter().map(layer_trace).collect();
    let traced = traced
        .ok_or_else(|| Error::new("events-dropped", Exit::Runtime, "a layer of the pass left no events"))?;
    let begin_ns = pass.events.first().map_or(0, |event| event.time_ns);
    Ok(Trace {
        begin_ns,
        end_ns: begin_ns + pass.report.pass_ns,
        layers: traced,
        loads: loads(pass, &layers, group),
        runs: runs(&pass.events, &layers),
    })
}

/// The reads of expert records, by layer and group.
fn loads(pass: &Pass, layers: &[LayerEntry], group: u32) -> Vec<Load> {
    let place = |file: u64| {
        let index = layers.partition_point(|entry| entry.file <= file).checked_sub(1)?;
        let record = (file - layers[index].file) / layers[index].record_bytes;
        Some((index as u32, record as u32 / group))
    };
    let reads = pass.reads.iter().filter(|read| read.segment == Segment::Arena);
    let load = |read: &crate::ReadSpan| {
        let (layer, group) = place(read.file)?;
        let bytes = u64::from(read.pages) * PAGE as u64;
        Some(Load { layer, group, bytes, begin_ns: read.begin_ns, end_ns: read.end_ns })
    };
    reads.filter_map(load).collect()
}

/// The banks that ran.
fn runs(events: &[Event], layers: &[LayerEntry]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for event in events {
        let layer = layers.iter().position(|entry| entry.layer == event.layer);
        match (event.kind, layer) {
            (EventKind::BankBegin, Some(layer)) => {
                let (begin_ns, end_ns) = (event.time_ns, event.time_ns);
                runs.push(Run { layer: layer as u32, group: event.group, begin_ns, end_ns });
            }
            (EventKind::BankEnd, _) => {
                if let Some(run) = runs.last_mut() {
                    run.end_ns = event.time_ns;
                }
            }
            _ => {}
        }
    }
    runs
}
