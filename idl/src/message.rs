//! The messages that cross the rings, and their 64-byte entries.
//!
//! Word 0 is the kind, the rest the fields in order, u64 as low then high word, unused words 0. Decoding refuses unknown
//! kinds and segments; ranges and tickets are checked by whoever acts on them, since only they know the limits.

use crate::address::Segment;
use crate::ring::{ENTRY_WORDS, Entry};
use crate::status::{Refusal, Status};

/// What the host sends to the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToDsp {
    /// Run one pass over the batch that lies in the io segment.
    Prefill {
        /// The host's number for the pass, returned in `Done`.
        pass: u32,
        /// Requests in the io segment's request table.
        requests: u32,
    },
    /// Give the pass up at the next bank.
    Cancel {
        /// The pass to give up.
        pass: u32,
    },
    /// A load has ended.
    Loaded {
        /// The firmware's ticket.
        ticket: u32,
        /// `Ok`, `LoadFailed` or `Checksum`.
        status: Status,
    },
    /// The host is done with a panel.
    Taken {
        /// The ticket of the `Rows`.
        ticket: u32,
    },
}

/// A read that the firmware asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Names the load in `Loaded`.
    pub ticket: u32,
    /// Destination segment.
    pub segment: Segment,
    /// First page in the segment.
    pub page: u32,
    /// Pages to read.
    pub pages: u32,
    /// Byte offset in the pack, a multiple of 4096.
    pub file: u64,
}

/// A panel of logits that the firmware hands over: row-major f32 `[rows][columns]` in the io segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Names the panel in `Taken`.
    pub ticket: u32,
    /// Request that the rows belong to.
    pub request: u32,
    /// First position of the request.
    pub first_row: u32,
    /// Positions.
    pub rows: u32,
    /// First vocabulary entry.
    pub first_column: u32,
    /// Vocabulary entries.
    pub columns: u32,
    /// First page of the panel in the io segment.
    pub page: u32,
}

/// What the firmware sends to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToHost {
    /// Read a range of the pack into shared memory.
    Load(Load),
    /// Take a panel of logits.
    Rows(Rows),
    /// The pass has ended; `refusal.status` is `Ok` when the io segment holds its results.
    Done {
        /// The host's number for the pass.
        pass: u32,
        /// How it ended, with numbers.
        refusal: Refusal,
    },
}

/// What happened when, for traces: the firmware's clock in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Layer concerned.
    pub layer: u32,
    /// Bank or group concerned, by kind.
    pub index: u32,
    /// Group concerned.
    pub group: u32,
    /// Nanoseconds of the firmware's monotonic clock.
    pub time_ns: u64,
}

/// Kinds of [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// A layer's mixer begins.
    Layer = 1,
    /// The layer's routes are known.
    Routed = 2,
    /// A bank's experts begin to compute; index = bank.
    BankBegin = 3,
    /// The bank is released; index = bank.
    BankEnd = 4,
    /// The firmware begins to wait for a load.
    WaitBegin = 5,
    /// The wait is over.
    WaitEnd = 6,
    /// The head begins.
    Head = 7,
}

struct Words(Entry, usize);

impl Words {
    const fn new(kind: u32) -> Self {
        let mut entry = [0; ENTRY_WORDS];
        entry[0] = kind;
        Self(entry, 1)
    }
    const fn put(mut self, word: u32) -> Self {
        self.0[self.1] = word;
        self.1 += 1;
        self
    }
    const fn put64(self, value: u64) -> Self {
        self.put(value as u32).put((value >> 32) as u32)
    }
}

const fn get64(entry: &Entry, at: usize) -> u64 {
    entry[at] as u64 | (entry[at + 1] as u64) << 32
}

impl ToDsp {
    /// The entry of this message.
    #[must_use]
    pub const fn encode(&self) -> Entry {
        match *self {
            Self::Prefill { pass, requests } => Words::new(1).put(pass).put(requests).0,
            Self::Cancel { pass } => Words::new(2).put(pass).0,
            Self::Loaded { ticket, status } => Words::new(3).put(ticket).put(status as u32).0,
            Self::Taken { ticket } => Words::new(4).put(ticket).0,
        }
    }

    /// The message of this entry, or `None` for an unknown kind.
    #[must_use]
    pub const fn decode(entry: &Entry) -> Option<Self> {
        Some(match entry[0] {
            1 => Self::Prefill { pass: entry[1], requests: entry[2] },
            2 => Self::Cancel { pass: entry[1] },
            3 => Self::Loaded { ticket: entry[1], status: Status::from_wire(entry[2]) },
            4 => Self::Taken { ticket: entry[1] },
            _ => return None,
        })
    }
}

impl ToHost {
    /// The entry of this message.
    #[must_use]
    pub const fn encode(&self) -> Entry {
        match *self {
            Self::Load(load) => {
                let words = Words::new(1).put(load.ticket).put(load.segment as u32).put(load.page);
                words.put(load.pages).put64(load.file).0
            }
            Self::Rows(rows) => {
                let words =
                    Words::new(2).put(rows.ticket).put(rows.request).put(rows.first_row).put(rows.rows);
                words.put(rows.first_column).put(rows.columns).put(rows.page).0
            }
            Self::Done { pass, refusal } => {
                let words = Words::new(3).put(pass).put(refusal.status as u32).put(refusal.detail);
                words.put64(refusal.needed).put64(refusal.limit).0
            }
        }
    }

    /// The message of this entry, or `None` for an unknown kind or segment.
    #[must_use]
    pub const fn decode(entry: &Entry) -> Option<Self> {
        Some(match entry[0] {
            1 => {
                if entry[2] > u8::MAX as u32 {
                    return None;
                }
                let Some(segment) = Segment::from_wire(entry[2] as u8) else { return None };
                Self::Load(Load {
                    ticket: entry[1],
                    segment,
                    page: entry[3],
                    pages: entry[4],
                    file: get64(entry, 5),
                })
            }
            2 => Self::Rows(Rows {
                ticket: entry[1],
                request: entry[2],
                first_row: entry[3],
                rows: entry[4],
                first_column: entry[5],
                columns: entry[6],
                page: entry[7],
            }),
            3 => Self::Done {
                pass: entry[1],
                refusal: Refusal {
                    status: Status::from_wire(entry[2]),
                    detail: entry[3],
                    needed: get64(entry, 4),
                    limit: get64(entry, 6),
                },
            },
            _ => return None,
        })
    }
}

impl EventKind {
    const fn from_wire(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Layer,
            2 => Self::Routed,
            3 => Self::BankBegin,
            4 => Self::BankEnd,
            5 => Self::WaitBegin,
            6 => Self::WaitEnd,
            7 => Self::Head,
            _ => return None,
        })
    }
}

impl Event {
    /// The entry of this event.
    #[must_use]
    pub const fn encode(&self) -> Entry {
        Words::new(self.kind as u32).put(self.layer).put(self.index).put(self.group).put64(self.time_ns).0
    }

    /// The event of this entry, or `None` for an unknown kind.
    #[must_use]
    pub const fn decode(entry: &Entry) -> Option<Self> {
        let Some(kind) = EventKind::from_wire(entry[0]) else { return None };
        Some(Self { kind, layer: entry[1], index: entry[2], group: entry[3], time_ns: get64(entry, 4) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_their_entries() {
        let refusal = Refusal { status: Status::BadToken, needed: 1 << 40, limit: 7, detail: 3 };
        let load = Load { ticket: 9, segment: Segment::Arena, page: 5, pages: 6, file: 0x1_2345_6000 };
        let rows =
            Rows { ticket: 1, request: 2, first_row: 3, rows: 4, first_column: 5, columns: 6, page: 7 };
        for message in [ToHost::Load(load), ToHost::Rows(rows), ToHost::Done { pass: 1, refusal }] {
            assert_eq!(ToHost::decode(&message.encode()), Some(message));
        }
        for message in [
            ToDsp::Prefill { pass: 1, requests: 2 },
            ToDsp::Cancel { pass: 3 },
            ToDsp::Loaded { ticket: 4, status: Status::Checksum },
            ToDsp::Taken { ticket: 5 },
        ] {
            assert_eq!(ToDsp::decode(&message.encode()), Some(message));
        }
        assert_eq!(ToDsp::decode(&[99; ENTRY_WORDS]), None);
        let mut bad = ToHost::Load(load).encode();
        bad[2] = 0x0101;
        assert_eq!(ToHost::decode(&bad), None, "a segment is not read modulo 256");
    }
}
