//! How well reading and computing of a pass covered each other, as numbers and as a small picture, from its spans. Reads
//! are timed by the host's clock and kernels by the firmware's events; on the native device both read the same clock.

use crate::spans::{Kind, Span, Track, spans};
use crate::timeline::{Busy, draw, window};
use estream::Pass;
use serde::Serialize;

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
    /// The tracks of a pass.
    #[must_use]
    pub fn of(pass: &Pass) -> Self {
        // No track of these is a bank's, so the size of banks does not matter.
        Self::over(&spans(pass, u64::MAX))
    }

    /// The tracks of a pass's spans.
    #[must_use]
    pub fn over(spans: &[Span]) -> Self {
        let union = |wanted: fn(&Span) -> bool| {
            Busy::union(
                spans.iter().filter(|span| wanted(span)).map(|span| span.begin_ns..span.end_ns).collect(),
            )
        };
        // The head and a layer without experts are one span each, in which streamed weights may be waited for.
        let waits = union(|span| span.kind == Kind::Wait);
        let work = |wanted| union(wanted).without(&waits);
        let mark = |span: &Span| match span.kind {
            Kind::Mixer { layer } => Some((span.begin_ns, layer.to_string())),
            _ => None,
        };
        Self {
            tracks: [
                ("loads", union(|span| matches!(span.track, Track::Reader(_)))),
                ("mixer, router", work(|span| matches!(span.kind, Kind::Mixer { .. } | Kind::Shared))),
                ("experts", work(|span| span.kind == Kind::Group)),
                ("head", work(|span| span.kind == Kind::Head)),
            ],
            marks: spans.iter().filter_map(mark).collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_bubbles_and_what_every_token_passes_is_work() {
        let span = |track, kind, range: std::ops::Range<u64>| Span {
            track,
            kind,
            name: String::new(),
            begin_ns: range.start * 1_000_000,
            end_ns: range.end * 1_000_000,
        };
        let spans = [
            span(Track::Layers, Kind::Mixer { layer: 7 }, 0..10),
            span(Track::Waits, Kind::Wait, 6..8),
            span(Track::Layers, Kind::Shared, 10..20),
            span(Track::Layers, Kind::Experts, 20..100),
            span(Track::Waits, Kind::Wait, 20..60),
            span(Track::Kernels, Kind::Group, 60..100),
            span(Track::Bank(0), Kind::Group, 60..100),
            // Two loads of one request, and one that overlaps them.
            span(Track::Reader(0), Kind::Read(1), 5..40),
            span(Track::Reader(0), Kind::Read(1), 5..40),
            span(Track::Reader(1), Kind::Read(1), 30..60),
        ];
        let tracks = Tracks::over(&spans);
        let Overlap { total_ms, reading_ms, computing_ms, bubble_rate } = tracks.overlap();
        assert_eq!((total_ms, reading_ms, computing_ms), (100.0, 55.0, 58.0));
        assert!((bubble_rate - 0.42).abs() < 1e-12);
        assert!(tracks.draw().lines().nth(1).expect("the line of marks").contains('7'));
    }
}
