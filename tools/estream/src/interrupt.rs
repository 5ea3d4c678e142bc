//! Signals that end the program, turned into an error, so that what is unfinished is tidied away.
//!
//! [`interruptible`] runs the part of a command that has files on the way. The first SIGINT, SIGTERM or SIGHUP gives up
//! the running pass and all writing, so that the command unwinds, removes what has a temporary name and fails with
//! `cancelled`; a second one ends the program at once. Everywhere else signals do what they always do, and those that the
//! program was told to ignore (by `nohup`, or for a job in the background) stay ignored.

use estream::{Canceller, Error, Exit, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The signals by name.
const SIGNALS: [(i32, &str); 3] = [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM"), (SIGHUP, "SIGHUP")];
/// A pass that begins after the signal is given up as well: the request is repeated this often.
const REPEAT: Duration = Duration::from_millis(20);

/// What was caught, and what it has to stop.
#[derive(Debug, Default)]
pub struct Interrupt {
    /// The signal, 0 for none.
    signal: AtomicI32,
    /// Whether there is nothing left to tidy.
    done: AtomicBool,
    pass: Mutex<Option<Canceller>>,
}

/// What [`Interrupt::unwind`] unwinds with.
struct Interrupted;

/// Runs `body`, which a signal gives up.
///
/// # Errors
/// Those of `body`; after a signal `cancelled`, whatever they were.
pub fn interruptible<T>(body: impl FnOnce(&Interrupt) -> Result<T>) -> Result<T> {
    let interrupt = Arc::new(Interrupt::default());
    interrupt.listen()?;
    // Nothing that `body` borrows is used again after an unwinding but by what is dropped on the way.
    let ended = catch_unwind(AssertUnwindSafe(|| body(&interrupt)));
    interrupt.done.store(true, Ordering::Relaxed);
    match ended {
        Ok(result) => result.map_err(|error| interrupt.check().err().unwrap_or(error)),
        Err(payload) if payload.is::<Interrupted>() => {
            interrupt.check().and_then(|()| resume_unwind(payload))
        }
        Err(panic) => resume_unwind(panic),
    }
}

impl Interrupt {
    /// Has a signal give up the passes of `canceller`'s engine.
    pub fn gives_up(&self, canceller: Canceller) {
        *self.pass.lock().unwrap_or_else(PoisonError::into_inner) = Some(canceller);
    }

    /// Fails after a signal, for the places between two long steps.
    pub fn check(&self) -> Result<()> {
        // Ordering: nothing is handed over with the number, here or below.
        let signal = self.signal.load(Ordering::Relaxed);
        match SIGNALS.iter().find(|(number, _)| *number == signal) {
            Some((_, name)) => Err(Error::new("cancelled", Exit::Runtime, format!("interrupted by {name}"))),
            None => Ok(()),
        }
    }

    /// Unwinds to [`interruptible`] after a signal: for callbacks out of a long step that cannot be made to fail.
    pub fn unwind(&self) {
        if self.check().is_err() {
            resume_unwind(Box::new(Interrupted));
        }
    }

    fn listen(self: &Arc<Self>) -> Result<()> {
        let ignored = ignored();
        let heard = SIGNALS.map(|(number, _)| number).into_iter();
        let heard: Vec<i32> = heard.filter(|number| ignored >> (number - 1) & 1 == 0).collect();
        if heard.is_empty() {
            return Ok(());
        }
        let failed = |error: std::io::Error| {
            Error::new("signals", Exit::Runtime, format!("signals cannot be caught: {error}"))
        };
        let signals = Signals::new(heard).map_err(failed)?;
        let interrupt = self.clone();
        let thread = thread::Builder::new().name("estream-signals".into());
        // It ends with the process.
        thread.spawn(move || interrupt.hear(signals)).map_err(failed)?;
        Ok(())
    }

    fn hear(&self, mut signals: Signals) {
        loop {
            let caught = self.check().is_err();
            for signal in if caught { signals.pending() } else { signals.wait() } {
                let first = self.signal.swap(signal, Ordering::Relaxed) == 0;
                if !first || self.done.load(Ordering::Relaxed) {
                    // What cannot be done the usual way is done by the command's own end.
                    let _ = emulate_default_handler(signal);
                }
                estream_pack::interrupt();
            }
            if let Some(pass) = &*self.pass.lock().unwrap_or_else(PoisonError::into_inner) {
                pass.cancel();
            }
            thread::sleep(REPEAT);
        }
    }
}

/// The signals that this process ignores, signal n as bit n − 1; none where the kernel does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    mask(&status).unwrap_or(0)
}

fn mask(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        // As `nohup` leaves it: SIGHUP is 1.
        assert_eq!(mask("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000001\n"), Some(1 << (SIGHUP - 1)));
        assert_eq!(mask("SigCgt:\t0000000000000001\n"), None);
        assert_eq!(mask("SigIgn:\tmany\n"), None);
    }

    #[test]
    fn unwinding_without_a_signal_does_nothing() {
        let interrupt = Interrupt::default();
        interrupt.unwind();
        assert!(interrupt.check().is_ok());
    }
}
