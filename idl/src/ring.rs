//! Single-producer, single-consumer rings of fixed entries over shared words.
//!
//! Indices are free-running `u32`; each side keeps its own index privately and only publishes it, so a peer that
//! scribbles over control memory can never move it. The peer's index is hostile: when it claims more entries than the
//! ring holds, the answer is [`Corrupt`], nothing moves, and the session ends there. Entries are words read with relaxed
//! atomics, which makes a racing peer a source of wrong values (checked by [`crate::message`]) and never of undefined
//! behaviour: this module has no unsafe code.
//!
//! Ordering: the producer writes the entry, then releases `head`; the consumer acquires `head`, reads, then releases
//! `tail`; the producer acquires `tail` before it overwrites.

use crate::sync::{AtomicU32, Ordering};

/// Words of an entry on the wire (64 bytes).
pub const ENTRY_WORDS: usize = 16;

/// An entry of a ring.
pub type Entry = [u32; ENTRY_WORDS];

/// The peer's index is impossible: the ring can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// Why an entry was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// The consumer has not made room yet.
    Full,
    /// The consumer's index is impossible.
    Corrupt,
}

/// The shared words of one ring.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a, const WORDS: usize = ENTRY_WORDS> {
    head: &'a AtomicU32,
    tail: &'a AtomicU32,
    words: &'a [AtomicU32],
}

impl<'a, const WORDS: usize> Ring<'a, WORDS> {
    /// A ring over its producer index, consumer index and entry words.
    ///
    /// # Panics
    /// When the capacity `words.len() / WORDS` is not a power of two: both sides pass constants.
    #[must_use]
    pub fn new(head: &'a AtomicU32, tail: &'a AtomicU32, words: &'a [AtomicU32]) -> Self {
        assert!(words.len().is_multiple_of(WORDS) && (words.len() / WORDS).is_power_of_two());
        Self { head, tail, words }
    }

    fn capacity(&self) -> u32 {
        (self.words.len() / WORDS) as u32
    }

    fn slot(&self, index: u32) -> &'a [AtomicU32] {
        let first = (index & (self.capacity() - 1)) as usize * WORDS;
        &self.words[first..first + WORDS]
    }

    /// The writing end. Make one per ring and session, after the words were zeroed.
    #[must_use]
    pub fn producer(self) -> Producer<'a, WORDS> {
        Producer { ring: self, head: 0 }
    }

    /// The reading end. Make one per ring and session, after the words were zeroed.
    #[must_use]
    pub fn consumer(self) -> Consumer<'a, WORDS> {
        Consumer { ring: self, tail: 0 }
    }
}

/// The writing end of a ring.
#[derive(Debug)]
pub struct Producer<'a, const WORDS: usize = ENTRY_WORDS> {
    ring: Ring<'a, WORDS>,
    head: u32,
}

impl<const WORDS: usize> Producer<'_, WORDS> {
    /// Entries that can be pushed now.
    ///
    /// # Errors
    /// [`Corrupt`] when the consumer claims to have read what was never written.
    pub fn room(&self) -> Result<u32, Corrupt> {
        let used = self.head.wrapping_sub(self.ring.tail.load(Ordering::Acquire));
        self.ring.capacity().checked_sub(used).ok_or(Corrupt)
    }

    /// Writes one entry and publishes it. The doorbell is the caller's.
    ///
    /// # Errors
    /// [`PushError::Full`] without room, [`PushError::Corrupt`] as [`Self::room`].
    pub fn push(&mut self, entry: &[u32; WORDS]) -> Result<(), PushError> {
        match self.room() {
            Err(Corrupt) => return Err(PushError::Corrupt),
            Ok(0) => return Err(PushError::Full),
            Ok(_) => {}
        }
        for (word, &value) in self.ring.slot(self.head).iter().zip(entry) {
            word.store(value, Ordering::Relaxed);
        }
        self.head = self.head.wrapping_add(1);
        self.ring.head.store(self.head, Ordering::Release);
        Ok(())
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub struct Consumer<'a, const WORDS: usize = ENTRY_WORDS> {
    ring: Ring<'a, WORDS>,
    tail: u32,
}

impl<const WORDS: usize> Consumer<'_, WORDS> {
    /// The next entry, or `None` when the ring is empty.
    ///
    /// # Errors
    /// [`Corrupt`] when the producer claims more entries than the ring holds.
    pub fn pop(&mut self) -> Result<Option<[u32; WORDS]>, Corrupt> {
        let waiting = self.ring.head.load(Ordering::Acquire).wrapping_sub(self.tail);
        if waiting > self.ring.capacity() {
            return Err(Corrupt);
        }
        if waiting == 0 {
            return Ok(None);
        }
        let mut entry = [0; WORDS];
        for (value, word) in entry.iter_mut().zip(self.ring.slot(self.tail)) {
            *value = word.load(Ordering::Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        self.ring.tail.store(self.tail, Ordering::Release);
        Ok(Some(entry))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn indices_wrap_around_u32_without_a_trace() {
        let first = u32::MAX - 2;
        let (head, tail) = (AtomicU32::new(first), AtomicU32::new(first));
        let words = [const { AtomicU32::new(0) }; 4];
        let ring = Ring::<1>::new(&head, &tail, &words);
        let (mut producer, mut consumer) = (Producer { ring, head: first }, Consumer { ring, tail: first });
        for lap in 0..3 {
            for number in 0..4 {
                assert_eq!(producer.room(), Ok(4 - number));
                producer.push(&[lap * 4 + number]).unwrap();
            }
            assert_eq!(producer.push(&[99]), Err(PushError::Full));
            for number in 0..4 {
                assert_eq!(consumer.pop(), Ok(Some([lap * 4 + number])));
            }
            assert_eq!(consumer.pop(), Ok(None));
        }
        assert_eq!(head.load(Ordering::Relaxed), first.wrapping_add(12));
        tail.store(first, Ordering::Relaxed);
        assert_eq!(producer.room(), Err(Corrupt), "twelve entries are not in a ring of four");
    }
}
