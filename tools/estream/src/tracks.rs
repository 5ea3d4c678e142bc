//! What of a pass ran when: reads by the host's clock, kernels by the firmware's events. On the native device both read
//! the same clock, so the two can be laid over each other.

use crate::timeline::{Busy, draw, window};
use estream::{Event, EventKind, Pass};
use serde::Serialize;
use std::ops::Range;

/// The tracks of a pass.
pub struct Tracks {
    tracks: [(&'static str, Busy); 4],
    marks: Vec<(u64, String)>,
}

/// How well reading and computing of a pass covered each other. Times are unions of intervals, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Overlap {
    /// From the first interval's beginning to the last one's end.
    pub total_ms: f64,
    /// With a read in flight.
    pub reading_ms: f64,
    /// With a kernel running.
    pub computing_ms: f64,
    /// 1 − max(reading, computing) / total.
    pub bubble_rate: f64,
}

impl Tracks {
    /// The tracks of `pass`.
    #[must_use]
    pub fn of(pass: &Pass) -> Self {
        let reads = pass.reads.iter().map(|read| read.begin_ns..read.end_ns).collect();
        let between = |begin, end| Busy::union(spans(&pass.events, begin, end));
        // The head has no end of its own: the report says how long it took.
        let head = pass.events.iter().filter(|event| event.kind == EventKind::Head);
        let head = head.map(|event| event.time_ns..event.time_ns + pass.report.head_ns).collect();
        let layers = pass.events.iter().filter(|event| event.kind == EventKind::Layer);
        Self {
            tracks: [
                ("loads", Busy::union(reads)),
                ("mixer, router", between(EventKind::Layer, EventKind::Routed)),
                ("experts", between(EventKind::BankBegin, EventKind::BankEnd)),
                ("head", Busy::union(head)),
            ],
            marks: layers.map(|event| (event.time_ns, format!("{}", event.layer))).collect(),
        }
    }

    /// How reading and computing covered each other.
    #[must_use]
    pub fn overlap(&self) -> Overlap {
        let window = window(&self.tracks);
        let total = window.end - window.start;
        let reading = self.tracks[0].1.total();
        let kernels = self.tracks[1..].iter().flat_map(|(_, busy)| busy.spans().to_vec());
        let computing = Busy::union(kernels.collect()).total();
        let ms = |ns: u64| ns as f64 / 1e6;
        Overlap {
            total_ms: ms(total),
            reading_ms: ms(reading),
            computing_ms: ms(computing),
            bubble_rate: 1.0 - reading.max(computing) as f64 / total as f64,
        }
    }

    /// The picture for people.
    #[must_use]
    pub fn draw(&self) -> String {
        let Overlap { total_ms, reading_ms, computing_ms, bubble_rate } = self.overlap();
        format!(
            "layer begins, and what was busy then\n{}reading {reading_ms:.2} ms and computing {computing_ms:.2} ms took {total_ms:.2} ms together: bubble rate {:.1} %\n",
            draw(&window(&self.tracks), &self.marks, &self.tracks),
            100.0 * bubble_rate
        )
    }
}

/// Intervals from each `begin` to the next `end`; one whose end was dropped is left out.
fn spans(events: &[Event], begin: EventKind, end: EventKind) -> Vec<Range<u64>> {
    let mut open = None;
    let mut spans = Vec::new();
    for event in events {
        if event.kind == begin {
            open = Some(event.time_ns);
        } else if event.kind == end {
            spans.extend(open.take().map(|start| start..event.time_ns));
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_ends_at_its_own_end() {
        let event = |kind, time_ns| Event { kind, layer: 0, index: 0, group: 0, time_ns };
        let events = [
            event(EventKind::Layer, 1),
            event(EventKind::Routed, 5),
            event(EventKind::BankBegin, 6),
            event(EventKind::BankEnd, 9),
            event(EventKind::BankBegin, 10),
            event(EventKind::BankBegin, 12),
            event(EventKind::BankEnd, 20),
            event(EventKind::BankEnd, 30),
        ];
        assert_eq!(spans(&events, EventKind::BankBegin, EventKind::BankEnd), [6..9, 12..20]);
        assert_eq!(spans(&events, EventKind::Layer, EventKind::Routed).first(), Some(&(1..5)));
    }
}
