//! The units side by side: an executor of the step table in which DMA, vector and matrix work overlap.
//!
//! One thread owns the matrix unit and its DMA engine (both belong to a hardware thread on Hexagon); any number of
//! others, or none, help with the vector work. Nobody is assigned anything: whoever is free advances the next piece of
//! work whose inputs are there. Buffers change hands by sequence numbers, which only grow:
//!
//! | number | counts | published by | acquired before |
//! |---|---|---|---|
//! | `fetched` | parts that lie in C | owner | their decoding |
//! | `decoded[turn mod 2]` | shares of parts that lie in D | whoever decoded | the product; the fetch into the same C |
//! | `multiplied` | parts multiplied | owner | activation, scatter; the decoding into the same D |
//! | `activated[pair mod 2]` | shares of pairs that lie in H | whoever activated | the product into the same O; every down product |
//! | `scattered[strip mod 2]` | shares of down strips added to Y | whoever scattered | the product into the same O |
//!
//! Two counters a kind suffice: work n + 2 of a kind waits, through the buffers, for work n, so a counter of one parity
//! is complete before its next round begins. A counter therefore is never reset, and a round is done when it reaches
//! `SHARES` times its number.
//!
//! # Why it never hangs
//! The table in serial order ([`crate::pipeline::run_serial`]) is one order in which every input precedes its use. Each
//! kind of work is taken up in that order, work once taken up never waits, and a claim is made only when its inputs are
//! there. So the first unfinished work of the serial order can always go on: the owner looks at its own two kinds and,
//! failing these, at the vector work. With no helper at all this is a serial run.
//!
//! # Why it never races
//! A number is published after the work (release) and read before the work that needs it (acquire); shares of one part
//! write disjoint ranges. Tests hold random delays and any number of helpers against a ledger of who uses which buffer.
#![forbid(unsafe_code)]

use crate::pipeline::{Activate, Decode, Fetch, Matrix, Multiply, Scatter, Step, Table};
use core::ops::Range;
use estream_idl::sync::{AtomicU32, Ordering};

/// Shares that one part, pair or strip of vector work is cut into: enough for the vector contexts of today's parts.
pub const SHARES: u32 = 4;

/// Tickets of a step: the shares of its activation or scatter, then those of its decoding.
const TICKETS: u32 = 2 * SHARES;

/// The share `share` of `count` things, cut at multiples of `grain`.
#[must_use]
pub const fn share(share: u32, count: usize, grain: usize) -> Range<usize> {
    let grains = count.div_ceil(grain);
    let [from, to] =
        [grains * share as usize / SHARES as usize, grains * (share as usize + 1) / SHARES as usize];
    let end = to * grain;
    from * grain..if end < count { end } else { count }
}

/// What the executor has done. `turn` numbers the parts of the table in order, as C and D alternate by it.
pub trait Work: Sync {
    /// Begins to bring part `turn` into its C. Owner only.
    fn fetch(&self, fetch: &Fetch, turn: u32);
    /// Whether part `turn`, the oldest that is not in, has come. Owner only.
    fn arrived(&self, turn: u32) -> bool;
    /// Multiplies. Owner only.
    fn multiply(&self, multiply: &Multiply);
    /// Decodes one share of a part.
    fn decode(&self, decode: &Decode, share: u32);
    /// Activates one share of a pair.
    fn activate(&self, activate: &Activate, share: u32);
    /// Scatters one share of a strip.
    fn scatter(&self, scatter: &Scatter, share: u32);
}

/// One run of a table.
#[derive(Debug)]
pub struct Run<'a> {
    table: &'a Table,
    steps: u32,
    /// Vector work claimed, in tickets.
    claimed: AtomicU32,
    fetched: AtomicU32,
    multiplied: AtomicU32,
    decoded: [AtomicU32; 2],
    activated: [AtomicU32; 2],
    scattered: [AtomicU32; 2],
}

/// A step of the table, kept between looks at it.
#[derive(Debug, Default)]
struct Held {
    index: Option<u32>,
    step: Step,
}

/// What a look for vector work came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Worked,
    Waiting,
    Through,
}

impl<'a> Run<'a> {
    /// A run of `table`, nothing done yet.
    #[must_use]
    pub fn new(table: &'a Table) -> Self {
        let zeros = || [AtomicU32::new(0), AtomicU32::new(0)];
        Self {
            table,
            steps: table.len() as u32,
            claimed: AtomicU32::new(0),
            fetched: AtomicU32::new(0),
            multiplied: AtomicU32::new(0),
            decoded: zeros(),
            activated: zeros(),
            scattered: zeros(),
        }
    }

    /// Runs as the owner of the matrix unit, until all of its work is done and no vector work is left to take up; what
    /// helpers have taken up may still go on when it returns. `idle` is called when there is nothing to do but wait.
    pub fn own(&self, work: &impl Work, mut idle: impl FnMut()) {
        let [mut fetch, mut multiply, mut vector] = [(); 3].map(|()| Held::default());
        let [mut fetching, mut multiplying] = [0, 0];
        // Parts asked for; the difference to `fetched` is under way.
        let mut asked = 0;
        loop {
            let mut worked = false;
            if self.fetched.load(Ordering::Relaxed) < asked
                && work.arrived(self.fetched.load(Ordering::Relaxed))
            {
                // Ordering: what the engine wrote into C is visible to whoever acquires this number.
                self.fetched.fetch_add(1, Ordering::Release);
                worked = true;
            }
            while fetching < self.steps {
                let Some(piece) = &self.held(&mut fetch, fetching).fetch else {
                    fetching += 1;
                    continue;
                };
                // The C was the part's before the last: it is decoded, and no share reads it any more.
                if asked >= 2 && !done(&self.decoded, asked - 2) {
                    break;
                }
                work.fetch(piece, asked);
                (asked, fetching, worked) = (asked + 1, fetching + 1, true);
            }
            while multiplying < self.steps {
                let Some(piece) = &self.held(&mut multiply, multiplying).multiply else {
                    multiplying += 1;
                    continue;
                };
                let turn = self.multiplied.load(Ordering::Relaxed);
                if !done(&self.decoded, turn) || !self.is_free(piece) {
                    break;
                }
                work.multiply(piece);
                // Ordering: the product, and the end of D's use, are visible to whoever acquires this number.
                self.multiplied.store(turn + 1, Ordering::Release);
                (multiplying, worked) = (multiplying + 1, true);
            }
            if worked {
                continue;
            }
            match self.look(work, &mut vector) {
                Look::Worked => {}
                Look::Through if multiplying == self.steps => return,
                Look::Through | Look::Waiting => idle(),
            }
        }
    }

    /// Helps with the vector work until none is left to take up.
    pub fn help(&self, work: &impl Work, mut idle: impl FnMut()) {
        let mut held = Held::default();
        loop {
            match self.look(work, &mut held) {
                Look::Worked => {}
                Look::Waiting => idle(),
                Look::Through => return,
            }
        }
    }

    fn held<'b>(&self, held: &'b mut Held, index: u32) -> &'b Step {
        if held.index != Some(index) {
            *held = Held { index: Some(index), step: self.table.step(index as usize).unwrap_or_default() };
        }
        &held.step
    }

    /// Whether the O that `multiply` begins is free, and its activations complete.
    fn is_free(&self, multiply: &Multiply) -> bool {
        let piece = &multiply.piece;
        if piece.part > 0 {
            return true;
        }
        match piece.matrix {
            // The fourth strip before was half of the pair before the last.
            Matrix::Gate | Matrix::Up => {
                let pair = self.table.pair_number(piece.strip);
                pair < 2 || done(&self.activated, pair - 2)
            }
            Matrix::Down => {
                let strip = self.table.strip_number(piece.strip);
                let pairs = self.table.pairs();
                let activated =
                    strip > 0 || (pairs.saturating_sub(2)..pairs).all(|pair| done(&self.activated, pair));
                activated && (strip < 2 || done(&self.scattered, strip - 2))
            }
        }
    }

    /// Takes up the next share of vector work if its inputs are there.
    fn look(&self, work: &impl Work, held: &mut Held) -> Look {
        let ticket = self.claimed.load(Ordering::Relaxed);
        let (index, place) = (ticket / TICKETS, ticket % TICKETS);
        if index >= self.steps {
            return Look::Through;
        }
        let step = self.held(held, index);
        // Ordering: acquires the work behind the number, also through the release sequences of other helpers.
        let multiplied = self.multiplied.load(Ordering::Acquire);
        let decoding = place >= SHARES;
        let (absent, ready) = match (decoding, &step.activate, &step.scatter, &step.decode) {
            (true, _, _, Some(decode)) => {
                let turn = self.table.turn(&decode.piece);
                let fetched = self.fetched.load(Ordering::Acquire);
                (false, fetched > turn && (turn < 2 || multiplied > turn - 2))
            }
            (false, Some(activate), ..) => (false, multiplied >= self.table.turns_of_pair(activate.pair)),
            (false, None, Some(scatter), _) => {
                (false, multiplied >= self.table.turns_of_strip(scatter.strip))
            }
            _ => (true, true),
        };
        if !ready {
            return Look::Waiting;
        }
        let next = if absent { ticket - place % SHARES + SHARES } else { ticket + 1 };
        // Ordering: the claim carries no data; what it needs was acquired above and stays true.
        let claim = self.claimed.compare_exchange(ticket, next, Ordering::Relaxed, Ordering::Relaxed);
        if claim.is_err() || absent {
            return Look::Worked;
        }
        let share = place % SHARES;
        let counter = match (decoding, &step.activate, &step.scatter, &step.decode) {
            (true, _, _, Some(decode)) => {
                work.decode(decode, share);
                &self.decoded[(self.table.turn(&decode.piece) % 2) as usize]
            }
            (false, Some(activate), ..) => {
                work.activate(activate, share);
                &self.activated[(self.table.pair_number(activate.pair) % 2) as usize]
            }
            (false, None, Some(scatter), _) => {
                work.scatter(scatter, share);
                &self.scattered[(self.table.strip_number(scatter.strip) % 2) as usize]
            }
            _ => return Look::Worked,
        };
        // Ordering: releases this share; whoever acquires the full count acquires all of them.
        counter.fetch_add(1, Ordering::Release);
        Look::Worked
    }
}

/// Whether all shares of work number `number` of a kind are done.
fn done(counters: &[AtomicU32; 2], number: u32) -> bool {
    counters[(number % 2) as usize].load(Ordering::Acquire) >= SHARES * (number / 2 + 1)
}
