//! Rings whose other side writes anything: entries, indices, tickets.
//!
//! The bytes are a script: an operation, then its operands. The firmware's mailbox answers it, and its count of tickets
//! is held against a model of what was lent and returned.

use estream_dsp::mailbox::{Arrived, Mailbox, Purpose};
use estream_idl::address::Segment;
use estream_idl::control::{CONTROL_WORDS, Control, MAX_TICKETS};
use estream_idl::message::{Event, ToDsp, ToHost};
use estream_idl::ring::{ENTRY_WORDS, Entry};
use std::sync::atomic::{AtomicU32, Ordering};

struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn word(&mut self) -> u32 {
        let mut bytes = [0; 4];
        for byte in &mut bytes {
            *byte = self.byte().unwrap_or_default();
        }
        u32::from_le_bytes(bytes)
    }

    fn entry(&mut self) -> Entry {
        std::array::from_fn(|_| self.word())
    }
}

/// Runs the bytes as the peer's script.
pub fn ring(bytes: &[u8]) {
    let words: Vec<AtomicU32> = (0..CONTROL_WORDS).map(|_| AtomicU32::new(0)).collect();
    let control = Control::new(&words).expect("words enough");
    let stop = AtomicU32::new(0);
    let mut mailbox = Mailbox::new(control, &stop);
    let mut to_dsp = control.to_dsp().producer();
    let mut script = Script(bytes);
    let mut out = 0;
    while let Some(operation) = script.byte() {
        match operation % 6 {
            0 if mailbox.has_room(1) => {
                let segment = Segment::ALL[usize::from(operation) / 6 % Segment::ALL.len()];
                if mailbox.load(Purpose::Bank(7), segment, script.word(), 1, 4096).is_err() {
                    return;
                }
                out += 1;
            }
            1 => {
                let entry = script.entry();
                messages(&entry);
                // A full ring or a corrupt index: nothing was written.
                let _ = to_dsp.push(&entry);
            }
            2 => {
                // The ticket that the firmware has really given, with any status.
                let ticket = words_of_last_load(&words, control, out);
                let status = script.word();
                let mut entry = [0; ENTRY_WORDS];
                (entry[0], entry[1], entry[2]) = (3, ticket, status);
                let _ = to_dsp.push(&entry);
            }
            3 => {
                let at = script.word() as usize % CONTROL_WORDS;
                words[at].store(script.word(), Ordering::Relaxed);
            }
            _ => match mailbox.poll() {
                Ok(Some(Arrived::Loaded(purpose, _))) => {
                    assert_eq!(purpose, Purpose::Bank(7), "a ticket stands for what it was taken for");
                    out -= 1;
                }
                Ok(Some(Arrived::Taken(_))) => panic!("no panel was lent"),
                Ok(_) => {}
                // The session ends here.
                Err(_) => return,
            },
        }
        assert_eq!(mailbox.outstanding(), out);
        assert!(out <= MAX_TICKETS);
    }
}

/// The ticket of the newest entry towards the host, as its words now read.
fn words_of_last_load(words: &[AtomicU32], control: Control<'_>, out: usize) -> u32 {
    let mut consumer = control.to_host().consumer();
    let mut ticket = words[0].load(Ordering::Relaxed);
    for _ in 0..=out {
        match consumer.pop() {
            Ok(Some(entry)) => ticket = entry[1],
            _ => break,
        }
    }
    ticket
}

/// Decoding takes any entry, and what it takes survives its own encoding.
fn messages(entry: &Entry) {
    if let Some(message) = ToDsp::decode(entry) {
        assert_eq!(ToDsp::decode(&message.encode()), Some(message));
    }
    if let Some(message) = ToHost::decode(entry) {
        assert_eq!(ToHost::decode(&message.encode()), Some(message));
    }
    if let Some(event) = Event::decode(entry) {
        assert_eq!(Event::decode(&event.encode()), Some(event));
    }
}
