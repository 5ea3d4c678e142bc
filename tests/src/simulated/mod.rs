//! Simulated time: the scheduler that ships, against modelled reads and kernels, without threads and without a clock.
//!
//! The bank machine ([`Residency`]) and the rule that turns fills into loads ([`Store`]) are the firmware's own; what is
//! written here again is only the order in which the engine calls them, and a [`Device`] and a [`Workload`] in place of
//! flash and kernels. So a pass takes microseconds, gives the same times on every machine, and may be compared with
//! thousands of others.
//!
//! The engine looks at its mailbox between operators. [`Looks::BetweenOperators`] does the same: a load that ends inside
//! an expert's kernel is noticed after it. [`Looks::AtOnce`] is the ideal that the tuner's recurrence describes.

mod device;
mod workload;

pub use device::{Device, Reads};
pub use workload::{Layer, SHAPES, Shape, Workload};

use estream_dsp::residency::{Bank, Group, Issue, Next, Residency, ResidencyError, Store};
use estream_idl::address::PAGE;
use estream_idl::message;
use estream_idl::streaming::Schedule;
use estream_tune::{LayerTrace, Load, Run, Trace};

/// Tickets that the firmware leaves to banks.
const TICKETS: usize = 56;

/// How a pass is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// When groups are read.
    pub schedule: Schedule,
    /// Experts a group.
    pub group: u32,
    /// Banks.
    pub banks: u32,
    /// Reads in flight.
    pub depth: u32,
    /// Pages of the longest gap that is read.
    pub gap: u32,
}

/// When the engine notices that a load has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    /// When it happens.
    AtOnce,
    /// Between operators, as the engine does.
    BetweenOperators,
}

/// A pass in simulated time.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// What the tuner would see of it.
    pub trace: Trace,
    /// Every load with the time at which it was asked for, and its bank.
    pub asked: Vec<(u64, u32, message::Load)>,
    /// Groups loaded, skipped and loaded in vain.
    pub counters: estream_dsp::residency::Counters,
}

/// Runs a pass of `workload` on `device`.
///
/// # Panics
/// When the scheduler refuses an event or stops without anything to wait for: both are bugs that a test should meet.
#[must_use]
pub fn simulate(device: &Device, workload: &Workload, settings: Settings, looks: Looks) -> Simulated {
    let experts: Vec<u32> = workload.layers.iter().map(|layer| layer.rows.len() as u32).collect();
    let mut file = PAGE as u64;
    let records: Vec<(u64, u32)> = workload
        .layers
        .iter()
        .map(|layer| {
            let here = file;
            file += layer.rows.len() as u64 * u64::from(layer.record_bytes);
            (here, layer.record_bytes)
        })
        .collect();
    let largest = records.iter().map(|&(_, bytes)| bytes as usize).max().unwrap_or(PAGE);
    let group = settings.group.min(experts.iter().copied().max().unwrap_or(1));
    let entries = Residency::group_entries(&experts, group).expect("a sound shape");
    let banks = if settings.schedule == Schedule::Resident { entries } else { settings.banks.min(entries) };
    let mut tables = (vec![Bank::default(); banks as usize], vec![Group::default(); entries as usize]);
    let mut wanted = vec![0; experts.iter().copied().max().unwrap_or(0) as usize];
    let residency = Residency::new(&mut tables.0, &mut tables.1, &experts, group).expect("a sound shape");
    let bank_bytes = group as usize * largest;
    let store = Store::new(&records, &experts, group as usize, bank_bytes, settings.gap, &mut wanted);
    let mut pass = Pass {
        workload,
        group,
        records: &records,
        residency: residency.with_schedule(settings.schedule),
        store,
        reads: Reads::new(*device, settings.depth.min(banks)),
        looks,
        outstanding: vec![],
        asked: vec![],
        trace: Trace::default(),
    };
    pass.run();
    let counters = pass.residency.counters();
    Simulated { trace: pass.trace, asked: pass.asked, counters }
}

struct Pass<'a> {
    workload: &'a Workload,
    group: u32,
    records: &'a [(u64, u32)],
    residency: Residency<'a>,
    store: Store<'a>,
    reads: Reads,
    looks: Looks,
    /// Reads that have not been taken in: number, bank and load.
    outstanding: Vec<(usize, u32, message::Load)>,
    asked: Vec<(u64, u32, message::Load)>,
    trace: Trace,
}

impl Pass<'_> {
    /// The engine's pass: what it calls, in its order.
    fn run(&mut self) {
        self.residency.begin_pass().expect("a machine at rest");
        if self.residency.schedule() == Schedule::Resident {
            self.pump();
            while !self.outstanding.is_empty() {
                self.wait();
                self.pump();
            }
            self.trace.loads.clear();
            self.trace.begin_ns = self.reads.now();
        }
        self.store.begin_pass();
        self.reads.advance(self.reads.now() + self.workload.embed_ns);
        for (index, layer) in self.workload.layers.iter().enumerate() {
            let begin_ns = self.reads.now();
            self.pump();
            self.compute(layer.mixer_ns);
            let routed_ns = self.reads.now();
            self.store
                .routed(&mut self.residency, |position| layer.rows[position] > 0)
                .expect("the router speaks once a layer");
            self.pump();
            self.compute(layer.unit_ns);
            let groups = (layer.rows.len() as u32).div_ceil(self.group);
            self.trace.layers.push(LayerTrace { begin_ns, routed_ns, open_ns: self.reads.now(), groups });
            self.pump();
            self.experts(index, layer);
        }
        self.reads.advance(self.reads.now() + self.workload.head_ns);
        self.trace.end_ns = self.reads.now();
    }

    fn experts(&mut self, index: usize, layer: &Layer) {
        loop {
            match self.residency.next().expect("a layer at work") {
                Next::Run(ready) => {
                    let begin_ns = self.reads.now();
                    let first = (ready.group() * self.group) as usize;
                    let last = layer.rows.len().min(first + self.group as usize);
                    let number = ready.group();
                    for &rows in layer.rows[first..last].iter().filter(|&&rows| rows > 0) {
                        self.compute(layer.call_ns + u64::from(rows) * layer.row_ns);
                        if self.looks == Looks::BetweenOperators {
                            self.pump();
                        }
                    }
                    self.residency.release(ready);
                    let end_ns = self.reads.now();
                    self.trace.runs.push(Run { layer: index as u32, group: number, begin_ns, end_ns });
                }
                Next::Wait => self.wait(),
                Next::LayerDone => return self.residency.end_layer().expect("everything has run"),
            }
            self.pump();
        }
    }

    /// Kernels run for so long.
    fn compute(&mut self, ns: u64) {
        let end = self.reads.now() + ns;
        if self.looks == Looks::AtOnce {
            while let Some(time) = self.reads.next_end().filter(|&time| time < end) {
                self.reads.advance(time);
                self.pump();
            }
        }
        self.reads.advance(end);
    }

    /// The engine sleeps until a load ends.
    fn wait(&mut self) {
        if !self.absorb() {
            let time = self.reads.next_end().expect("the engine waits, and nothing is on its way");
            self.reads.advance(time);
            self.absorb();
        }
    }

    fn pump(&mut self) {
        self.absorb();
        while self.fill() {}
    }

    /// Takes in what has ended; whether there was anything.
    fn absorb(&mut self) -> bool {
        let ended = self.reads.take_ended();
        for &(number, begin_ns, end_ns) in &ended {
            let at = self.outstanding.iter().position(|&(read, ..)| read == number).expect("a read of ours");
            let (_, bank, load) = self.outstanding.remove(at);
            let (layer, group) = self.place(&load);
            let bytes = u64::from(load.pages) * PAGE as u64;
            self.trace.loads.push(Load { layer, group, bytes, begin_ns, end_ns });
            self.residency.loaded(bank).expect("a bank that is being filled");
        }
        !ended.is_empty()
    }

    /// One fill, if there is one to make.
    fn fill(&mut self) -> bool {
        let (reads, outstanding, asked) = (&mut self.reads, &mut self.outstanding, &mut self.asked);
        let room = TICKETS - outstanding.len().min(TICKETS);
        let issued = self.store.issue::<ResidencyError>(&mut self.residency, room, |bank, load| {
            let number = reads.submit(u64::from(load.pages) * PAGE as u64);
            outstanding.push((number, bank, load));
            asked.push((reads.now(), bank, load));
            Ok(())
        });
        issued.expect("a fill that was offered") == Issue::Sent
    }

    /// The layer and group that a load is for.
    fn place(&self, load: &message::Load) -> (u32, u32) {
        let layer = self.records.partition_point(|&(file, _)| file <= load.file) - 1;
        let (file, record) = self.records[layer];
        (layer as u32, ((load.file - file) / u64::from(record)) as u32 / self.group)
    }
}
