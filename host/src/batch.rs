//! A batch: what a caller asks for, checked against the session's limits, written as words into the io segment, and the
//! results read back from there.
//!
//! The host knows the limits but not the vocabulary, so a token id is only a number here; the firmware refuses one that
//! is outside. For the same reason the layout is asked for with a stand-in vocabulary: tables do not depend on it, only
//! panels do, and those are addressed by the firmware's own page numbers.

use crate::Error;
use crate::report::{Report, Top};
use estream_idl::call::Config;
use estream_idl::io::{FLAG_ROWS, IoLayout, NO_TARGET, REPORT_WORDS, REQUEST_WORDS, TOP_WORDS};
use estream_idl::message::Rows;
use estream_idl::status::{Refusal, Status};
use estream_idl::sync::{AtomicU32, Ordering};
use std::ops::Range;

/// A vocabulary to lay tables out with.
const ANY_VOCABULARY: u32 = 32;

/// One request of a pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// Token ids, at least one.
    pub ids: &'a [u32],
    /// Positions whose results are asked for.
    pub outputs: &'a [Output],
    /// Whether the logits of all positions are streamed through the sink.
    pub rows: bool,
}

/// A position whose candidates are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Position inside the request, from 0.
    pub position: u32,
    /// A token whose log-probability is asked for.
    pub target: Option<u32>,
}

/// Where panels of logits go.
pub trait RowSink {
    /// Takes a panel: row-major `[rows.rows][rows.columns]`. It is lent until this returns.
    ///
    /// # Errors
    /// When the panel cannot be taken; the pass is then given up.
    fn rows(&mut self, rows: &Rows, panel: &[f32]) -> std::io::Result<()>;
}

/// Results of a pass, by output.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Candidates, best first.
    pub(crate) tops: Vec<Vec<Top>>,
    /// Log-probabilities of the targets.
    pub(crate) target_logprobs: Vec<Option<f32>>,
}

/// The tables of the io segment for a configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    config: Config,
    layout: IoLayout,
}

impl Tables {
    /// The tables, if they lie inside a segment of `pages` pages.
    pub(crate) fn new(config: Config, pages: u32) -> Result<Self, Error> {
        let layout = IoLayout::new(&config, ANY_VOCABULARY);
        let layout = layout.filter(|layout| layout.panel_page <= pages as usize);
        let layout =
            layout.ok_or_else(|| Error::protocol(format!("an io segment of {pages} pages is too small")))?;
        Ok(Self { config, layout })
    }

    /// First page behind the tables.
    pub(crate) fn panel_page(&self) -> usize {
        self.layout.panel_page
    }

    /// Checks `requests` against the limits.
    pub(crate) fn check(&self, requests: &[Request<'_>]) -> Result<(), Error> {
        let Config { max_tokens, max_requests, max_outputs, .. } = self.config;
        let refuse = |status, needed: usize, limit: u32, detail: usize| {
            let (needed, limit) = (needed as u64, u64::from(limit));
            let detail = u32::try_from(detail).unwrap_or(u32::MAX);
            Err(Error::refused(Refusal { status, needed, limit, detail }))
        };
        if requests.is_empty() {
            return refuse(Status::EmptyRequest, 1, 0, 0);
        }
        let (mut tokens, mut outputs) = (0usize, 0usize);
        for (index, request) in requests.iter().enumerate() {
            if request.ids.is_empty() {
                return refuse(Status::EmptyRequest, 1, 0, index);
            }
            if request.rows && !self.config.rows {
                let what = format!("request {index} asks for rows, which the session was not planned for");
                return Err(Error { exit: crate::Exit::Input, ..Error::runtime("bad_config", what) });
            }
            for (output, asked) in request.outputs.iter().enumerate() {
                if asked.position as usize >= request.ids.len() {
                    let (position, limit) = (asked.position as usize, request.ids.len() as u32);
                    return refuse(Status::BadPosition, position, limit, outputs + output);
                }
                if asked.target == Some(NO_TARGET) {
                    let index = outputs + output;
                    let what = format!("the target of output {index} is {NO_TARGET}, which is no token id");
                    return Err(Error { exit: crate::Exit::Input, ..Error::runtime("bad_token", what) });
                }
            }
            tokens += request.ids.len();
            outputs += request.outputs.len();
        }
        if tokens > max_tokens as usize {
            return refuse(Status::TooManyTokens, tokens, max_tokens, 0);
        }
        if requests.len() > max_requests as usize {
            return refuse(Status::TooManyRequests, requests.len(), max_requests, 0);
        }
        if outputs > max_outputs as usize {
            return refuse(Status::TooManyOutputs, outputs, max_outputs, 0);
        }
        Ok(())
    }

    /// Writes checked `requests` into the segment's `words`.
    pub(crate) fn write(&self, words: &[AtomicU32], requests: &[Request<'_>]) {
        let (mut token, mut output) = (0, 0);
        for (index, request) in requests.iter().enumerate() {
            let flags = if request.rows { FLAG_ROWS } else { 0 };
            let (tokens, outputs) = (request.ids.len() as u32, request.outputs.len() as u32);
            let entry: [u32; REQUEST_WORDS] = [tokens, outputs, flags, 0, 0, 0, 0, 0];
            put(words, self.layout.requests + index * REQUEST_WORDS, entry.into_iter());
            put(words, self.layout.ids + token, request.ids.iter().copied());
            put(words, self.layout.positions + output, request.outputs.iter().map(|o| o.position));
            let targets = request.outputs.iter().map(|output| output.target.unwrap_or(NO_TARGET));
            put(words, self.layout.targets + output, targets);
            token += request.ids.len();
            output += request.outputs.len();
        }
    }

    /// The results that the firmware left for `requests`.
    pub(crate) fn results(&self, words: &[AtomicU32], requests: &[Request<'_>]) -> Result<Results, Error> {
        let top_k = self.config.top_k as usize;
        let word = |at: usize| words[at].load(Ordering::Relaxed);
        let mut results = Results::default();
        for (output, asked) in requests.iter().flat_map(|request| request.outputs).enumerate() {
            let first = self.layout.tops + output * top_k * TOP_WORDS;
            let candidates = (0..top_k).map(|rank| first + rank * TOP_WORDS).map(|at| Top {
                id: word(at),
                logit: f32::from_bits(word(at + 1)),
                logprob: f32::from_bits(word(at + 2)),
            });
            // A vocabulary of fewer than k entries leaves the rest absent.
            let tops: Vec<Top> = candidates.take_while(|top| top.id != NO_TARGET).collect();
            let target = f32::from_bits(word(self.layout.target_logprobs + output));
            let target = asked.target.map(|_| target);
            let mut numbers = tops.iter().flat_map(|top| [top.logit, top.logprob]).chain(target);
            if numbers.any(|number| !number.is_finite()) {
                let detail = u32::try_from(output).unwrap_or(u32::MAX);
                return Err(Error::refused(Refusal { detail, ..Status::NotFinite.into() }));
            }
            results.tops.push(tops);
            results.target_logprobs.push(target);
        }
        Ok(results)
    }

    /// The firmware's report.
    pub(crate) fn report(&self, words: &[AtomicU32]) -> Report {
        let Range { start, end } = self.layout.report..self.layout.report + REPORT_WORDS;
        Report::read(words[start..end].try_into().expect("the range has this length"))
    }
}

/// Checks that `rows` is a panel that one of `requests` asked for.
pub(crate) fn check_rows(rows: &Rows, requests: &[Request<'_>]) -> Result<(), Error> {
    let asked = requests.get(rows.request as usize).filter(|request| request.rows);
    let inside = asked.is_some_and(|request| {
        let end = rows.first_row.checked_add(rows.rows);
        rows.rows > 0 && rows.columns > 0 && end.is_some_and(|end| end as usize <= request.ids.len())
    });
    if inside { Ok(()) } else { Err(Error::protocol(format!("{rows:?} is not a panel that was asked for"))) }
}

fn put(words: &[AtomicU32], at: usize, values: impl Iterator<Item = u32>) {
    for (word, value) in words[at..].iter().zip(values) {
        // Ordering: published by the ring's release when the pass is sent.
        word.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estream_idl::call::KernelSet;

    fn tables() -> Tables {
        let config = Config {
            max_tokens: 4,
            max_requests: 2,
            max_outputs: 3,
            top_k: 2,
            rows: false,
            group: 1,
            banks: 1,
            depth: 1,
            threads: 1,
            kernels: KernelSet::empty(),
            scratch: 0,
            row_chunk: 0,
            streaming: estream_idl::streaming::Streaming::default(),
        };
        Tables::new(config, 8).unwrap()
    }

    const fn at(position: u32) -> Output {
        Output { position, target: None }
    }

    #[test]
    fn a_batch_beyond_a_limit_is_refused_with_the_number_and_the_limit() {
        let tables = tables();
        let ask = |ids, outputs| Request { ids, outputs, rows: false };
        let (many, late) = ([at(0); 4], [at(3)]);
        let cases: [(&[Request<'_>], &str, u64, u64); 6] = [
            (&[], "empty_request", 1, 0),
            (&[ask(&[1], &[]), ask(&[], &[])], "empty_request", 1, 0),
            (&[ask(&[1; 3], &[]), ask(&[1; 2], &[])], "too_many_tokens", 5, 4),
            (&[ask(&[1], &[]); 3], "too_many_requests", 3, 2),
            (&[ask(&[1; 3], &many)], "too_many_outputs", 4, 3),
            (&[ask(&[1; 3], &late)], "bad_position", 3, 3),
        ];
        for (requests, code, needed, limit) in cases {
            let error = tables.check(requests).unwrap_err();
            let refusal = error.refusal.unwrap();
            assert_eq!((error.code, error.exit as u8), (code, 3));
            assert_eq!((refusal.needed, refusal.limit), (needed, limit), "{error}");
        }
        let rows = Request { rows: true, ..ask(&[1], &[]) };
        assert_eq!(tables.check(&[rows]).unwrap_err().code, "bad_config");
        let (two, one) = ([at(0), at(1)], [at(1)]);
        tables.check(&[ask(&[1; 2], &two), ask(&[1; 2], &one)]).unwrap();
    }

    #[test]
    fn a_panel_that_nobody_asked_for_is_a_breach() {
        let request = |rows| Request { ids: &[1, 2, 3], outputs: &[], rows };
        let rows =
            Rows { ticket: 1, request: 1, first_row: 1, rows: 2, first_column: 0, columns: 32, page: 9 };
        let requests = [request(false), request(true)];
        check_rows(&rows, &requests).unwrap();
        for bad in [
            Rows { request: 0, ..rows },
            Rows { request: 2, ..rows },
            Rows { rows: 3, ..rows },
            Rows { rows: 0, ..rows },
            Rows { columns: 0, ..rows },
            Rows { first_row: u32::MAX, ..rows },
        ] {
            assert_eq!(check_rows(&bad, &requests).unwrap_err().code, "protocol");
        }
    }

    #[test]
    fn what_a_peer_leaves_that_is_not_a_number_is_not_a_result() {
        let tables = tables();
        let words: Vec<AtomicU32> = (0..8 * 1024).map(|_| AtomicU32::new(0)).collect();
        let requests =
            [Request { ids: &[1, 2], outputs: &[Output { position: 1, target: Some(4) }], rows: false }];
        let top =
            |rank: usize, values: [u32; 3]| put(&words, tables.layout.tops + 3 * rank, values.into_iter());
        top(0, [7, 2f32.to_bits(), (-0.5f32).to_bits()]);
        top(1, [5, 1f32.to_bits(), (-1.5f32).to_bits()]);
        put(&words, tables.layout.target_logprobs, [(-3f32).to_bits()].into_iter());
        let results = tables.results(&words, &requests).unwrap();
        let expected = [Top { id: 7, logit: 2.0, logprob: -0.5 }, Top { id: 5, logit: 1.0, logprob: -1.5 }];
        assert_eq!(results.tops, [expected]);
        top(1, [NO_TARGET, 0, 0]);
        assert_eq!(tables.results(&words, &requests).unwrap().tops, [&expected[..1]]);
        assert_eq!(results.target_logprobs, [Some(-3.0)]);
        top(0, [7, f32::NAN.to_bits(), 0]);
        assert_eq!(tables.results(&words, &requests).unwrap_err().code, "not_finite");
    }
}
