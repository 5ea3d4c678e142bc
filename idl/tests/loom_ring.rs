//! Loom explores the rings, and what crosses them, under every order of events and every value that the memory model
//! allows: `RUSTFLAGS="--cfg loom" cargo test -p estream-idl --release --test loom_ring`.
//!
//! The code explored is [`estream_idl::ring`] itself, over loom's atomics. Threads try a bounded number of times rather
//! than spin, except where waiting is the point; there the number of preemptions is bounded.
#![cfg(loom)]

use estream_idl::ring::{Consumer, Producer, PushError, Ring};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;

/// The shared words of one ring of two entries.
struct Words<const WORDS: usize> {
    head: AtomicU32,
    tail: AtomicU32,
    entries: Vec<AtomicU32>,
}

impl<const WORDS: usize> Words<WORDS> {
    fn new() -> Self {
        let entries = (0..2 * WORDS).map(|_| AtomicU32::new(0)).collect();
        Self { head: AtomicU32::new(0), tail: AtomicU32::new(0), entries }
    }

    fn ring(&self) -> Ring<'_, WORDS> {
        Ring::new(&self.head, &self.tail, &self.entries)
    }
}

/// Explores `body` with at most `preemptions` switches away from a thread that could go on.
fn explore(preemptions: Option<usize>, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(body);
}

/// Pushes, yielding to the consumer while the ring is full.
fn push<const WORDS: usize>(producer: &mut Producer<'_, WORDS>, entry: [u32; WORDS]) {
    while let Err(error) = producer.push(&entry) {
        assert_eq!(error, PushError::Full, "a correct consumer never makes a ring corrupt");
        thread::yield_now();
    }
}

/// Pops, yielding to the producer while the ring is empty.
fn pop<const WORDS: usize>(consumer: &mut Consumer<'_, WORDS>) -> [u32; WORDS] {
    loop {
        match consumer.pop().expect("a correct producer never makes a ring corrupt") {
            Some(entry) => return entry,
            None => thread::yield_now(),
        }
    }
}

#[test]
fn entries_are_whole_and_in_order_whatever_interleaves() {
    explore(None, || {
        let words = Arc::new(Words::<2>::new());
        let producing = {
            let words = words.clone();
            thread::spawn(move || {
                let mut producer = words.ring().producer();
                let mut pushed = 0;
                // Four tries over two entries: some find the ring full, some overwrite an entry that was read.
                for _ in 0..4 {
                    match producer.push(&[pushed + 1, !(pushed + 1)]) {
                        Ok(()) => pushed += 1,
                        Err(error) => assert_eq!(error, PushError::Full),
                    }
                }
                pushed
            })
        };
        let mut consumer = words.ring().consumer();
        let mut popped = 0;
        let mut take = |consumer: &mut Consumer<'_, 2>| {
            let entry = consumer.pop().expect("a correct producer never makes a ring corrupt");
            if let Some(entry) = entry {
                popped += 1;
                assert_eq!(entry, [popped, !popped], "torn, lost, doubled or out of order");
            }
            entry.is_some()
        };
        for _ in 0..3 {
            take(&mut consumer);
        }
        let pushed = producing.join().unwrap();
        while take(&mut consumer) {}
        assert_eq!(popped, pushed, "what was pushed comes out");
    });
}

#[test]
fn five_entries_pass_through_two_places() {
    explore(Some(3), || {
        let words = Arc::new(Words::<2>::new());
        let producing = {
            let words = words.clone();
            thread::spawn(move || {
                let mut producer = words.ring().producer();
                (1..=5).for_each(|number| push(&mut producer, [number, !number]));
            })
        };
        let mut consumer = words.ring().consumer();
        for number in 1..=5 {
            assert_eq!(pop(&mut consumer), [number, !number]);
        }
        producing.join().unwrap();
    });
}

/// Law 5 at the level of memory: a bank is never read before it is published, and never written before it is released.
///
/// The bank's bytes are a plain cell, for which loom reports any access that is not ordered against a write. The engine
/// asks for loads, the loader writes the bank and says so, the engine reads it, and the next request for the same bank is
/// its release. Only the rings order the two.
#[test]
fn banks_are_published_and_released_by_the_rings_alone() {
    const LOADS: u32 = 3;
    struct Shared {
        to_host: Words<1>,
        to_dsp: Words<1>,
        banks: [UnsafeCell<u32>; 2],
    }
    explore(Some(3), || {
        let shared = Arc::new(Shared {
            to_host: Words::new(),
            to_dsp: Words::new(),
            banks: [UnsafeCell::new(0), UnsafeCell::new(0)],
        });
        let loader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let mut loads = shared.to_host.ring().consumer();
                let mut loaded = shared.to_dsp.ring().producer();
                for _ in 0..LOADS {
                    let [ticket] = pop(&mut loads);
                    // SAFETY: loom checks that nobody else reads or writes the cell meanwhile.
                    shared.banks[ticket as usize % 2].with_mut(|bank| unsafe { *bank = 100 + ticket });
                    push(&mut loaded, [ticket]);
                }
            })
        };
        let mut loads = shared.to_host.ring().producer();
        let mut loaded = shared.to_dsp.ring().consumer();
        push(&mut loads, [0]);
        push(&mut loads, [1]);
        for next in 0..LOADS {
            let [ticket] = pop(&mut loaded);
            assert_eq!(ticket, next);
            // SAFETY: loom checks that nobody writes the cell meanwhile.
            let bytes = shared.banks[ticket as usize % 2].with(|bank| unsafe { *bank });
            assert_eq!(bytes, 100 + ticket, "the bytes of this load and of no other");
            if next + 2 < LOADS {
                push(&mut loads, [next + 2]);
            }
        }
        loader.join().unwrap();
    });
}
