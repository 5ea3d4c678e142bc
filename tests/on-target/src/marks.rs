//! Packets by operator: each is counted for the operator that the thread has marked.
//!
//! The listener reads the counter as its first and as its last act, so that its own work counts for nobody. What remains
//! is the call of the mark, some ten packets a piece of work, where a device has one test of a null pointer.

use crate::counter::{listen, packets};
use estream_idl::operator::Operator;
use std::sync::atomic::{AtomicU32, Ordering};

const OPERATORS: usize = Operator::ALL.len() + 1;

static LAST: AtomicU32 = AtomicU32::new(0);
static COUNTS: [AtomicU32; OPERATORS] = [const { AtomicU32::new(0) }; OPERATORS];

extern "C" fn turned(from: u32) {
    let spent = packets().wrapping_sub(LAST.load(Ordering::Relaxed));
    if let Some(count) = COUNTS.get(from as usize) {
        count.fetch_add(spent, Ordering::Relaxed);
    }
    LAST.store(packets(), Ordering::Relaxed);
}

/// What a call spent, by operator.
pub struct Spent([u32; OPERATORS]);

impl Spent {
    /// On one operator.
    pub fn on(&self, operator: Operator) -> u32 {
        self.0[operator as usize]
    }

    /// On everything, what has no mark included.
    pub fn all(&self) -> u32 {
        self.0.iter().sum()
    }
}

/// Runs `body` on this thread, by operator.
pub fn of(body: impl FnOnce()) -> Spent {
    listen(turned);
    COUNTS.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    LAST.store(packets(), Ordering::Relaxed);
    body();
    turned(0);
    Spent(core::array::from_fn(|operator| COUNTS[operator].load(Ordering::Relaxed)))
}
