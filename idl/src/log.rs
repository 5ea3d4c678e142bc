//! The firmware's log: numbered messages with numbers in them, over the event ring, put into words by whoever reads.
//!
//! The words stay in this table, which both sides are built from, so a message costs the firmware one 64-byte entry and no
//! formatting. That is what `defmt` does too, and it was the first choice: it numbers its strings by the addresses of
//! symbols in a section that a linker script puts at address 0. In a shared object the code adds the load address to
//! them, which changes with every load, and inside nested arguments nobody can take it off again; natively there is no
//! linker script to ask every user of the library for. A table needs neither, and its numbers do not move from build to
//! build.

use crate::ring::{ENTRY_WORDS, Entry};
use crate::status::Status;
use core::fmt;

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The session or the pass is lost.
    Error,
    /// Something went wrong and is dealt with.
    Warn,
    /// A step in the life of a session.
    Info,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
        })
    }
}

/// Numbers in a message.
pub const VALUES: usize = 3;
/// Added to a message's number in word 0 of its entry: above every kind of event.
const BASE: u32 = 0x100;

macro_rules! messages {
    ($($name:ident = $number:literal, $level:ident, $text:literal;)+) => {
        /// What the firmware can say. Numbers are never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Message { $(#[doc = $text] $name = $number,)+ }

        impl Message {
            /// Every message.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            const fn from_wire(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// How much it matters.
            #[must_use]
            pub const fn level(self) -> Level {
                match self { $(Self::$name => Level::$level,)+ }
            }

            /// Its words: `{}` stands for a value as a number, `{status}` for one as a status.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

messages! {
    Started = 1, Info, "started with {} threads and {} banks of {} experts";
    Resident = 2, Info, "what stays resident is in";
    NotResident = 3, Error, "what stays resident did not come in: {status}, item {}";
    PassBegins = 4, Info, "pass {} begins with {} requests";
    PassEnds = 5, Info, "pass {} ends after {} µs";
    PassRefused = 6, Warn, "pass {} is refused: {status}, item {}";
    LoadFailed = 7, Warn, "a load failed: {status}";
    SessionFails = 8, Error, "the session ends: {status}";
}

/// One message as it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which.
    pub message: Message,
    /// The numbers in it, in order; 0 where it has fewer.
    pub values: [u64; VALUES],
    /// Nanoseconds of the firmware's monotonic clock.
    pub time_ns: u64,
}

impl Record {
    /// The entry of this record.
    #[must_use]
    pub const fn encode(&self) -> Entry {
        let mut entry = [0; ENTRY_WORDS];
        entry[0] = BASE + self.message as u32;
        let words = [self.time_ns, self.values[0], self.values[1], self.values[2]];
        let mut index = 0;
        while index < words.len() {
            entry[1 + 2 * index] = words[index] as u32;
            entry[2 + 2 * index] = (words[index] >> 32) as u32;
            index += 1;
        }
        entry
    }

    /// The record of this entry, or `None` for another kind.
    #[must_use]
    pub const fn decode(entry: &Entry) -> Option<Self> {
        let Some(number) = entry[0].checked_sub(BASE) else { return None };
        let Some(message) = Message::from_wire(number) else { return None };
        let mut words = [0; 1 + VALUES];
        let mut index = 0;
        while index < words.len() {
            words[index] = entry[1 + 2 * index] as u64 | (entry[2 + 2 * index] as u64) << 32;
            index += 1;
        }
        Some(Self { message, values: [words[1], words[2], words[3]], time_ns: words[0] })
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values = self.values.iter();
        let mut rest = self.message.text();
        while let Some((before, after)) = rest.split_once('{') {
            f.write_str(before)?;
            let (form, after) = after.split_once('}').unwrap_or((after, ""));
            let value = values.next().copied().unwrap_or_default();
            match form {
                "status" => write!(f, "{}", Status::from_wire(u32::try_from(value).unwrap_or(u32::MAX)))?,
                _ => write!(f, "{value}")?,
            }
            rest = after;
        }
        f.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Event;
    use std::string::ToString;

    #[test]
    fn records_survive_their_entries_and_are_no_events() {
        for (index, &message) in Message::ALL.iter().enumerate() {
            let record = Record { message, values: [1 << 40, index as u64, u64::MAX], time_ns: 7 << 33 };
            assert_eq!(Record::decode(&record.encode()), Some(record));
            assert_eq!(Event::decode(&record.encode()), None);
        }
        for kind in [0, 1, 7, BASE, BASE + 99, u32::MAX] {
            let mut entry = [0; ENTRY_WORDS];
            entry[0] = kind;
            assert_eq!(Record::decode(&entry), None, "{kind:#x}");
        }
    }

    #[test]
    fn words_take_their_values_in_order() {
        let say = |message, values| Record { message, values, time_ns: 0 }.to_string();
        assert_eq!(say(Message::Started, [4, 3, 8]), "started with 4 threads and 3 banks of 8 experts");
        let checksum = Status::Checksum as u64;
        assert_eq!(
            say(Message::PassRefused, [9, checksum, 2]),
            "pass 9 is refused: an extent of the pack is damaged: its checksum differs, item 2"
        );
        assert_eq!(say(Message::LoadFailed, [u64::MAX, 0, 0]), "a load failed: the peer broke the protocol");
        assert_eq!(say(Message::Resident, [5, 5, 5]), "what stays resident is in");
    }

    #[test]
    fn every_message_has_values_enough() {
        for message in Message::ALL {
            let text = message.text();
            assert!(text.matches('{').count() <= VALUES, "{text}");
            assert_eq!(
                text.matches('{').count(),
                text.matches("{}").count() + text.matches("{status}").count()
            );
        }
    }
}
