//! The store: where groups stand in pack and arena, and which loads bring one in.
//!
//! A fill becomes one load; it becomes several where it is larger than a load may be, or where records without routes
//! lie between those that have some and reading through them would cost more than another read. That price is a number
//! of pages, the *gap*: what the device transfers in the time that one more read costs it. A record that was not read
//! leaves its slot empty, and nobody looks there, since nothing is routed to it. Before the router has spoken groups are
//! read whole.
//!
//! The engine and the simulation of time (in the tests) call this very code, so neither can decide otherwise than the
//! other.
#![forbid(unsafe_code)]

use super::{Fill, Residency, ResidencyError};
use core::ops::Range;
use estream_idl::address::{PAGE, Segment};
use estream_idl::message::Load;
use estream_idl::streaming::WHOLE_GROUPS;

/// The most that one load reads: a range beyond it is asked for in several, cut at record borders.
pub const MAX_LOAD: usize = 1 << 30;
/// Most pieces that a group is read in for the sake of its gaps; a group with more holes is read whole.
const MOST_PIECES: usize = 8;

/// A layer's records in the pack: byte offset of the first, and W_l.
pub type Records = (u64, u32);

/// The places of all groups, and which positions of the current layer have routes.
#[derive(Debug)]
pub struct Store<'a> {
    records: &'a [Records],
    layer_experts: &'a [u32],
    group: usize,
    bank_bytes: usize,
    gap_bytes: u64,
    /// 1 for each storage position of the current layer that has routes.
    wanted: &'a mut [u8],
    /// The layer that `wanted` is for.
    known: Option<u32>,
}

/// What [`Store::issue`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issue {
    /// The loads of one fill are on their way.
    Sent,
    /// No bank is free, or nothing may be read now.
    Nothing,
    /// There is something to read, and not enough tickets.
    NoRoom,
}

impl<'a> Store<'a> {
    /// The store of layers with `records` and `layer_experts`, read in groups of `group` into banks of `bank_bytes`.
    /// `wanted` has an entry for each expert of the largest layer; `gap` is in pages.
    #[must_use]
    pub const fn new(
        records: &'a [Records],
        layer_experts: &'a [u32],
        group: usize,
        bank_bytes: usize,
        gap: u32,
        wanted: &'a mut [u8],
    ) -> Self {
        let gap_bytes = if gap == WHOLE_GROUPS { u64::MAX } else { gap as u64 * PAGE as u64 };
        Self { records, layer_experts, group, bank_bytes, gap_bytes, wanted, known: None }
    }

    /// Bytes of a bank, G · W_e.
    #[must_use]
    pub const fn bank_bytes(&self) -> usize {
        self.bank_bytes
    }

    /// A pass begins: nothing is known of its routes.
    pub const fn begin_pass(&mut self) {
        self.known = None;
    }

    /// The router has spoken for the current layer: `has_routes` says which storage positions are wanted.
    ///
    /// # Errors
    /// As [`Residency::routed`].
    pub fn routed(
        &mut self,
        residency: &mut Residency<'_>,
        has_routes: impl Fn(usize) -> bool,
    ) -> Result<(), ResidencyError> {
        let layer = residency.layer().ok_or(ResidencyError::Layer)?;
        let experts = self.layer_experts[layer as usize] as usize;
        for (position, wanted) in self.wanted[..experts].iter_mut().enumerate() {
            *wanted = u8::from(has_routes(position));
        }
        self.known = Some(layer);
        let wanted = &self.wanted[..experts];
        let group = self.group;
        residency.routed(|number| {
            let first = number as usize * group;
            wanted[first..experts.min(first + group)].contains(&1)
        })
    }

    /// Sends the loads of the next fill, if one may be made and they fit into `room` tickets. `send` is told the bank.
    ///
    /// # Errors
    /// What `send` says.
    pub fn issue<E: From<ResidencyError>>(
        &self,
        residency: &mut Residency<'_>,
        room: usize,
        mut send: impl FnMut(u32, Load) -> Result<(), E>,
    ) -> Result<Issue, E> {
        let Some(fill) = residency.next_fill() else { return Ok(Issue::Nothing) };
        let loads = self.loads(&fill);
        let tickets = loads.clone().count();
        if tickets > room {
            return Ok(Issue::NoRoom);
        }
        for load in loads {
            send(fill.bank(), load)?;
        }
        residency.issued(fill, tickets as u32)?;
        Ok(Issue::Sent)
    }

    /// The loads that bring in what is wanted of a group, their tickets not filled in.
    fn loads(&self, fill: &Fill) -> impl Iterator<Item = Load> + Clone {
        let (layer, bank) = (fill.layer() as usize, fill.bank() as usize);
        let (file, record) = self.records[layer];
        let record = record as usize;
        let first = fill.group() as usize * self.group;
        let records = self.group.min(self.layer_experts[layer] as usize - first);
        let whole: &[u8] = &[];
        let wanted = if self.known == Some(fill.layer()) && self.gap_bytes < u64::MAX {
            &self.wanted[first..first + records]
        } else {
            whole
        };
        let pieces = Pieces { wanted, next: 0, record: record as u64, gap: self.gap_bytes };
        let cut = (1..=MOST_PIECES).contains(&pieces.clone().count());
        let (cut, uncut) = if cut { (Some(pieces), None) } else { (None, Some(0..records)) };
        let each = (MAX_LOAD / record).max(1);
        let bank_at = bank * self.bank_bytes;
        cut.into_iter().flatten().chain(uncut).flat_map(move |piece: Range<usize>| {
            piece.clone().step_by(each).map(move |from| {
                let bytes = (piece.end - from).min(each) * record;
                Load {
                    ticket: 0,
                    segment: Segment::Arena,
                    page: ((bank_at + from * record) / PAGE) as u32,
                    pages: (bytes / PAGE) as u32,
                    file: file + ((first + from) * record) as u64,
                }
            })
        })
    }
}

/// The ranges of wanted records, joined over gaps that are cheaper to read than to leave out. None where nothing is known.
#[derive(Clone)]
struct Pieces<'a> {
    wanted: &'a [u8],
    next: usize,
    record: u64,
    gap: u64,
}

impl Iterator for Pieces<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let begin = self.next + self.wanted.get(self.next..)?.iter().position(|&wanted| wanted != 0)?;
        let mut end = begin + 1;
        for at in begin + 1..self.wanted.len() {
            if self.wanted[at] != 0 {
                if (at - end) as u64 * self.record > self.gap {
                    break;
                }
                end = at + 1;
            }
        }
        self.next = end;
        Some(begin..end)
    }
}
