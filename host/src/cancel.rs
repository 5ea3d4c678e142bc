//! Giving up the running pass, from any thread and at any time.
//!
//! A cancel may come between the moment in which a pass gets its number and the one in which it is sent. So the number is
//! stored first, and whoever sends the pass looks afterwards whether it was given up meanwhile: either it sees that, or
//! the canceller's own message goes behind the pass. The firmware drops a `Cancel` of a pass that it does not know.

use crate::Error;
use crate::link::Outbox;
use estream_idl::message::ToDsp;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// The pass at work, for those who may give it up.
pub(crate) struct Running {
    /// Its number, 0 for none.
    pass: AtomicU32,
    /// The last pass that was given up.
    given_up: AtomicU32,
    outbox: Arc<Outbox>,
}

impl Running {
    /// No pass yet; messages go through `outbox`.
    pub(crate) fn new(outbox: Arc<Outbox>) -> Self {
        Self { pass: AtomicU32::new(0), given_up: AtomicU32::new(0), outbox }
    }

    /// The way to the firmware.
    pub(crate) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Pass `pass` begins: from here on it can be given up.
    pub(crate) fn begin(&self, pass: u32) {
        self.pass.store(pass, Ordering::SeqCst);
    }

    /// Sends the pass that has begun.
    pub(crate) fn send(&self, pass: u32, requests: u32) -> Result<(), Error> {
        self.outbox.send(ToDsp::Prefill { pass, requests })?;
        if self.given_up.load(Ordering::SeqCst) == pass {
            self.outbox.send(ToDsp::Cancel { pass })?;
        }
        Ok(())
    }

    /// The pass has ended.
    pub(crate) fn end(&self) {
        self.pass.store(0, Ordering::SeqCst);
    }

    fn cancel(&self) {
        let pass = self.pass.load(Ordering::SeqCst);
        if pass == 0 {
            return;
        }
        let again = self.given_up.swap(pass, Ordering::SeqCst) == pass;
        let message = ToDsp::Cancel { pass };
        // Once it is sure to be heard. Calls without end must not fill the ring that completions need.
        // A ring that cannot carry this cannot carry the pass either: the session learns of it by itself.
        let _ = if again { self.outbox.send_spare(message) } else { self.outbox.send(message) };
    }
}

/// Gives up the running pass, from any thread; without one it does nothing. It does not keep a session's memory.
#[derive(Clone)]
pub struct Canceller(Weak<Running>);

impl Canceller {
    /// A canceller of the passes of `running`.
    pub(crate) fn of(running: &Arc<Running>) -> Self {
        Self(Arc::downgrade(running))
    }

    /// Asks the firmware to give the running pass up, each time that it is called. `prefill` then returns the error
    /// `cancelled`, once the loads in flight have drained.
    pub fn cancel(&self) {
        if let Some(running) = self.0.upgrade() {
            running.cancel();
        }
    }
}

impl std::fmt::Debug for Canceller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Canceller")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use estream_idl::address::SegmentPages;
    use estream_idl::control::{CONTROL_PAGES, MAX_TICKETS};
    use estream_idl::ring::Consumer;
    use estream_idl::status::Status;

    fn bench() -> (Arena, Arc<Running>) {
        let arena = Arena::make(SegmentPages([CONTROL_PAGES, 0, 0, 0, 0]), false).unwrap();
        let outbox = Arc::new(Outbox::new(arena.clone()).unwrap());
        (arena, Arc::new(Running::new(outbox)))
    }

    /// What has come since the last call.
    fn heard(consumer: &mut Consumer<'_>) -> Vec<ToDsp> {
        std::iter::from_fn(|| consumer.pop().unwrap().map(|entry| ToDsp::decode(&entry).unwrap())).collect()
    }

    #[test]
    fn a_pass_that_is_given_up_before_it_is_sent_is_given_up_behind_it() {
        let (arena, running) = bench();
        let memory = arena.memory();
        let mut consumer = memory.control().unwrap().to_dsp().consumer();
        let canceller = Canceller::of(&running);
        canceller.cancel();
        assert_eq!(heard(&mut consumer), []);

        running.begin(5);
        canceller.cancel();
        running.send(5, 1).unwrap();
        let messages = heard(&mut consumer);
        let [.., ToDsp::Prefill { pass: 5, requests: 1 }, ToDsp::Cancel { pass: 5 }] = messages[..] else {
            panic!("{messages:?}")
        };
        // The next one is another pass.
        running.end();
        canceller.cancel();
        running.begin(6);
        running.send(6, 1).unwrap();
        assert_eq!(heard(&mut consumer), [ToDsp::Prefill { pass: 6, requests: 1 }]);
    }

    #[test]
    fn each_call_asks_again_and_no_number_of_calls_takes_the_room_of_completions() {
        let (arena, running) = bench();
        let memory = arena.memory();
        let mut consumer = memory.control().unwrap().to_dsp().consumer();
        let canceller = Canceller::of(&running);
        running.begin(1);
        running.send(1, 1).unwrap();
        heard(&mut consumer);
        for _ in 0..3 {
            canceller.cancel();
            assert_eq!(heard(&mut consumer), [ToDsp::Cancel { pass: 1 }]);
        }
        (0..1000).for_each(|_| canceller.cancel());
        let loaded = ToDsp::Loaded { ticket: 0, status: Status::Ok };
        (0..MAX_TICKETS).for_each(|_| running.outbox().send(loaded).unwrap());
        assert!(heard(&mut consumer).ends_with(&[loaded; MAX_TICKETS]));
        // With every completion on the way, the first cancel of a pass still comes through.
        running.begin(2);
        running.send(2, 1).unwrap();
        (0..MAX_TICKETS).for_each(|_| running.outbox().send(loaded).unwrap());
        canceller.cancel();
        assert_eq!(heard(&mut consumer).last(), Some(&ToDsp::Cancel { pass: 2 }));
    }
}
