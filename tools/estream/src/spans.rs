//! A pass as spans on tracks: what `trace` writes for viewers and draws as a picture, and what overlap is counted from.
//!
//! Tracks are the readers, the banks (filling, then at work), the layers' stages, the waits and the kernels. Native devices
//! keep one clock for reads and events, so that spans of different tracks can be compared. Loads that came by one request
//! lie over each other.

use estream::{Event, EventKind, Pass, ReadSpan};
use estream_idl::address::{PAGE, Segment};
use std::fmt;

/// Where a span is drawn. The order is the order of the tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    /// Mixer and router, then experts, of each layer.
    Layers,
    /// The executor waits for a load.
    Waits,
    /// Groups at work and the head: the kernels.
    Kernels,
    /// A reader at work.
    Reader(u32),
    /// A bank: filling or in use.
    Bank(usize),
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layers => f.write_str("layers"),
            Self::Waits => f.write_str("waits"),
            Self::Kernels => f.write_str("kernels"),
            Self::Reader(number) => write!(f, "reader {number}"),
            Self::Bank(number) => write!(f, "bank {number}"),
        }
    }
}

/// What a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A layer's mixer and router; all of a layer without experts.
    Mixer {
        /// The layer.
        layer: u32,
    },
    /// What every token passes beside a layer's experts: from its routes to its first group or wait.
    Shared,
    /// A layer's experts, waits among them.
    Experts,
    /// The executor waits for a load.
    Wait,
    /// A group at work.
    Group,
    /// Final norm and head.
    Head,
    /// A load of so many bytes.
    Read(u64),
}

/// Something that lasted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its track.
    pub track: Track,
    /// What it was.
    pub kind: Kind,
    /// What it was, in words.
    pub name: String,
    /// Its beginning, in nanoseconds of the pass's clock.
    pub begin_ns: u64,
    /// Its end.
    pub end_ns: u64,
}

/// The spans of a pass, whose arena has banks of `bank_bytes`.
#[must_use]
pub fn spans(pass: &Pass, bank_bytes: u64) -> Vec<Span> {
    let mut spans: Vec<Span> = pass.reads.iter().flat_map(|read| load(read, bank_bytes)).collect();
    spans.extend(events(&pass.events, pass.report.head_ns));
    spans.sort_by_key(|span| (span.track, span.begin_ns));
    spans
}

/// A load on its reader's track, and on its bank's.
fn load(read: &ReadSpan, bank_bytes: u64) -> impl Iterator<Item = Span> {
    let ReadSpan { segment, file, begin_ns, end_ns, .. } = *read;
    let what = match segment {
        Segment::Arena => "experts",
        Segment::Dense => "dense",
        Segment::Embed => "embedding",
        Segment::Control | Segment::Io => "other",
    };
    let kind = Kind::Read(u64::from(read.pages) * PAGE as u64);
    let span = move |track, name| Span { track, kind, name, begin_ns, end_ns };
    let bank = u64::from(read.page) * PAGE as u64 / bank_bytes.max(1);
    let fills = (segment == Segment::Arena).then(|| span(Track::Bank(bank as usize), "fills".to_owned()));
    [Some(span(Track::Reader(read.reader), format!("{what} at {file}"))), fills].into_iter().flatten()
}

fn events(events: &[Event], head_ns: u64) -> Vec<Span> {
    let mut spans = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let next = |kinds: &[EventKind]| {
            events[index + 1..].iter().find(|later| kinds.contains(&later.kind)).map(|later| later.time_ns)
        };
        let Event { layer, group, time_ns, .. } = *event;
        // A span whose end was dropped is left out.
        let mut span = |track, kind, name: &str, begin_ns, end_ns: Option<u64>| {
            let name = name.to_owned();
            spans.extend(end_ns.map(|end_ns| Span { track, kind, name, begin_ns, end_ns }));
        };
        match event.kind {
            EventKind::Layer => {
                // A layer without experts ends where the next one begins.
                let end = next(&[EventKind::Routed, EventKind::Layer, EventKind::Head]);
                let name = format!("layer {layer}: mixer, router");
                span(Track::Layers, Kind::Mixer { layer }, &name, time_ns, end);
            }
            EventKind::Routed => {
                let end = next(&[EventKind::Layer, EventKind::Head]);
                let open = next(&[EventKind::BankBegin, EventKind::WaitBegin]);
                let open = open.into_iter().chain(end).min();
                span(Track::Layers, Kind::Shared, &format!("layer {layer}: shared"), time_ns, open);
                let begin = open.unwrap_or(time_ns);
                span(Track::Layers, Kind::Experts, &format!("layer {layer}: experts"), begin, end);
            }
            EventKind::BankBegin => {
                let (name, end) = (format!("layer {layer}, group {group}"), next(&[EventKind::BankEnd]));
                for track in [Track::Kernels, Track::Bank(event.index as usize)] {
                    span(track, Kind::Group, &name, time_ns, end);
                }
            }
            EventKind::WaitBegin => {
                let end = next(&[EventKind::WaitEnd]);
                span(Track::Waits, Kind::Wait, &format!("layer {layer} waits"), time_ns, end);
            }
            EventKind::Head => span(Track::Kernels, Kind::Head, "head", time_ns, Some(time_ns + head_ns)),
            EventKind::BankEnd | EventKind::WaitEnd => {}
        }
    }
    spans
}

/// The spans for Chrome's and Perfetto's viewers: complete events, microseconds from the first of them.
#[must_use]
pub fn chrome(spans: &[Span]) -> serde_json::Value {
    let origin = spans.iter().map(|span| span.begin_ns).min().unwrap_or(0);
    let mut tracks: Vec<Track> = spans.iter().map(|span| span.track).collect();
    tracks.dedup();
    let number = |track: Track| tracks.iter().position(|&other| other == track).unwrap_or(0);
    let named = tracks.iter().map(|track| {
        let args = serde_json::json!({ "name": track.to_string() });
        serde_json::json!({ "ph": "M", "name": "thread_name", "pid": 1, "tid": number(*track), "args": args })
    });
    let events = spans.iter().map(|span| {
        let mut event = serde_json::json!({
            "ph": "X",
            "name": span.name,
            "pid": 1,
            "tid": number(span.track),
            "ts": (span.begin_ns - origin) as f64 / 1e3,
            "dur": (span.end_ns - span.begin_ns) as f64 / 1e3,
        });
        if let Kind::Read(bytes) = span.kind {
            event["args"] = serde_json::json!({ "bytes": bytes });
        }
        event
    });
    let order = tracks.iter().map(|&track| {
        let args = serde_json::json!({ "sort_index": number(track) });
        serde_json::json!({ "ph": "M", "name": "thread_sort_index", "pid": 1, "tid": number(track), "args": args })
    });
    let all: Vec<_> = named.chain(order).chain(events).collect();
    serde_json::json!({ "displayTimeUnit": "ms", "traceEvents": all })
}

/// The spans as a picture: time to the right, a row a track.
#[must_use]
pub fn picture(spans: &[Span]) -> String {
    const WIDTH: f64 = 1400.0;
    const LEFT: f64 = 90.0;
    const ROW: f64 = 18.0;
    let begin = spans.iter().map(|span| span.begin_ns).min().unwrap_or(0);
    let end = spans.iter().map(|span| span.end_ns).max().unwrap_or(begin).max(begin + 1);
    let x = |time: u64| LEFT + (time - begin) as f64 / (end - begin) as f64 * (WIDTH - LEFT - 10.0);
    let mut tracks: Vec<Track> = spans.iter().map(|span| span.track).collect();
    tracks.dedup();
    let height = ROW * (tracks.len() as f64 + 2.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (row, track) in tracks.iter().enumerate() {
        let y = ROW * row as f64 + 6.0;
        svg += &format!("<text x=\"4\" y=\"{:.1}\">{track}</text>\n", y + 11.0);
        for span in spans.iter().filter(|span| span.track == *track) {
            let colour = match span.kind {
                Kind::Wait => "#ee6677",
                Kind::Read(_) => "#66ccee",
                Kind::Experts => "#bbbbbb",
                Kind::Mixer { .. } | Kind::Shared => "#ccbb44",
                Kind::Group | Kind::Head => "#228833",
            };
            let (from, to) = (x(span.begin_ns), x(span.end_ns));
            svg += &format!(
                "<rect x=\"{from:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"14\" fill=\"{colour}\"><title>{}: {:.3} \
                 ms</title></rect>\n",
                (to - from).max(0.3),
                span.name,
                (span.end_ns - span.begin_ns) as f64 / 1e6
            );
        }
    }
    let milliseconds = (end - begin) as f64 / 1e6;
    svg + &format!("<text x=\"{LEFT}\" y=\"{:.1}\">0 to {milliseconds:.1} ms</text>\n</svg>\n", height - 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, layer: u32, index: u32, group: u32, time_ns: u64) -> Event {
        Event { kind, layer, index, group, time_ns }
    }

    #[test]
    fn events_become_spans_that_end_where_they_should() {
        let log = [
            event(EventKind::Layer, 0, 0, 0, 10),
            event(EventKind::Layer, 1, 0, 0, 20),
            event(EventKind::Routed, 1, 0, 0, 30),
            event(EventKind::WaitBegin, 1, 0, 0, 31),
            event(EventKind::WaitEnd, 1, 0, 0, 35),
            event(EventKind::BankBegin, 1, 3, 7, 36),
            event(EventKind::BankEnd, 1, 3, 7, 50),
            event(EventKind::Head, 2, 0, 0, 60),
        ];
        let found: Vec<_> =
            events(&log, 5).into_iter().map(|span| (span.track, span.begin_ns, span.end_ns)).collect();
        let expected = [
            (Track::Layers, 10, 20),
            (Track::Layers, 20, 30),
            (Track::Layers, 30, 31),
            (Track::Layers, 31, 60),
            (Track::Waits, 31, 35),
            (Track::Kernels, 36, 50),
            (Track::Bank(3), 36, 50),
            (Track::Kernels, 60, 65),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_span_whose_end_was_dropped_is_left_out() {
        let log = [
            event(EventKind::BankBegin, 0, 0, 0, 6),
            event(EventKind::BankEnd, 0, 0, 0, 9),
            event(EventKind::BankBegin, 0, 0, 1, 12),
            event(EventKind::Routed, 0, 0, 0, 20),
        ];
        let found: Vec<_> = events(&log, 0).into_iter().map(|span| (span.begin_ns, span.end_ns)).collect();
        assert_eq!(found, [(6, 9), (6, 9)], "on the kernels' and the bank's track");
    }

    #[test]
    fn viewers_get_microseconds_from_the_first_span_and_named_tracks() {
        let span = |track, begin_ns, end_ns, kind| Span { track, kind, name: "x".into(), begin_ns, end_ns };
        let spans = [
            span(Track::Kernels, 1000, 3000, Kind::Group),
            span(Track::Reader(0), 2500, 4000, Kind::Read(4096)),
        ];
        let value = chrome(&spans);
        let events = value["traceEvents"].as_array().expect("a list");
        assert_eq!(events[0]["args"]["name"], "kernels");
        let last = &events[events.len() - 1];
        assert_eq!(
            (&last["ts"], &last["dur"], &last["args"]["bytes"]),
            (&1.5.into(), &1.5.into(), &4096.into())
        );
        assert!(picture(&spans).matches("<rect").count() == 3, "a background and two spans");
    }
}
