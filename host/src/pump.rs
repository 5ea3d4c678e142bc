//! The pump: the one thread that consumes what the firmware sends, for as long as the session lives.
//!
//! Loads go to the readers, panels and ends to whoever runs the pass, events into a log. It runs between passes too:
//! dense weights arrive then, and a `stop` drains loads through it. Its wait follows the doorbell's discipline (read the
//! bell, drain the rings, wait on the value read), so a message that comes in between is never slept over.

use crate::Error;
use crate::arena::Arena;
use crate::error::FirstError;
use crate::link::{nudge, wait};
use crate::loader::Submitter;
use estream_idl::control::Control;
use estream_idl::log::{Message, Record};
use estream_idl::message::{Event, Rows, ToHost};
use estream_idl::ring::{Consumer, Corrupt};
use estream_idl::status::{Refusal, Status};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The longest sleep: events ring no bell, and the flag that ends the thread is not in control memory.
const TICK: Duration = Duration::from_millis(100);
/// Messages that may wait for the pass: the panels in flight and its end, with room to tell a flood from a burst.
const BACKLOG: usize = 8;
/// Events kept of one pass; more are dropped and counted.
const EVENTS: usize = 1 << 18;

/// Records of the firmware's log kept until somebody takes them; the first ones tell how it began to go wrong.
const RECORDS: usize = 1 << 10;

/// What the pass hears.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrival {
    /// A panel.
    Rows(Rows),
    /// The end of a pass.
    Done {
        /// Its number.
        pass: u32,
        /// How it ended.
        refusal: Refusal,
    },
}

/// The events of a pass.
#[derive(Default)]
pub(crate) struct EventLog {
    /// Those kept.
    pub(crate) events: Vec<Event>,
    /// Those beyond.
    pub(crate) dropped: u32,
}

/// The running thread.
pub(crate) struct Pump {
    arena: Arena,
    stop: Arc<AtomicBool>,
    events: Arc<Mutex<EventLog>>,
    records: Arc<Mutex<Vec<Record>>>,
    settled: Arc<Settled>,
    thread: Option<JoinHandle<()>>,
}

/// Whether the firmware has said that all it loads before the first pass is in, or that it will not be.
#[derive(Default)]
struct Settled {
    said: Mutex<bool>,
    heard: Condvar,
}

impl Pump {
    /// Starts the thread over the rings in `arena`, and gives what it hears for the pass. The channel closes when the
    /// firmware breaks the protocol; `failure` then says how.
    pub(crate) fn start(
        arena: &Arena,
        loads: Submitter,
        failure: &Arc<FirstError>,
    ) -> Result<(Self, Receiver<Arrival>), Error> {
        let (arrivals, inbox) = sync_channel(BACKLOG);
        let stop = Arc::new(AtomicBool::new(false));
        let events = Arc::new(Mutex::default());
        let records = Arc::new(Mutex::default());
        let settled = Arc::<Settled>::default();
        let run = {
            let (arena, failure) = (arena.clone(), failure.clone());
            let (stop, events, records) = (stop.clone(), events.clone(), Arc::clone(&records));
            let settled = settled.clone();
            move || {
                let memory = arena.memory();
                let Some(control) = memory.control() else { return };
                let mut ears = Ears {
                    messages: control.to_host().consumer(),
                    trace: control.events().consumer(),
                    loads,
                    arrivals,
                    events,
                    records,
                    settled,
                };
                if let Err(error) = ears.listen(&control, &stop) {
                    failure.set(error);
                }
            }
        };
        let thread = thread::Builder::new().name("estream-pump".into()).spawn(run).map_err(|error| {
            Error::runtime("no_threads", format!("the pump thread could not be made: {error}"))
        })?;
        Ok((Self { arena: arena.clone(), stop, events, records, settled, thread: Some(thread) }, inbox))
    }

    /// Waits for the firmware to say that what stays resident is in, at most so long; whether it has.
    pub(crate) fn settled(&self, patience: Duration) -> bool {
        let said = self.settled.said.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.settled.heard.wait_timeout_while(said, patience, |said| !*said);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// What the firmware has said so far, taken out.
    pub(crate) fn take_records(&self) -> Vec<Record> {
        std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The events so far, taken out.
    pub(crate) fn take_events(&self) -> EventLog {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(control) = self.arena.memory().control() {
            nudge(control.bell_host());
        }
        if let Some(thread) = self.thread.take() {
            // A pump that panicked has said so on standard error.
            let _ = thread.join();
        }
    }
}

struct Ears<'a> {
    messages: Consumer<'a>,
    trace: Consumer<'a>,
    loads: Submitter,
    arrivals: SyncSender<Arrival>,
    events: Arc<Mutex<EventLog>>,
    records: Arc<Mutex<Vec<Record>>>,
    settled: Arc<Settled>,
}

impl Ears<'_> {
    fn listen(&mut self, control: &Control<'_>, stop: &AtomicBool) -> Result<(), Error> {
        while !stop.load(Ordering::Acquire) {
            let bell = control.bell_host().load(Ordering::Acquire);
            self.drain()?;
            wait(control.bell_host(), bell, TICK);
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Error> {
        let corrupt = |Corrupt| Error::protocol("an impossible index in a ring from it");
        loop {
            // Events first: those that a pass wrote before its end are in the log when the end is heard.
            while let Some(entry) = self.trace.pop().map_err(corrupt)? {
                if let Some(record) = Record::decode(&entry) {
                    // It has ended, whether or not a pass is there to be told so.
                    let ended = record.message == Message::SessionFails;
                    if matches!(record.message, Message::Resident | Message::NotResident) {
                        *self.settled.said.lock().unwrap_or_else(PoisonError::into_inner) = true;
                        self.settled.heard.notify_all();
                    }
                    let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
                    if records.len() < RECORDS {
                        records.push(record);
                    }
                    if ended {
                        let status =
                            u32::try_from(record.values[0]).map_or(Status::Internal, Status::from_wire);
                        return Err(status.into());
                    }
                    continue;
                }
                let event = Event::decode(&entry);
                let event =
                    event.ok_or_else(|| Error::protocol(format!("unknown event kind {}", entry[0])))?;
                let mut log = self.events.lock().unwrap_or_else(PoisonError::into_inner);
                if log.events.len() < EVENTS {
                    log.events.push(event);
                } else {
                    log.dropped = log.dropped.saturating_add(1);
                }
            }
            let Some(entry) = self.messages.pop().map_err(corrupt)? else { return Ok(()) };
            let message = ToHost::decode(&entry)
                .ok_or_else(|| Error::protocol(format!("unknown message {:?}", &entry[..3])))?;
            let arrival = match message {
                ToHost::Load(load) => {
                    self.loads.submit(load)?;
                    continue;
                }
                ToHost::Rows(rows) => Arrival::Rows(rows),
                ToHost::Done { pass, refusal } => Arrival::Done { pass, refusal },
            };
            if self.arrivals.try_send(arrival).is_err() {
                return Err(Error::protocol("more panels and ends than a pass can have outstanding"));
            }
        }
    }
}
