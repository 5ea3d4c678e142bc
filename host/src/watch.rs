//! The watch over a firmware at work: a pass may take long, but not in silence.
//!
//! A beat (heartbeat word 0), any message and any read in flight is a sign of life: a disk that hangs is not the
//! firmware's fault, and the kernel ends such reads by itself. The other heartbeat words say where the firmware is, not
//! that it gets on: they are only told.

use crate::Error;
use estream_idl::control::Control;
use estream_idl::sync::Ordering;
use std::time::{Duration, Instant};

/// The count of beats as it was last seen to change.
pub(crate) struct Watch<'a> {
    control: Control<'a>,
    beats: u32,
    since: Instant,
    limit: Duration,
}

impl<'a> Watch<'a> {
    /// A watch that begins now.
    pub(crate) fn new(control: Control<'a>, limit: Duration) -> Self {
        let [beats, ..] = words(&control);
        Self { control, beats, since: Instant::now(), limit }
    }

    /// A message has come.
    pub(crate) fn heard(&mut self) {
        self.since = Instant::now();
    }

    /// Looks for a sign of life; `pending` is the number of reads in flight.
    pub(crate) fn look(&mut self, pending: usize) -> Result<(), Error> {
        let [beats, layer, bank] = words(&self.control);
        if pending > 0 || beats != self.beats {
            self.beats = beats;
            self.heard();
        }
        let silent = self.since.elapsed();
        if silent <= self.limit {
            return Ok(());
        }
        let what = format!("the firmware has been silent for {silent:.1?} at layer {layer}, bank {bank}");
        Err(Error::runtime("silent", what))
    }
}

fn words(control: &Control<'_>) -> [u32; 3] {
    control.heartbeat().map(|word| word.load(Ordering::Relaxed))
}
