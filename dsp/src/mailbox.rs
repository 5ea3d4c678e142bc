//! The firmware's end of the rings: tickets out, completions in, the heartbeat and events.
//!
//! The firmware allocates every ticket: a table index with a generation, so that a stale, repeated or invented ticket is
//! seen at once ([`Status::Protocol`]). It never has more outstanding than [`MAX_TICKETS`], half of what the completion
//! ring holds, so the host can always answer. After a protocol error nothing more is read.

use crate::{bell, platform};
use estream_idl::address::Segment;
use estream_idl::control::{Control, MAX_TICKETS};
use estream_idl::log::{self, Message};
use estream_idl::message::{Event, EventKind, Load, Rows, ToDsp, ToHost};
use estream_idl::ring::{Consumer, Corrupt, Entry, Producer, PushError};
use estream_idl::status::{Refusal, Status};
use estream_idl::sync::{AtomicU32, Ordering};

/// How long one sleep on the doorbell lasts at most: the beat, and the time in which a stop is seen.
const BEAT_NS: u64 = 50_000_000;

/// What a ticket stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Dense weights.
    Dense,
    /// A stage of streamed dense weights.
    Stage,
    /// Pages of the embedding.
    Embed,
    /// A group on its way into this bank.
    Bank(u32),
    /// A panel of logits lent to the host.
    Panel(u32),
}

/// What came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// A load has ended; a status other than `Ok` fails the pass.
    Loaded(Purpose, Status),
    /// A panel came back.
    Taken(u32),
    /// A batch lies in the io segment.
    Prefill {
        /// The host's number.
        pass: u32,
        /// Requests of the batch.
        requests: u32,
    },
    /// Give up this pass.
    Cancel(u32),
}

#[derive(Clone, Copy)]
struct Ticket {
    generation: u32,
    purpose: Option<Purpose>,
}

/// The rings, tickets and bells of one session.
pub struct Mailbox<'a> {
    to_dsp: Consumer<'a>,
    to_host: Producer<'a>,
    events: Producer<'a>,
    bell_dsp: &'a AtomicU32,
    bell_host: &'a AtomicU32,
    heartbeat: [&'a AtomicU32; 3],
    stop: &'a AtomicU32,
    tickets: [Ticket; MAX_TICKETS],
    outstanding: usize,
    dropped: u32,
    waited_ns: u64,
}

impl<'a> Mailbox<'a> {
    /// The mailbox over the control segment; `stop` becomes nonzero when the session shall end.
    #[must_use]
    pub fn new(control: Control<'a>, stop: &'a AtomicU32) -> Self {
        Self {
            to_dsp: control.to_dsp().consumer(),
            to_host: control.to_host().producer(),
            events: control.events().producer(),
            bell_dsp: control.bell_dsp(),
            bell_host: control.bell_host(),
            heartbeat: control.heartbeat(),
            stop,
            tickets: [Ticket { generation: 0, purpose: None }; MAX_TICKETS],
            outstanding: 0,
            dropped: 0,
            waited_ns: 0,
        }
    }

    /// Tickets that are out.
    #[must_use]
    pub const fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Whether `count` more tickets can be taken.
    #[must_use]
    pub const fn has_room(&self, count: usize) -> bool {
        self.outstanding + count <= MAX_TICKETS
    }

    /// Nanoseconds slept on the doorbell since the last call, and events dropped since then.
    pub fn take_counters(&mut self) -> (u64, u32) {
        (core::mem::take(&mut self.waited_ns), core::mem::take(&mut self.dropped))
    }

    /// Asks for pages of the pack. The caller has checked [`Self::has_room`].
    ///
    /// # Errors
    /// `Protocol` when the ring is corrupt or, against all counting, full.
    pub fn load(
        &mut self,
        purpose: Purpose,
        to: Segment,
        page: u32,
        pages: u32,
        file: u64,
    ) -> Result<(), Status> {
        let ticket = self.take_ticket(purpose)?;
        self.send(ToHost::Load(Load { ticket, segment: to, page, pages, file }))
    }

    /// Hands a panel over; its ticket is filled in.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn lend(&mut self, panel: u32, rows: Rows) -> Result<(), Status> {
        let ticket = self.take_ticket(Purpose::Panel(panel))?;
        self.send(ToHost::Rows(Rows { ticket, ..rows }))
    }

    /// Reports the end of a pass.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn done(&mut self, pass: u32, refusal: Refusal) -> Result<(), Status> {
        self.send(ToHost::Done { pass, refusal })
    }

    /// Records an event, or counts it as dropped when the host does not read.
    pub fn event(&mut self, kind: EventKind, layer: usize, index: usize, group: usize) {
        let event = Event {
            kind,
            layer: layer as u32,
            index: index as u32,
            group: group as u32,
            time_ns: platform::now_ns(),
        };
        self.record(&event.encode());
    }

    /// Says something in the log.
    pub fn log(&mut self, message: Message, values: [u64; log::VALUES]) {
        self.record(&log::Record { message, values, time_ns: platform::now_ns() }.encode());
    }

    /// Wakes the host for what the event ring holds, which by itself rings no bell.
    pub fn ring(&self) {
        bell::ring(self.bell_host);
    }

    fn record(&mut self, entry: &Entry) {
        if self.events.push(entry).is_err() {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Shows that the firmware lives, and where it is.
    pub fn beat(&self, layer: usize, bank: usize) {
        let [count, at_layer, at_bank] = self.heartbeat;
        at_layer.store(layer as u32, Ordering::Relaxed);
        at_bank.store(bank as u32, Ordering::Relaxed);
        count.fetch_add(1, Ordering::Release);
    }

    /// The next thing that came in, without waiting.
    ///
    /// # Errors
    /// `Protocol` for a corrupt ring, an unknown message or a ticket that is not out.
    pub fn poll(&mut self) -> Result<Option<Arrived>, Status> {
        let Some(entry) = self.to_dsp.pop().map_err(|Corrupt| Status::Protocol)? else { return Ok(None) };
        Ok(Some(match ToDsp::decode(&entry).ok_or(Status::Protocol)? {
            ToDsp::Prefill { pass, requests } => Arrived::Prefill { pass, requests },
            ToDsp::Cancel { pass } => Arrived::Cancel(pass),
            ToDsp::Loaded { ticket, status } => match self.return_ticket(ticket)? {
                Purpose::Panel(_) => return Err(Status::Protocol),
                purpose => Arrived::Loaded(purpose, status),
            },
            ToDsp::Taken { ticket } => match self.return_ticket(ticket)? {
                Purpose::Panel(panel) => Arrived::Taken(panel),
                _ => return Err(Status::Protocol),
            },
        }))
    }

    /// The next thing that came in, sleeping on the doorbell until there is one.
    ///
    /// # Errors
    /// As [`Self::poll`]; `Stopped` when the session shall end.
    pub fn wait(&mut self) -> Result<Arrived, Status> {
        let began = platform::now_ns();
        let arrived = loop {
            // The bell is read before the ring: a push after the look changes the word, and the sleep ends at once.
            let seen = bell::read(self.bell_dsp);
            if let Some(arrived) = self.poll()? {
                break arrived;
            }
            if self.stop.load(Ordering::Acquire) != 0 {
                return Err(Status::Stopped);
            }
            platform::wait(self.bell_dsp, seen, Some(BEAT_NS));
            self.heartbeat[0].fetch_add(1, Ordering::Release);
        };
        self.waited_ns += platform::now_ns() - began;
        Ok(arrived)
    }

    fn send(&mut self, message: ToHost) -> Result<(), Status> {
        match self.to_host.push(&message.encode()) {
            Ok(()) => {}
            Err(PushError::Full | PushError::Corrupt) => return Err(Status::Protocol),
        }
        bell::ring(self.bell_host);
        Ok(())
    }

    fn take_ticket(&mut self, purpose: Purpose) -> Result<u32, Status> {
        let index =
            self.tickets.iter().position(|ticket| ticket.purpose.is_none()).ok_or(Status::Protocol)?;
        let ticket = &mut self.tickets[index];
        ticket.purpose = Some(purpose);
        ticket.generation = ticket.generation.wrapping_add(1);
        self.outstanding += 1;
        Ok(ticket.generation.wrapping_mul(MAX_TICKETS as u32) + index as u32)
    }

    fn return_ticket(&mut self, number: u32) -> Result<Purpose, Status> {
        let index = number as usize % MAX_TICKETS;
        let ticket = &mut self.tickets[index];
        let expected = ticket.generation.wrapping_mul(MAX_TICKETS as u32) + index as u32;
        if number != expected {
            return Err(Status::Protocol);
        }
        let purpose = ticket.purpose.take().ok_or(Status::Protocol)?;
        self.outstanding -= 1;
        Ok(purpose)
    }
}
