//! The link to a firmware: what keeps the shared memory mapped for as long as the firmware can reach it, and the one
//! producer of the ring towards it.
//!
//! Readers, sessions and cancellers all send; the ring has one producer, so they meet at a mutex, which nobody holds
//! longer than an entry takes. `Loaded` never waits for room: the firmware has at most half a ring of tickets.

use crate::arena::Arena;
use crate::{Error, Transport};
use estream_idl::call::{Reply, Request};
use estream_idl::control::MAX_TICKETS;
use estream_idl::message::ToDsp;
use estream_idl::ring::{Producer, PushError};
use estream_idl::sync::{AtomicU32, Ordering};
use rustix::thread::futex;
use std::sync::{Mutex, PoisonError};

/// Futexes are keyed by the memory and not by the process: the peer may be another one.
const SHARED: futex::Flags = futex::Flags::empty();

/// A transport whose firmware has been told of the shared memory.
pub(crate) struct Attachment {
    // Dropped (and with it the firmware's session closed) before the memory below can go.
    transport: Box<dyn Transport>,
    _arena: Arena,
}

impl Attachment {
    /// Tells the firmware behind `transport` where the memory is.
    pub(crate) fn new(mut transport: Box<dyn Transport>, arena: Arena) -> Result<Self, Error> {
        // SAFETY: the handle beside the transport outlives it, and with it the firmware's session.
        transport.attach(unsafe { arena.memory_unbound() })?;
        Ok(Self { transport, _arena: arena })
    }

    /// One call.
    pub(crate) fn call(&mut self, request: &Request<'_>) -> Result<Reply, Error> {
        self.transport.call(request)
    }

    /// Whether the firmware is still there.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.transport.check()
    }

    /// What ends a firmware that does not answer.
    pub(crate) fn terminator(&self) -> Option<Box<dyn FnOnce() + Send>> {
        self.transport.terminator()
    }
}

/// The writing end of the ring to the firmware, with its doorbell.
pub(crate) struct Outbox {
    producer: Mutex<Producer<'static>>,
    bell: &'static AtomicU32,
    _arena: Arena,
}

impl Outbox {
    /// The one outbox of `arena`, whose control words are fresh.
    pub(crate) fn new(arena: Arena) -> Result<Self, Error> {
        // SAFETY: the handle beside the view keeps the memory for as long as this value lives.
        let memory = unsafe { arena.memory_unbound() };
        let control =
            memory.control().ok_or_else(|| Error::protocol("a control segment that holds no rings"))?;
        let producer = Mutex::new(control.to_dsp().producer());
        Ok(Self { producer, bell: control.bell_dsp(), _arena: arena })
    }

    /// Sends one message and rings.
    pub(crate) fn send(&self, message: ToDsp) -> Result<(), Error> {
        self.send_beside(0, message)
    }

    /// Sends one message that may be lost where the ring has no more room than completions can need.
    pub(crate) fn send_spare(&self, message: ToDsp) -> Result<(), Error> {
        // Beside them: the pass, and the cancels that must not be lost (its canceller's, its sender's, its sink's).
        self.send_beside(MAX_TICKETS as u32 + 4, message)
    }

    /// Sends one message if `kept` more entries are free.
    fn send_beside(&self, kept: u32, message: ToDsp) -> Result<(), Error> {
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        let pushed = match producer.room() {
            Ok(room) if room <= kept => Err(PushError::Full),
            _ => producer.push(&message.encode()),
        };
        drop(producer);
        match pushed {
            Ok(()) => {}
            Err(PushError::Full) => return Err(Error::protocol("it does not read the ring towards it")),
            Err(PushError::Corrupt) => return Err(Error::protocol("an impossible index in the ring to it")),
        }
        // Ordering: the entry was released by the push; the bell only has to differ from what a waiter saw before it.
        self.bell.fetch_add(1, Ordering::Release);
        // A wake cannot fail on a mapped word, and a waiter that missed it sees another value.
        let _ = futex::wake(self.bell, SHARED, i32::MAX.unsigned_abs());
        Ok(())
    }
}

/// Sleeps until `bell` differs from `seen`, is woken, or `patience` is over.
pub(crate) fn wait(bell: &AtomicU32, seen: u32, patience: std::time::Duration) {
    let patience = futex::Timespec {
        tv_sec: patience.as_secs().cast_signed(),
        tv_nsec: i64::from(patience.subsec_nanos()),
    };
    // Every outcome means: look again.
    let _ = futex::wait(bell, SHARED, seen, Some(&patience));
}

/// Wakes whoever waits on `bell` without changing it: a line of control memory has one writer, and this is not ours.
pub(crate) fn nudge(bell: &AtomicU32) {
    let _ = futex::wake(bell, SHARED, i32::MAX.unsigned_abs());
}
