//! The step table replayed on buffers that remember what they hold.

use estream_dsp::kernels::Chain;
use estream_dsp::pipeline::{
    Activate, Cut, Decode, Fetch, Matrix, Multiply, Piece, Scatter, Step, Table, Units, run_serial,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// What a buffer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Piece(Piece),
    /// A product over the first `tiles` tiles of a strip.
    Product {
        matrix: Matrix,
        strip: usize,
        tiles: usize,
    },
}

/// A buffer's name.
type Name = (char, usize);

/// Buffers before a step, and what the step does to them. Units run at once: reads see the state before the step, a
/// buffer that one unit writes is touched by no other.
#[derive(Default)]
struct Replay {
    /// Content, and whether its last reader has been.
    buffers: BTreeMap<Name, (Content, bool)>,
    reads: BTreeSet<Name>,
    writes: BTreeMap<Name, Content>,
    activated: BTreeSet<usize>,
    activated_now: Option<usize>,
    order: [Vec<Piece>; 3],
    pairs: Vec<usize>,
    strips: Vec<usize>,
}

impl Replay {
    /// Reads a buffer for the last time.
    fn take(&mut self, name: Name, expected: &Content) {
        let held = self.buffers.get_mut(&name).unwrap_or_else(|| panic!("{name:?} is empty"));
        assert_eq!(&held.0, expected, "{name:?} holds something else");
        assert!(!held.1, "{name:?} is taken twice");
        held.1 = true;
        assert!(
            self.reads.insert(name) && !self.writes.contains_key(&name),
            "{name:?} is touched by two units"
        );
    }

    fn write(&mut self, name: Name, content: Content) {
        assert!(
            self.buffers.get(&name).is_none_or(|held| held.1),
            "{name:?} is overwritten while it is needed"
        );
        assert!(!self.reads.contains(&name), "{name:?} is touched by two units");
        assert!(self.writes.insert(name, content).is_none(), "{name:?} is written by two units");
    }

    fn step(&mut self, step: &Step, inward: Cut, outward: Cut, pairs: &std::ops::Range<usize>) {
        let product = |matrix, strip| {
            let tiles = if matrix == Matrix::Down { outward.tiles } else { inward.tiles };
            Content::Product { matrix, strip, tiles }
        };
        if let Some(Activate { pair, gate, up }) = step.activate {
            self.take(('O', gate), &product(Matrix::Gate, pair));
            self.take(('O', up), &product(Matrix::Up, pair));
            self.pairs.push(pair);
            self.activated_now = Some(pair);
        }
        if let Some(Scatter { strip, o }) = step.scatter {
            self.take(('O', o), &product(Matrix::Down, strip));
            self.strips.push(strip);
        }
        if let Some(Decode { piece, c, d }) = &step.decode {
            self.take(('C', *c), &Content::Piece(piece.clone()));
            self.write(('D', *d), Content::Piece(piece.clone()));
            self.order[1].push(piece.clone());
        }
        if let Some(Multiply { piece, d, o, chain }) = &step.multiply {
            let Piece { matrix, strip, part, tiles } = piece.clone();
            self.take(('D', *d), &Content::Piece(piece.clone()));
            if matrix == Matrix::Down {
                assert!(
                    pairs.clone().all(|pair| self.activated.contains(&pair)),
                    "H is read before it is whole"
                );
            }
            assert_eq!(*chain == Chain::Start, part == 0);
            if *chain == Chain::Continue {
                self.take(('O', *o), &Content::Product { matrix, strip, tiles: tiles.start });
                self.reads.remove(&('O', *o));
            }
            self.write(('O', *o), Content::Product { matrix, strip, tiles: tiles.end });
            self.order[2].push(piece.clone());
        }
        if let Some(Fetch { piece, c }) = &step.fetch {
            self.write(('C', *c), Content::Piece(piece.clone()));
            self.order[0].push(piece.clone());
        }
        self.reads.clear();
        for (name, content) in std::mem::take(&mut self.writes) {
            self.buffers.insert(name, (content, false));
        }
        self.activated.extend(self.activated_now.take());
    }
}

fn cuts() -> impl Strategy<Value = Cut> {
    (1usize..5, 1usize..5, 0usize..32).prop_map(|(chains, part, rest)| {
        let tiles = chains * 32 - rest;
        if part * 32 >= tiles { Cut { tiles, part: tiles } } else { Cut { tiles, part: part * 32 } }
    })
}

/// All pieces in the order of the matrix unit, from the definition.
fn pieces(
    pairs: std::ops::Range<usize>,
    inward: Cut,
    strips: std::ops::Range<usize>,
    outward: Cut,
) -> Vec<Piece> {
    let parts = |matrix, strip, cut: Cut| {
        (0..cut.tiles).step_by(cut.part).enumerate().map(move |(part, first)| Piece {
            matrix,
            strip,
            part,
            tiles: first..(first + cut.part).min(cut.tiles),
        })
    };
    let mut all = vec![];
    for pair in pairs {
        all.extend(parts(Matrix::Gate, pair, inward));
        all.extend(parts(Matrix::Up, pair, inward));
    }
    strips.for_each(|strip| all.extend(parts(Matrix::Down, strip, outward)));
    all
}

proptest! {
    #[test]
    fn every_table_is_safe_to_run_side_by_side_and_does_everything_once(
        first in 0usize..3, count in 0usize..7, inward in cuts(), first_down in 0usize..3, downs in 0usize..7, outward in cuts(),
    ) {
        let (pairs, strips) = (first..first + count, first_down..first_down + downs);
        let table = Table::new(pairs.clone(), inward, strips.clone(), outward);
        let mut replay = Replay::default();
        let mut busy = BTreeSet::new();
        for (number, step) in table.steps().enumerate() {
            let idle = step == Step::default();
            prop_assert!(!idle || downs == 0 || count == 0, "step {number} does nothing");
            if step.multiply.is_some() {
                busy.insert(number);
            }
            replay.step(&step, inward, outward, &pairs);
        }
        let all = pieces(pairs.clone(), inward, strips.clone(), outward);
        for unit in &replay.order {
            prop_assert_eq!(unit, &all);
        }
        prop_assert!(replay.buffers.values().all(|(_, taken)| *taken), "something is left unread");
        prop_assert_eq!(replay.pairs, pairs.clone().collect::<Vec<_>>());
        prop_assert_eq!(replay.strips, strips.collect::<Vec<_>>());
        // The matrix unit idles in the two steps of filling, one between the halves, and one of draining.
        let empty = usize::from(count > 0);
        prop_assert_eq!(busy.len(), all.len());
        prop_assert_eq!(table.len(), if all.is_empty() { 0 } else { 2 + all.len() + empty + usize::from(downs > 0) });
        prop_assert_eq!(table.is_empty(), all.is_empty());
        prop_assert_eq!(table.step(table.len()), None);
    }
}

/// One step as a line: fetch ∥ decode ∥ multiply ∥ activate or scatter, in the design's letters.
fn line(step: &Step, parts: bool) -> String {
    let name = |piece: &Piece| {
        let letter = match piece.matrix {
            Matrix::Gate => 'g',
            Matrix::Up => 'u',
            Matrix::Down => 'd',
        };
        let part = if parts { format!(".{}", piece.part) } else { String::new() };
        format!("{letter}{}{part}", piece.strip)
    };
    let dot = || "-".to_string();
    let fetch = step.fetch.as_ref().map_or_else(dot, |f| format!("{}>C{}", name(&f.piece), f.c));
    let decode = step.decode.as_ref().map_or_else(dot, |d| format!("{} C{}>D{}", name(&d.piece), d.c, d.d));
    let multiply = step.multiply.as_ref().map_or_else(dot, |m| {
        let sign = if m.chain == Chain::Start { "=" } else { "+=" };
        format!("O{}{sign}D{} {}", m.o, m.d, name(&m.piece))
    });
    let activate = step.activate.map(|a| format!("act{} O{}O{}", a.pair, a.gate, a.up));
    let scatter = step.scatter.map(|s| format!("sc{} O{}", s.strip, s.o));
    let outputs = activate.or(scatter).unwrap_or_else(dot);
    format!("{fetch} | {decode} | {multiply} | {outputs}")
}

fn picture(table: &Table, parts: bool) -> Vec<String> {
    table.steps().map(|step| line(&step, parts)).collect()
}

const SHORT: Cut = Cut { tiles: 32, part: 32 };

#[test]
fn two_pairs_and_two_down_strips() {
    let expected = [
        // fetch     decode      multiply      activate or scatter
        "g0>C0 | - | - | -",
        "u0>C1 | g0 C0>D0 | - | -",
        "g1>C0 | u0 C1>D1 | O0=D0 g0 | -",     // j = 0
        "u1>C1 | g1 C0>D0 | O1=D1 u0 | -",     // j = 1
        "- | u1 C1>D1 | O2=D0 g1 | act0 O0O1", // j = 2
        "d0>C0 | - | O3=D1 u1 | -",            // j = 3
        "d1>C1 | d0 C0>D0 | - | act1 O2O3",    // step 2n: the matrix unit alone idles
        "- | d1 C1>D1 | O0=D0 d0 | -",         // c = 0
        "- | - | O1=D1 d1 | sc0 O0",           // c = 1
        "- | - | - | sc1 O1",
    ];
    assert_eq!(picture(&Table::new(0..2, SHORT, 0..2, SHORT), false), expected);
}

#[test]
fn one_pair_and_two_down_strips_of_two_parts() {
    let inward = Cut { tiles: 56, part: 32 };
    let outward = Cut { tiles: 64, part: 32 };
    let expected = [
        "g0.0>C0 | - | - | -",
        "g0.1>C1 | g0.0 C0>D0 | - | -",
        "u0.0>C0 | g0.1 C1>D1 | O0=D0 g0.0 | -",
        "u0.1>C1 | u0.0 C0>D0 | O0+=D1 g0.1 | -",
        "- | u0.1 C1>D1 | O1=D0 u0.0 | -",
        "d0.0>C0 | - | O1+=D1 u0.1 | -",
        "d0.1>C1 | d0.0 C0>D0 | - | act0 O0O1",
        "d1.0>C0 | d0.1 C1>D1 | O0=D0 d0.0 | -",
        "d1.1>C1 | d1.0 C0>D0 | O0+=D1 d0.1 | -",
        "- | d1.1 C1>D1 | O1=D0 d1.0 | sc0 O0",
        "- | - | O1+=D1 d1.1 | -",
        "- | - | - | sc1 O1",
    ];
    let table = Table::new(0..1, inward, 0..2, outward);
    assert_eq!(picture(&table, true), expected);
    let Some(Multiply { piece, .. }) = table.step(3).unwrap().multiply else { panic!("step 3 multiplies") };
    assert_eq!(piece.tiles, 32..56, "the last part is short");
}

/// A recorder: what the serial executor calls, as the table says it.
#[derive(Default)]
struct Record(Vec<Step>);

impl Units for Record {
    fn fetch(&mut self, fetch: &Fetch) {
        self.0.push(Step { fetch: Some(fetch.clone()), ..Step::default() });
    }
    fn decode(&mut self, decode: &Decode) {
        self.0.push(Step { decode: Some(decode.clone()), ..Step::default() });
    }
    fn multiply(&mut self, multiply: &Multiply) {
        self.0.push(Step { multiply: Some(multiply.clone()), ..Step::default() });
    }
    fn activate(&mut self, activate: &Activate) {
        self.0.push(Step { activate: Some(*activate), ..Step::default() });
    }
    fn scatter(&mut self, scatter: &Scatter) {
        self.0.push(Step { scatter: Some(*scatter), ..Step::default() });
    }
}

proptest! {
    #[test]
    fn the_serial_executor_does_what_the_table_says_in_an_order_that_holds(
        pairs in 0usize..5, inward in cuts(), strips in 0usize..5, outward in cuts(),
    ) {
        let table = Table::new(0..pairs, inward, 0..strips, outward);
        let mut record = Record::default();
        run_serial(&table, &mut record);
        let (mut replay, mut left) = (Replay::default(), record.0.len());
        for step in &record.0 {
            replay.step(step, inward, outward, &(0..pairs));
        }
        for step in table.steps() {
            left -= usize::from(step.fetch.is_some()) + usize::from(step.decode.is_some());
            left -= usize::from(step.multiply.is_some()) + usize::from(step.activate.is_some());
            left -= usize::from(step.scatter.is_some());
        }
        prop_assert_eq!(left, 0);
        prop_assert_eq!(&replay.order[2], &pieces(0..pairs, inward, 0..strips, outward));
        prop_assert!(replay.buffers.values().all(|(_, taken)| *taken));
    }
}
