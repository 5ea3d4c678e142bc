//! The executor under random delays and any number of helpers: every piece of work finds the inputs that the table means,
//! and nobody touches a buffer that somebody else is using.
//!
//! The check is a ledger of its own: it knows the buffers' contents and users, nothing of sequence numbers. That it can
//! fail is shown by workers that break the rules.

use estream_dsp::executor::{Run, SHARES, Work, share};
use estream_dsp::kernels::Chain;
use estream_dsp::pipeline::{Activate, Cut, Decode, Fetch, Matrix, Multiply, Scatter, Table};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A buffer's contents, and how many are at work on it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Buffer {
    holds: Option<u32>,
    shares: u32,
    users: u32,
    writing: bool,
}

impl Buffer {
    fn begin_write(&mut self, what: u32, name: &str) -> Result<(), String> {
        if self.users > 0 || self.writing && self.holds != Some(what) {
            return Err(format!("{name} is overwritten by {what} while it is in use: {self:?}"));
        }
        if self.holds != Some(what) {
            *self = Self { holds: Some(what), shares: 0, users: 0, writing: true };
        }
        Ok(())
    }

    fn begin_read(&mut self, what: u32, shares: u32, name: &str) -> Result<(), String> {
        if self.holds != Some(what) || self.shares != shares {
            return Err(format!("{name} is read for {what} and {shares} shares, but is {self:?}"));
        }
        self.users += 1;
        Ok(())
    }

    fn end_write(&mut self, shares: u32) {
        self.shares += 1;
        self.writing = self.shares < shares;
    }
}

#[derive(Debug, Default)]
struct Ledger {
    c: [Buffer; 2],
    d: [Buffer; 2],
    o: [Buffer; 4],
    activated: BTreeMap<u32, u32>,
    scattered: BTreeMap<u32, u32>,
    broken: Option<String>,
}

/// What a worker does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Says that a part has come before it has.
    MissingWait,
    /// Says that a share of a decoding is done while it still reads its part: C is free a step early.
    EarlyDecode,
    /// Says that a product is done while the unit still reads its weights: D is free a step early.
    EarlyProduct,
    /// Says that a share of an activation is done while it still reads its products: O is free a step early.
    EarlyActivation,
    /// Says that a share of a scatter is done while it still reads its product: O is free a step early.
    EarlyScatter,
}

struct Checked<'a> {
    table: &'a Table,
    /// Parts of a gate or up strip, and of a down strip.
    parts: [u32; 2],
    ledger: Mutex<Ledger>,
    seed: AtomicU64,
    fault: Fault,
}

impl<'a> Checked<'a> {
    fn new(table: &'a Table, parts: [u32; 2], seed: u64, fault: Fault) -> Self {
        Self { table, parts, ledger: Mutex::default(), seed: AtomicU64::new(seed | 1), fault }
    }

    fn random(&self) -> u64 {
        let next = |x: u64| {
            let x = x ^ x << 13;
            let x = x ^ x >> 7;
            x ^ x << 17
        };
        let before = self.seed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |x| Some(next(x)));
        before.unwrap_or_default() >> 20
    }

    fn pause(&self) {
        match self.random() % 8 {
            0 => std::thread::sleep(std::time::Duration::from_micros(self.random() % 60)),
            1..=4 => std::thread::yield_now(),
            _ => {}
        }
    }

    /// Whether this piece of work is one that makes the mistake.
    fn makes(&self, fault: Fault) -> bool {
        self.fault == fault && self.random().is_multiple_of(4)
    }

    /// Ends the reading of a buffer, unless the reader only says so.
    fn end_read(&self, fault: Fault, pick: impl FnOnce(&mut Ledger) -> &mut Buffer) {
        if self.makes(fault) {
            return;
        }
        self.with(|ledger| {
            let buffer = pick(ledger);
            buffer.users = buffer.users.saturating_sub(1);
            Ok(())
        });
    }

    fn with(&self, body: impl FnOnce(&mut Ledger) -> Result<(), String>) {
        let mut ledger = self.ledger.lock().expect("nobody panics with it");
        if let Err(broken) = body(&mut ledger) {
            ledger.broken.get_or_insert(broken);
        }
    }

    /// A number for the product of a strip.
    fn strip(&self, matrix: Matrix, strip: usize) -> u32 {
        match matrix {
            Matrix::Gate => 2 * self.table.pair_number(strip),
            Matrix::Up => 2 * self.table.pair_number(strip) + 1,
            Matrix::Down => 2 * self.table.pairs() + self.table.strip_number(strip),
        }
    }

    fn check(self, pairs: u32, strips: u32) -> Result<(), String> {
        let ledger = self.ledger.into_inner().expect("nobody panics with it");
        if let Some(broken) = ledger.broken {
            return Err(broken);
        }
        let all = |done: &BTreeMap<u32, u32>, count| (0..count).all(|n| done.get(&n) == Some(&SHARES));
        if all(&ledger.activated, pairs) && all(&ledger.scattered, strips) {
            Ok(())
        } else {
            Err(format!("work is left over: {ledger:?}"))
        }
    }
}

impl Work for Checked<'_> {
    fn fetch(&self, fetch: &Fetch, turn: u32) {
        assert_eq!(turn, self.table.turn(&fetch.piece));
        self.with(|ledger| ledger.c[fetch.c].begin_write(turn, "C"));
    }

    fn arrived(&self, turn: u32) -> bool {
        if self.fault == Fault::MissingWait {
            return true;
        }
        let arrived = self.random().is_multiple_of(3);
        if arrived {
            self.with(|ledger| {
                ledger.c[turn as usize % 2].end_write(1);
                Ok(())
            });
        }
        arrived
    }

    fn decode(&self, decode: &Decode, _: u32) {
        let turn = self.table.turn(&decode.piece);
        self.with(|ledger| {
            ledger.c[decode.c].begin_read(turn, 1, "C")?;
            ledger.d[decode.d].begin_write(turn, "D")
        });
        self.pause();
        self.end_read(Fault::EarlyDecode, |ledger| &mut ledger.c[decode.c]);
        self.with(|ledger| {
            ledger.d[decode.d].end_write(SHARES);
            Ok(())
        });
    }

    fn multiply(&self, multiply: &Multiply) {
        let piece = &multiply.piece;
        let (turn, strip) = (self.table.turn(piece), self.strip(piece.matrix, piece.strip));
        self.with(|ledger| {
            let pairs = self.table.pairs();
            let activated = (0..pairs).all(|pair| ledger.activated.get(&pair) == Some(&SHARES));
            if piece.matrix == Matrix::Down && !activated {
                return Err(format!("down strip {strip} reads H before all pairs are activated"));
            }
            ledger.d[multiply.d].begin_read(turn, SHARES, "D")?;
            if multiply.chain == Chain::Start {
                ledger.o[multiply.o].begin_write(strip, "O")?;
            }
            Ok(())
        });
        self.pause();
        self.end_read(Fault::EarlyProduct, |ledger| &mut ledger.d[multiply.d]);
        self.with(|ledger| {
            ledger.o[multiply.o].end_write(self.parts[usize::from(piece.matrix == Matrix::Down)]);
            Ok(())
        });
    }

    fn activate(&self, activate: &Activate, _: u32) {
        let [gate, up] = [Matrix::Gate, Matrix::Up].map(|matrix| self.strip(matrix, activate.pair));
        let parts = self.parts[0];
        self.with(|ledger| {
            ledger.o[activate.gate].begin_read(gate, parts, "O")?;
            ledger.o[activate.up].begin_read(up, parts, "O")
        });
        self.pause();
        for o in [activate.gate, activate.up] {
            self.end_read(Fault::EarlyActivation, |ledger| &mut ledger.o[o]);
        }
        self.with(|ledger| {
            *ledger.activated.entry(self.table.pair_number(activate.pair)).or_default() += 1;
            Ok(())
        });
    }

    fn scatter(&self, scatter: &Scatter, _: u32) {
        let strip = self.strip(Matrix::Down, scatter.strip);
        let parts = self.parts[1];
        self.with(|ledger| ledger.o[scatter.o].begin_read(strip, parts, "O"));
        self.pause();
        self.end_read(Fault::EarlyScatter, |ledger| &mut ledger.o[scatter.o]);
        self.with(|ledger| {
            *ledger.scattered.entry(self.table.strip_number(scatter.strip)).or_default() += 1;
            Ok(())
        });
    }
}

/// Runs a table with helpers; what the ledger says.
fn run(shape: [usize; 6], helpers: usize, seed: u64, fault: Fault) -> Result<(), String> {
    let [first, pairs, strips, inward, outward, limit] = shape;
    let cut = |tiles| Cut::balanced(tiles, 32 * limit);
    let table = Table::new(first..first + pairs, cut(inward), first..first + strips, cut(outward));
    let work = Checked::new(&table, [inward, outward].map(|tiles| cut(tiles).parts() as u32), seed, fault);
    let run = Run::new(&table);
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(|| run.help(&work, std::thread::yield_now));
        }
        run.own(&work, std::thread::yield_now);
    });
    work.check(pairs as u32, strips as u32)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_order_is_one_that_the_table_means(
        shape in (0usize..3, 0usize..5, 0usize..5, 1usize..100, 1usize..100, 1usize..4),
        helpers in 0usize..4,
        seed in any::<u64>(),
    ) {
        let (first, pairs, strips, inward, outward, limit) = shape;
        let outcome = run([first, pairs, strips, inward, outward, limit], helpers, seed, Fault::None);
        prop_assert!(outcome.is_ok(), "{outcome:?}");
    }
}

#[test]
fn a_missing_dma_wait_is_found() {
    let broken =
        run([0, 3, 3, 8, 8, 1], 1, 7, Fault::MissingWait).expect_err("a part is decoded before it has come");
    assert!(broken.starts_with("C is read"), "{broken}");
}

/// What the ledger says of a worker that gives a buffer up while somebody is at work on it.
fn reused(fault: Fault, buffer: &str) {
    for seed in 0..20 {
        if let Err(broken) = run([0, 4, 4, 40, 40, 1], 2, seed, fault) {
            assert!(broken.starts_with(buffer) && broken.contains("overwritten"), "{fault:?}: {broken}");
            return;
        }
    }
    panic!("{fault:?}: nobody notices");
}

#[test]
fn compressed_bytes_fetched_over_a_step_early_are_found() {
    reused(Fault::EarlyDecode, "C is");
}

#[test]
fn weights_decoded_over_a_step_early_are_found() {
    reused(Fault::EarlyProduct, "D is");
}

#[test]
fn products_stored_over_before_their_activation_are_found() {
    reused(Fault::EarlyActivation, "O is");
}

#[test]
fn products_stored_over_before_their_scatter_are_found() {
    reused(Fault::EarlyScatter, "O is");
}

#[test]
fn shares_cut_everything_once() {
    for count in 0..100 {
        for grain in [1, 2, 8] {
            let mut next = 0;
            for number in 0..SHARES {
                let range = share(number, count, grain);
                assert!(
                    range.start == next.min(range.start) && range.start.is_multiple_of(grain),
                    "{count} {grain}"
                );
                assert!(range.is_empty() || range.start == next, "{count} {grain} {range:?}");
                next = next.max(range.end);
            }
            assert_eq!(next, count);
        }
    }
}
