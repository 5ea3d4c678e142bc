//! A packet that cannot run as it is, taken apart: what a model does, what is left to run, and in which order.
//!
//! Words of a packet read all registers before any is written. A displaced packet keeps that by steps: operands are read,
//! a `.cur` or `.tmp` load's value among them; models compute into memory; the remaining words run as one packet on the old
//! registers; the models' results are committed; then stores of those results, a branch, the end of a loop. A packet that
//! leaves through a register cannot branch last, since no register is free to remember the target: there the results are
//! committed first, which is the same where nothing that remains reads them, and refused where it might.

use crate::encode::{self, Field};
use crate::ordinary::{Flow, NewValue, flow, is_extender, is_vector, may_touch, reads_memory};
use crate::packet::{LoopEnd, Packet, WORDS};
use crate::vector::{Access, EarlyLoad, Step, early_load, new_store};
use core::fmt;
use estream_kernels_asm::word::{Form, Register, identify};

/// Vectors that the models of one packet may make.
pub const RESULTS: usize = 8;

/// Which of the simulator's counters a word reads: packets, instructions, vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// c20.
    Packets,
    /// c21.
    Instructions,
    /// c22.
    Vectors,
}

/// What a model does for one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// An instruction that the simulator does not run.
    Form(Form),
    /// `Rd=c20` and its neighbours: the counts include what stubs execute, which is taken off.
    Counter(Counter, u8),
}

impl Work {
    fn of(word: u32) -> Option<Self> {
        // `Rd=Cs`, with a control register that only the simulator has.
        let counter = match word & 0xffff_0000 {
            0x6a14_0000 => Counter::Packets,
            0x6a15_0000 => Counter::Instructions,
            0x6a16_0000 => Counter::Vectors,
            _ => return identify(word).map(Self::Form),
        };
        let transfer = word & 0x3fe0 == 0 && word >> 14 & 3 != 0;
        transfer.then_some(Self::Counter(counter, (word & 31) as u8))
    }

    /// The register that it writes.
    #[must_use]
    pub const fn destination(&self) -> Option<Register> {
        match self {
            Self::Form(form) => form.destination,
            Self::Counter(_, d) => Some(Register::Scalar(*d)),
        }
    }
}

/// A word's work and where its results stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The work.
    pub work: Work,
    /// The place of its word in the packet, where its scalar result stands too.
    pub word: u8,
    /// The place of its first vector; a pair has the next one too, and a predicate is one vector of bytes.
    pub result: u8,
}

/// A `.new` store of a model's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateStore {
    /// Where to.
    pub access: Access,
    /// The place of the vector among the results.
    pub result: u8,
}

/// A word that is left to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The word; distances to producers of new values are those of what is left.
    pub word: u32,
    /// The constant extender before it.
    pub extender: Option<u32>,
    /// How it depends on its address.
    pub flow: Flow,
}

/// When results are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// After the remaining words.
    RestFirst,
    /// Before them, since they leave.
    CommitFirst,
}

/// Instructions of the simulator's three counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Packets.
    pub packets: u32,
    /// Instructions, a duplex as one, without extenders and nops.
    pub instructions: u32,
    /// Vector instructions.
    pub vectors: u32,
}

impl Weight {
    /// Adds one packet.
    pub fn add(&mut self, words: &[u32]) {
        let counted = words.iter().filter(|&&word| !is_extender(word) && word & !0xffff != encode::NOP);
        self.packets += 1;
        self.instructions += counted.count() as u32;
        self.vectors += words.iter().filter(|&&word| is_vector(word)).count() as u32;
    }
}

/// Why a packet cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The packet.
    pub packet: Packet,
    /// The reason, as a sentence about it.
    pub why: &'static str,
    /// The instruction that makes it a site, as the manuals spell it.
    pub mnemonic: &'static str,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packet, why, mnemonic } = self;
        write!(
            f,
            "the packet at {:#x} ({packet}) with {mnemonic} has no supported form: {why}",
            packet.address
        )
    }
}

/// A packet with at least one word that a model serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The packet as it was.
    pub packet: Packet,
    /// A load whose value its own packet reads.
    pub load: Option<EarlyLoad>,
    /// A store of a model's result.
    pub store: Option<LateStore>,
    /// When results are committed.
    pub order: Order,
    /// Which loops end here.
    pub end: LoopEnd,
    tasks: [Option<Task>; WORDS],
    rest: [Option<Moved>; WORDS],
}

impl Site {
    /// Takes a packet apart; none if no word of it needs a model.
    ///
    /// # Errors
    /// When it cannot be served.
    pub fn of(packet: &Packet) -> Result<Option<Self>, Unsupported> {
        let words = packet.words();
        let works: [Option<Work>; WORDS] =
            core::array::from_fn(|index| words.get(index).and_then(|&word| Work::of(word)));
        let Some(first) = works.iter().flatten().next() else { return Ok(None) };
        let mnemonic = match first {
            Work::Form(form) => form.mnemonic(),
            Work::Counter(..) => "a read of the simulator's counters",
        };
        let taken_apart = Parts::new(words, works).and_then(|parts| parts.site(packet));
        taken_apart.map(Some).map_err(|why| Unsupported { packet: *packet, why, mnemonic })
    }

    /// What models do, in the order of the words.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter().flatten()
    }

    /// The words that are left to run.
    pub fn rest(&self) -> impl Iterator<Item = &Moved> {
        self.rest.iter().flatten()
    }
}

type Reason = &'static str;

/// A packet being taken apart.
struct Parts<'a> {
    words: &'a [u32],
    works: [Option<Work>; WORDS],
    tasks: [Option<Task>; WORDS],
    results: u8,
}

impl<'a> Parts<'a> {
    fn new(words: &'a [u32], works: [Option<Work>; WORDS]) -> Result<Self, Reason> {
        let mut parts = Self { words, works, tasks: [None; WORDS], results: 0 };
        for (index, work) in works.into_iter().enumerate() {
            let Some(work) = work else { continue };
            if matches!(work, Work::Form(form) if !form.is_modelled()) {
                return Err("there is no model of that instruction");
            }
            if index > 0 && is_extender(words[index - 1]) {
                return Err("a constant extender stands before the instruction");
            }
            parts.tasks[index] = Some(Task { work, word: index as u8, result: parts.results });
            parts.results += match work.destination() {
                Some(Register::Pair(_)) => 2,
                Some(Register::Vector(_) | Register::Predicate(_)) => 1,
                Some(Register::Scalar(_)) | None => 0,
            };
        }
        Ok(parts)
    }

    fn site(&self, packet: &Packet) -> Result<Site, Reason> {
        let store = self.store()?;
        let rest = self.rest(store.map(|(index, _)| index))?;
        let site = Site {
            packet: *packet,
            load: self.load()?,
            store: store.map(|(_, store)| store),
            order: Order::RestFirst,
            end: packet.loop_end(),
            tasks: self.tasks,
            rest,
        };
        ordered(site)
    }

    /// The word `distance` back from `index`, among those that count for it.
    fn producer(&self, index: usize, new: NewValue) -> Result<usize, Reason> {
        let mut earlier = (0..index).rev().filter(|&earlier| new.counts(self.words[earlier]));
        let distance = new.distance(self.words[index]) as usize;
        distance.checked_sub(1).and_then(|back| earlier.nth(back)).ok_or("a new value without a producer")
    }

    /// The `.new` store of a model's result, and its place.
    fn store(&self) -> Result<Option<(usize, LateStore)>, Reason> {
        for (index, &word) in self.words.iter().enumerate() {
            let Some(new) = NewValue::of(word) else { continue };
            let Some(task) = self.tasks[self.producer(index, new)?] else { continue };
            let Some(access) = new_store(word) else {
                return Err("another instruction of the packet takes its scalar result as a new value");
            };
            let odd = new.odd(word);
            let high = match task.work.destination() {
                Some(Register::Vector(_)) if odd == 0 => 0,
                // The bit flips the low bit of the encoded number, which names the low half, of a reversed pair as well.
                Some(Register::Pair(_)) => odd,
                _ => return Err("a store takes a result as a new value that is no vector"),
            };
            // A store of a new value takes slot 0, and a packet has one of those.
            return Ok(Some((index, LateStore { access, result: task.result + high })));
        }
        Ok(None)
    }

    /// The one `.cur` or `.tmp` load.
    fn load(&self) -> Result<Option<EarlyLoad>, Reason> {
        let mut loads = self.words.iter().filter_map(|&word| early_load(word));
        match (loads.next(), loads.next()) {
            (load, None) => Ok(load),
            _ => Err("two loads feed their own packet"),
        }
    }

    /// The words without those that models or the stub serve.
    fn rest(&self, store: Option<usize>) -> Result<[Option<Moved>; WORDS], Reason> {
        let stays = |index: usize| self.works[index].is_none() && Some(index) != store;
        let mut rest = [None; WORDS];
        let (mut extender, mut used) = (None, 0);
        for (index, &word) in self.words.iter().enumerate().filter(|&(index, _)| stays(index)) {
            if is_extender(word) {
                extender = Some(word);
                continue;
            }
            let mut word = word;
            if let Some(new) = NewValue::of(word) {
                let producer = self.producer(index, new)?;
                let counted = (producer..index).filter(|&at| stays(at) && new.counts(self.words[at]));
                word = new.with_distance(word, counted.count() as u32);
            }
            let flow = match flow(word, extender.is_some()) {
                Flow::Fixed(fixed) => return Err(fixed.why()),
                flow => flow,
            };
            used += if extender.is_some() || matches!(flow, Flow::Distance { .. }) { 2 } else { 1 };
            rest[index] = Some(Moved { word, extender: extender.take(), flow });
        }
        if used > WORDS { Err("what is left does not fit a packet elsewhere") } else { Ok(rest) }
    }
}

/// Settles the order, and refuses what has none.
fn ordered(site: Site) -> Result<Site, Reason> {
    let leaves = site.rest().any(|moved| moved.flow == Flow::Register);
    let branches = site.rest().any(|moved| matches!(moved.flow, Flow::Branch { .. }));
    if site.end != LoopEnd::None && (leaves || branches) {
        return Err("it branches and ends a loop");
    }
    if !leaves {
        return Ok(site);
    }
    let reads = |register: u8, vector: bool| site.rest().any(|moved| may_touch(moved.word, register, vector));
    for task in site.tasks() {
        let touched = match task.work.destination() {
            Some(Register::Vector(v)) => reads(v, true),
            Some(Register::Pair(v)) => reads(v, true),
            // Vector predicates stand in fields of their own: any vector word might name one.
            Some(Register::Predicate(_)) => site.rest().any(|moved| is_vector(moved.word)),
            Some(Register::Scalar(r)) => reads(r, false),
            None => false,
        };
        if touched {
            return Err("it leaves through a register, and what is left may read the result");
        }
    }
    if let Some(store) = site.store {
        let moves = !matches!(store.access.step, Step::Offset(_));
        if moves && reads(store.access.base, false) || site.rest().any(|moved| reads_memory(moved.word)) {
            return Err("it leaves through a register, and what is left may read what it stores");
        }
    }
    Ok(Site { order: Order::CommitFirst, ..site })
}

impl Moved {
    /// The address that the word means where it stood: the target of a branch, or a value.
    pub(crate) fn target(&self, packet: &Packet, field: Field, unit: u32, signed: bool) -> u32 {
        let raw = encode::extract(self.word, field);
        let distance = match self.extender {
            Some(extender) => encode::extended(extender) | raw & 0x3f,
            None if signed => {
                let shift = 32 - encode::width(field);
                ((raw << shift).cast_signed() >> shift).cast_unsigned().wrapping_mul(unit)
            }
            None => raw.wrapping_mul(unit),
        };
        packet.address.wrapping_add(distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packets;
    use std::vec::Vec;

    fn site(words: &[u32]) -> Result<Option<Site>, Unsupported> {
        let text: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let packet = Packets::new(&text, 0x1000).next().expect("a packet").expect("it ends");
        Site::of(&packet)
    }

    fn refused(words: &[u32]) -> &'static str {
        site(words).expect_err("it is refused").why
    }

    // Packets as `llvm-mc-22` lays them out.
    const ADD: u32 = 0x1f83_62c1; // v1.sf=vadd(v2.sf,v3.sf), more follows

    #[test]
    fn other_packets_are_left_alone() {
        assert_eq!(site(&[0x1f02_41e0, 0x7f00_c000]), Ok(None)); // v0.h=vmax(v1.h,v2.h); nop
        assert_eq!(site(&[0x2b80_2821]), Ok(None)); // a duplex whose bits look like a vector store
    }

    #[test]
    fn a_store_of_the_result_is_taken_out() {
        // { v1.sf=vadd; r5=add(r6,#1); v4=vmem(r0++#1); vmem(r2++#1)=v1.new }
        let site = site(&[ADD, 0xb006_4025, 0x2900_4104, 0x2922_c124]).expect("served").expect("a site");
        let access = Access { base: 2, step: Step::Immediate(128), condition: None };
        assert_eq!(site.store, Some(LateStore { access, result: 0 }));
        assert_eq!(site.rest().map(|moved| moved.word).collect::<Vec<_>>(), [0xb006_4025, 0x2900_4104]);
        assert_eq!((site.order, site.load), (Order::RestFirst, None));
    }

    #[test]
    fn a_store_of_something_else_counts_anew() {
        // { v6=vxor(v1,v2); v1.sf=vadd; vmem(r0+#0)=v6.new }: two vectors back, then one.
        let site = site(&[0x1c22_61e6, ADD, 0x2820_c024]).expect("served").expect("a site");
        assert_eq!(site.store, None);
        assert_eq!(site.rest().nth(1).map(|moved| moved.word), Some(0x2820_c022));
    }

    #[test]
    fn halves_of_pairs_are_told_apart() {
        // v5:4.qf32=vmpy(v2.hf,v3.hf) with vmem(r1+#0)=v5.new and =v4.new; v4:5 with =v4.new.
        for (word, store, result) in
            [(0x1fe3_62e4, 0x2821_c023, 1), (0x1fe3_62e4, 0x2821_c022, 0), (0x1fe3_62e5, 0x2821_c023, 1)]
        {
            let site = site(&[word, store]).expect("served").expect("a site");
            assert_eq!(site.store.map(|store| store.result), Some(result), "{word:#x} {store:#x}");
        }
    }

    #[test]
    fn leaving_through_a_register_commits_first_or_not_at_all() {
        let site = site(&[ADD, 0x529f_c000]).expect("served").expect("a site");
        assert_eq!(site.order, Order::CommitFirst);
        // { v1.sf=vadd; v6=v1; jumpr r31 } reads the old v1.
        assert!(refused(&[ADD, 0x1e03_61e6, 0x529f_c000]).contains("leaves through a register"));
        // { r31=dmpoll; jumpr r31 }
        assert!(refused(&[0xa800_405f, 0x529f_c000]).contains("leaves through a register"));
    }

    #[test]
    fn what_has_no_form_is_refused() {
        assert!(refused(&[ADD, 0x6a09_c005]).contains("program counter")); // r5=pc
        assert!(refused(&[ADD, 0x4880_c001]).contains("global pointer")); // memw(gp+#4)=r0
        assert!(refused(&[0xa6e0_da10]).contains("no model")); // cvt.hf=acc(r0)
        // { r0=dmpoll; memw(r3+#0)=r0.new }
        assert!(refused(&[0xa800_4040, 0xa1a3_d200]).contains("scalar result"));
        // { v1.sf=vadd; jump }:endloop0
        assert!(refused(&[0x1f83_a2c1, 0x5800_c000]).contains("ends a loop"));
        assert!(refused(&[0x0000_4000, ADD, 0x7f00_c000]).contains("extender"));
    }
}
