//! The library face: batches, scores and limits.

use crate::harness::small_pack;
use estream::{Arena, Banks, Engine, Exit, Options, Request, RowSink, Rows};
use std::io;

fn engine(options: Options) -> Engine {
    Engine::open(small_pack(), options.arena(Arena::Group(2, Some(Banks::Count(3))))).expect("an engine")
}

/// Keeps the rows of one request.
#[derive(Default)]
struct Kept {
    vocab: usize,
    values: Vec<f32>,
}

impl RowSink for Kept {
    fn rows(&mut self, rows: &Rows, panel: &[f32]) -> io::Result<()> {
        for (row, values) in panel.chunks_exact(rows.columns as usize).enumerate() {
            let at = (rows.first_row as usize + row) * self.vocab + rows.first_column as usize;
            self.values[at..at + values.len()].copy_from_slice(values);
        }
        Ok(())
    }
}

#[test]
fn requests_give_the_same_answers_alone_and_together() {
    let mut engine = engine(Options::new());
    let requests = [
        Request::next_token([1, 2, 3, 4, 5]),
        Request::score([9, 8, 7, 6]),
        Request::next_token([400]).at_with_target(0, 17),
    ];
    let together = engine.prefill(&requests).expect("a pass");
    assert_eq!(together.iter().map(|response| response.outputs.len()).collect::<Vec<_>>(), [1, 3, 2]);
    for (request, response) in requests.iter().zip(&together) {
        let alone = engine.prefill(std::slice::from_ref(request)).expect("a pass");
        assert_eq!(&alone[0], response);
    }
    assert_eq!(together[2].outputs[0].top, together[2].outputs[1].top);
}

#[test]
fn scores_are_the_log_softmax_of_the_rows() {
    let mut engine = engine(Options::new().rows(true));
    let vocab = engine.model().vocab as usize;
    let ids = [11, 22, 33, 44, 55, 66];
    let mut kept = Kept { vocab, values: vec![f32::NAN; ids.len() * vocab] };
    let pass = engine.prefill_into(&[Request::score(ids).with_rows()], &mut kept).expect("a pass");
    for (position, answer) in pass.responses[0].outputs.iter().enumerate() {
        let row = &kept.values[position * vocab..(position + 1) * vocab];
        let peak = row.iter().copied().fold(f32::MIN, f32::max);
        let sum: f64 = row.iter().map(|&logit| f64::from(logit - peak).exp()).sum();
        let target = f64::from(row[ids[position + 1] as usize] - peak) - sum.ln();
        let scored = f64::from(answer.target_logprob.expect("a score"));
        assert!((scored - target).abs() < 1e-5, "position {position}: {scored} and {target}");
        let best = (0..vocab as u32).max_by(|&a, &b| row[a as usize].total_cmp(&row[b as usize]));
        assert_eq!(Some(answer.top[0].id), best);
    }
}

#[test]
fn a_pass_beyond_the_limits_is_refused_with_the_bytes_that_it_would_need() {
    let mut small = engine(Options::new().max_tokens(4).max_requests(1).max_outputs(1));
    let error = small.prefill(&[Request::next_token([1, 2, 3, 4, 5, 6, 7, 8])]).expect_err("twice the limit");
    assert_eq!((error.code.as_ref(), error.exit), ("beyond-limits", Exit::Runtime));
    let larger = engine(Options::new().max_tokens(8).max_requests(1).max_outputs(1));
    let memory = larger.memory();
    let needed = memory.components().iter().map(|&(_, bytes)| bytes).sum::<u64>() - memory.process_bytes;
    assert!(error.message.contains(&format!("{needed} bytes")), "{} lacks {needed}", error.message);
    // A refusal is no failure: the engine goes on.
    assert_eq!(small.prefill(&[Request::next_token([1, 2])]).expect("within").len(), 1);
}

#[test]
fn bad_requests_are_refused_and_named() {
    let mut engine = engine(Options::new());
    for (requests, code, part) in [
        (vec![Request::new([])], "empty-request", "no token ids"),
        (
            vec![Request::next_token([1]), Request::next_token([1, 512])],
            "bad-token",
            "request 1: token 1 is \"512\"",
        ),
        (vec![Request::new([1, 2]).at(2)], "bad-position", "position 2 of 2"),
        (vec![Request::new([1]).at_with_target(0, 512)], "bad-token", "target at position 0"),
        (vec![Request::new(vec![1; 65])], "too-many-tokens", "context is 64"),
    ] {
        let error = engine.prefill(&requests).expect_err(code);
        assert_eq!((error.code.as_ref(), error.exit), (code, Exit::Input));
        assert!(error.message.contains(part), "{}", error.message);
    }
    assert!(engine.prefill(&[]).is_err(), "no requests at all");
}
