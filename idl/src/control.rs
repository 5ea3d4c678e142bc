//! The control segment: rings, doorbells and the heartbeat, laid out so that each 128-byte line has one writer.
//!
//! The DSP cleans whole cache lines: two writers in a line would undo each other's words. The table below is the whole
//! layout; every word in it is hostile to the side that did not write it.

use crate::address::PAGE;
use crate::ring::{ENTRY_WORDS, Ring};
use crate::sync::AtomicU32;

/// Words of a line.
pub const LINE_WORDS: usize = 32;

/// Entries of the ring from host to firmware.
pub const TO_DSP_ENTRIES: usize = 256;
/// Entries of the ring from firmware to host.
pub const TO_HOST_ENTRIES: usize = 256;
/// Entries of the event ring.
pub const EVENT_ENTRIES: usize = 1024;
/// Loads that may be outstanding: the rest of `to_dsp` stays free for commands, so `Loaded` never waits.
pub const MAX_TICKETS: usize = 128;

/// Lines, in order, with the side that writes each.
mod line {
    pub(super) const TO_DSP_HEAD: usize = 0; // host
    pub(super) const TO_HOST_TAIL: usize = 1; // host
    pub(super) const EVENT_TAIL: usize = 2; // host
    pub(super) const BELL_DSP: usize = 3; // host
    pub(super) const TO_DSP_TAIL: usize = 4; // firmware
    pub(super) const TO_HOST_HEAD: usize = 5; // firmware
    pub(super) const EVENT_HEAD: usize = 6; // firmware
    pub(super) const BELL_HOST: usize = 7; // firmware
    pub(super) const HEARTBEAT: usize = 8; // firmware
    pub(super) const ENTRIES: usize = 16;
}

const TO_DSP_WORDS: usize = TO_DSP_ENTRIES * ENTRY_WORDS;
const TO_HOST_WORDS: usize = TO_HOST_ENTRIES * ENTRY_WORDS;
const EVENT_WORDS: usize = EVENT_ENTRIES * ENTRY_WORDS;
const TO_DSP_AT: usize = line::ENTRIES * LINE_WORDS;
const TO_HOST_AT: usize = TO_DSP_AT + TO_DSP_WORDS;
const EVENT_AT: usize = TO_HOST_AT + TO_HOST_WORDS;

/// Words that the layout takes.
pub const CONTROL_WORDS: usize = EVENT_AT + EVENT_WORDS;
/// Pages of the control segment.
pub const CONTROL_PAGES: u32 = (CONTROL_WORDS * 4).div_ceil(PAGE) as u32;

static_assertions::const_assert_eq!(TO_DSP_AT % LINE_WORDS, 0);
static_assertions::const_assert_eq!(TO_HOST_AT % LINE_WORDS, 0);
static_assertions::const_assert_eq!(EVENT_AT % LINE_WORDS, 0);
static_assertions::const_assert!(MAX_TICKETS * 2 <= TO_DSP_ENTRIES);

/// A view of the control segment's words.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a> {
    words: &'a [AtomicU32],
}

impl<'a> Control<'a> {
    /// A view over the segment's words, or `None` when there are too few.
    #[must_use]
    pub fn new(words: &'a [AtomicU32]) -> Option<Self> {
        (words.len() >= CONTROL_WORDS).then_some(Self { words })
    }

    fn line(&self, line: usize) -> &'a AtomicU32 {
        &self.words[line * LINE_WORDS]
    }

    fn ring(&self, head: usize, tail: usize, at: usize, words: usize) -> Ring<'a> {
        Ring::new(self.line(head), self.line(tail), &self.words[at..at + words])
    }

    /// Commands and completions, host to firmware.
    #[must_use]
    pub fn to_dsp(&self) -> Ring<'a> {
        self.ring(line::TO_DSP_HEAD, line::TO_DSP_TAIL, TO_DSP_AT, TO_DSP_WORDS)
    }

    /// Loads, panels and ends, firmware to host.
    #[must_use]
    pub fn to_host(&self) -> Ring<'a> {
        self.ring(line::TO_HOST_HEAD, line::TO_HOST_TAIL, TO_HOST_AT, TO_HOST_WORDS)
    }

    /// Events, firmware to host; dropped and counted when the host does not read.
    #[must_use]
    pub fn events(&self) -> Ring<'a> {
        self.ring(line::EVENT_HEAD, line::EVENT_TAIL, EVENT_AT, EVENT_WORDS)
    }

    /// The word that the host changes (and wakes) after a push to `to_dsp`.
    #[must_use]
    pub fn bell_dsp(&self) -> &'a AtomicU32 {
        self.line(line::BELL_DSP)
    }

    /// The word that the firmware changes (and wakes) after a push to `to_host`.
    #[must_use]
    pub fn bell_host(&self) -> &'a AtomicU32 {
        self.line(line::BELL_HOST)
    }

    /// The firmware's heartbeat: word 0 counts beats, word 1 is the layer, word 2 the bank at work.
    #[must_use]
    pub fn heartbeat(&self) -> [&'a AtomicU32; 3] {
        let at = line::HEARTBEAT * LINE_WORDS;
        [&self.words[at], &self.words[at + 1], &self.words[at + 2]]
    }
}
