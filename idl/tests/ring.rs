//! Rings against a plain queue, and rings whose peer lies.
#![cfg(not(loom))]

use estream_idl::ring::{Consumer, Corrupt, PushError, Ring};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

const WORDS: usize = 3;

/// The words of a ring of `entries` entries, as shared memory holds them.
struct Words {
    head: AtomicU32,
    tail: AtomicU32,
    entries: Vec<AtomicU32>,
}

impl Words {
    fn new(entries: usize) -> Self {
        let words = (0..entries * WORDS).map(|_| AtomicU32::new(0)).collect();
        Self { head: AtomicU32::new(0), tail: AtomicU32::new(0), entries: words }
    }

    fn ring(&self) -> Ring<'_, WORDS> {
        Ring::new(&self.head, &self.tail, &self.entries)
    }
}

/// An entry that no other number shares a word with.
fn entry(number: u32) -> [u32; WORDS] {
    [number, number.wrapping_mul(0x9e37_79b9) ^ 0x55, !number]
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push,
    Pop,
    Room,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![5 => Just(Step::Push), 5 => Just(Step::Pop), 1 => Just(Step::Room)]
}

/// Pops all that is there.
fn drain(consumer: &mut Consumer<'_, WORDS>) -> Vec<[u32; WORDS]> {
    std::iter::from_fn(|| consumer.pop().unwrap()).collect()
}

proptest! {
    #[test]
    fn a_ring_is_a_bounded_queue(log in 0u32..5, steps in vec(step(), 0..400)) {
        let capacity = 1 << log;
        let words = Words::new(capacity);
        let (mut producer, mut consumer) = (words.ring().producer(), words.ring().consumer());
        let mut queue = VecDeque::new();
        for (number, step) in (1u32..).zip(steps) {
            match step {
                Step::Push if queue.len() == capacity => {
                    prop_assert_eq!(producer.push(&entry(number)), Err(PushError::Full));
                }
                Step::Push => {
                    prop_assert_eq!(producer.push(&entry(number)), Ok(()));
                    queue.push_back(number);
                }
                Step::Pop => prop_assert_eq!(consumer.pop(), Ok(queue.pop_front().map(entry))),
                Step::Room => prop_assert_eq!(producer.room(), Ok((capacity - queue.len()) as u32)),
            }
        }
    }

    #[test]
    fn a_lying_producer_is_found_or_harmless(
        pushes in 0u32..4,
        pops in 0u32..4,
        lie in prop_oneof![any::<u32>(), 0u32..16, (u32::MAX - 16)..=u32::MAX],
        junk in any::<u32>(),
    ) {
        let words = Words::new(4);
        let (mut producer, mut consumer) = (words.ring().producer(), words.ring().consumer());
        (0..pushes).for_each(|number| producer.push(&entry(number)).unwrap());
        let popped = (0..pops).filter(|_| consumer.pop().unwrap().is_some()).count() as u32;
        words.entries.iter().for_each(|word| word.store(junk, Ordering::Relaxed));
        words.head.store(lie, Ordering::Relaxed);
        // The consumer believes its own index: the lie is judged by its distance from there, and by nothing else.
        match lie.wrapping_sub(popped) {
            0 => prop_assert_eq!(consumer.pop(), Ok(None)),
            1..=4 => {
                // Not to be told from the truth, except by the contents; but never more than the ring holds.
                let entries = drain(&mut consumer);
                prop_assert_eq!(entries, vec![[junk; WORDS]; lie.wrapping_sub(popped) as usize]);
                prop_assert_eq!(words.tail.load(Ordering::Relaxed), lie);
            }
            _ => {
                prop_assert_eq!(consumer.pop(), Err(Corrupt));
                prop_assert_eq!(consumer.pop(), Err(Corrupt));
                prop_assert_eq!(words.tail.load(Ordering::Relaxed), popped, "a corrupt ring is left as it is");
            }
        }
    }

    #[test]
    fn a_lying_consumer_is_found_or_harmless(
        pushes in 0u32..5,
        lie in prop_oneof![any::<u32>(), 0u32..16, (u32::MAX - 16)..=u32::MAX],
    ) {
        let words = Words::new(4);
        let mut producer = words.ring().producer();
        (0..pushes).for_each(|number| producer.push(&entry(number)).unwrap());
        words.tail.store(lie, Ordering::Relaxed);
        let (room, push) = (producer.room(), producer.push(&entry(99)));
        match pushes.wrapping_sub(lie) {
            4 => prop_assert_eq!((room, push), (Ok(0), Err(PushError::Full))),
            used @ 0..4 => prop_assert_eq!((room, push), (Ok(4 - used), Ok(()))),
            _ => {
                prop_assert_eq!((room, push), (Err(Corrupt), Err(PushError::Corrupt)));
                prop_assert_eq!(words.head.load(Ordering::Relaxed), pushes, "a corrupt ring is left as it is");
            }
        }
    }

    #[test]
    fn scribbled_own_indices_move_nothing(scribbles in vec((any::<u32>(), any::<u32>()), 1..50)) {
        // A peer that may write all of control memory overwrites the index that this side publishes. Only the peer reads
        // it; what this side reads and writes goes on where it was.
        let words = Words::new(8);
        let (mut producer, mut consumer) = (words.ring().producer(), words.ring().consumer());
        for (number, (head, tail)) in (0u32..).zip(scribbles) {
            words.head.store(head, Ordering::Relaxed);
            producer.push(&entry(number)).unwrap();
            words.tail.store(tail, Ordering::Relaxed);
            prop_assert_eq!(consumer.pop(), Ok(Some(entry(number))));
        }
    }
}

#[test]
fn a_hundred_thousand_entries_cross_between_threads_in_order() {
    let words = Words::new(16);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut producer = words.ring().producer();
            for number in 0..100_000 {
                while producer.push(&entry(number)) == Err(PushError::Full) {
                    std::thread::yield_now();
                }
            }
        });
        let mut consumer = words.ring().consumer();
        for number in 0..100_000 {
            let popped = std::iter::repeat_with(|| consumer.pop().unwrap())
                .inspect(|popped| {
                    if popped.is_none() {
                        std::thread::yield_now()
                    }
                })
                .flatten()
                .next();
            assert_eq!(popped, Some(entry(number)));
        }
    });
}

#[test]
#[should_panic = "is_power_of_two"]
fn a_capacity_that_is_no_power_of_two_is_a_bug() {
    let words = Words::new(3);
    let _ = words.ring();
}
