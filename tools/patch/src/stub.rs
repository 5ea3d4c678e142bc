//! The code that takes a packet's place: what a jump at its address leads to.
//!
//! A stub saves r1:0 and the frame and link registers in its thread's [context](crate::context), calls the entry with its
//! site's address, restores them, runs what is left of the packet, loads the models' results into their registers, and goes
//! on where the packet would have. The hardware's own `endloop`, in a packet of nops, does the end of a loop. Results are
//! stored by a routine of scalar loads and stores: a vector store costs the simulator ten times that.
//!
//! Words of a packet stand in descending order of the slots that they can take, as the decoder wants them.

use crate::context::{BASE_AT, REGISTERS_AT, RESULTS_AT, SAVED_AT, SCALARS_AT, STORE_AT};
use crate::encode::{self, NOP, add, close, far_call, far_jump, jump, load_double, load_word, store_double};
use crate::ordinary::Flow;
use crate::packet::{LoopEnd, WORDS};
use crate::site::{Moved, Order, Site, Weight};
use crate::vector::{Step, VECTOR_BYTES};
use estream_kernels_asm::word::{Parse, Register, parse, with_parse};

/// Words of the longest stub: both ways of a branch commit the results of three words.
pub const STUB_WORDS: usize = 160;

/// Where a stub stands and what it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address of its first word.
    pub at: u32,
    /// The address that the entry gets in r0: the site's, for the models.
    pub site: u32,
    /// The entry: saves all registers, runs the models, restores all but r1:0 and r31:30.
    pub enter: u32,
    /// The routine that copies a vector from r1 to r0 and changes r3:2.
    pub copy: u32,
}

/// A stub.
#[derive(Clone, Debug)]
pub struct Stub {
    words: [u32; STUB_WORDS],
    count: usize,
    /// What it executes itself when it leaves in any way but back to a loop's start.
    pub leaves: Weight,
    /// What it executes itself when the loop that ends here goes on.
    pub loops: Weight,
}

impl Stub {
    /// Its words.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        &self.words[..self.count]
    }
}

/// Words being laid down, and what their execution counts.
struct Writer {
    at: u32,
    words: [u32; STUB_WORDS],
    count: usize,
    weight: Weight,
}

impl Writer {
    fn here(&self) -> u32 {
        self.at.wrapping_add(4 * self.count as u32)
    }

    /// Lays down a packet of words without parse bits; none when the stub is full.
    fn packet(&mut self, words: &[u32]) -> Option<()> {
        let mut closed = [NOP; WORDS];
        let closed = closed.get_mut(..words.len())?;
        closed.copy_from_slice(words);
        close(closed);
        self.complete(closed)
    }

    /// Lays down a packet as it is.
    fn complete(&mut self, words: &[u32]) -> Option<()> {
        self.words.get_mut(self.count..self.count + words.len())?.copy_from_slice(words);
        self.weight.add(words);
        self.count += words.len();
        Some(())
    }
}

/// The stub of a site; none when it is longer than any that was foreseen, or a branch in it reaches too far.
#[must_use]
pub fn stub(site: &Site, place: Place) -> Option<Stub> {
    let mut writer = Writer { at: place.at, words: [NOP; STUB_WORDS], count: 0, weight: Weight::default() };
    enter(&mut writer, place)?;
    if site.order == Order::CommitFirst {
        commit(&mut writer, site, place)?;
    }
    let rest = rest(&mut writer, site)?;
    let common = writer.weight;
    if site.order == Order::RestFirst {
        commit(&mut writer, site, place)?;
    }
    let mut loops = writer.weight;
    if let Some(nops) = end_of_loop(site.end) {
        writer.complete(nops)?;
        loops = writer.weight;
    }
    go(&mut writer, site.packet.end())?;
    let mut leaves = writer.weight;
    let gone = |moved: &Moved| moved.flow == Flow::Register && !is_call(moved.word);
    if site.rest().any(gone) {
        // What was left has gone elsewhere by itself. Where it had a condition that was false, the jump ran after all:
        // such a packet counts one too few.
        leaves.packets -= 1;
        leaves.instructions -= 1;
    }
    for (index, moved) in site.rest().enumerate() {
        let Flow::Branch { field, call, .. } = moved.flow else { continue };
        writer.weight = common;
        aim(&mut writer, &rest, index, moved)?;
        if site.order == Order::RestFirst {
            commit(&mut writer, site, place)?;
        }
        let target = moved.target(&site.packet, field, 4, true);
        if call {
            let [high, link] = encode::transfer_immediate(31, site.packet.end());
            let [reach, jump] = far_jump(writer.here(), target);
            writer.packet(&[high, link, reach, jump])?;
        } else {
            go(&mut writer, target)?;
        }
    }
    Some(Stub { words: writer.words, count: writer.count, leaves, loops })
}

/// Saves what the call needs, calls, and has all registers as they were.
fn enter(writer: &mut Writer, place: Place) -> Option<()> {
    let at = |register: u8| REGISTERS_AT + 4 * u32::from(register);
    writer.packet(&[store_double(at(0), 0), store_double(at(30), 30)])?;
    let [high, site] = encode::transfer_immediate(0, place.site);
    let [reach, call] = far_call(writer.here(), place.enter);
    writer.packet(&[high, site, reach, call])?;
    writer.packet(&[load_double(0, at(0)), load_double(30, at(30))])
}

/// Goes to an address that may be far.
fn go(writer: &mut Writer, to: u32) -> Option<()> {
    match jump(writer.here(), to) {
        Some(near) => writer.packet(&[near]),
        None => {
            let far = far_jump(writer.here(), to);
            writer.packet(&far)
        }
    }
}

/// The packet of what is left: where it stands, and the place of each of its words in the stub.
struct Rest {
    address: u32,
    words: [usize; WORDS],
}

fn rest(writer: &mut Writer, site: &Site) -> Option<Rest> {
    let mut rest = Rest { address: writer.here(), words: [0; WORDS] };
    let (mut words, mut used) = ([NOP; WORDS], 0);
    for (index, moved) in site.rest().enumerate() {
        let (extender, word) = match moved.flow {
            // The target is filled in once it is known where its code stands. A call's return address is set there.
            Flow::Branch { call, .. } => (None, if call { as_jump(moved.word) } else { moved.word }),
            Flow::Distance { field, unit, signed } => {
                let distance = moved.target(&site.packet, field, unit, signed).wrapping_sub(rest.address);
                let word = encode::insert(moved.word, field, distance & 0x3f);
                (Some(encode::extender(distance)), word)
            }
            Flow::Free | Flow::Register | Flow::Fixed(_) => (moved.extender, moved.word),
        };
        for word in extender.into_iter().chain([word]) {
            *words.get_mut(used)? = word;
            used += 1;
        }
        rest.words[index] = writer.count + used - 1;
    }
    if let Some((last, others)) = words[..used].split_last_mut() {
        others.iter_mut().for_each(|word| *word = with_parse(*word, Parse::More));
        // A duplex is the last word of its packet here as it was there.
        if parse(*last) != Parse::Duplex {
            *last = with_parse(*last, Parse::Last);
        }
        writer.complete(&words[..used])?;
    }
    Some(rest)
}

/// Whether an indirect branch is a call, after which the stub goes on.
const fn is_call(word: u32) -> bool {
    matches!(word >> 24, 0x50 | 0x51) && !matches!(parse(word), Parse::Duplex)
}

/// A call as the jump with the same condition.
const fn as_jump(call: u32) -> u32 {
    if call >> 24 == 0x5d { call & !(1 << 24) } else { call & !(1 << 25) }
}

/// Has a branch of what is left lead to the next word of the stub.
fn aim(writer: &mut Writer, rest: &Rest, index: usize, moved: &Moved) -> Option<()> {
    let Flow::Branch { field, .. } = moved.flow else { return None };
    let distance = writer.here().wrapping_sub(rest.address) / 4;
    if distance >= 1 << (encode::width(field) - 1) {
        return None;
    }
    let word = &mut writer.words[rest.words[index]];
    *word = encode::insert(*word, field, distance);
    Some(())
}

/// The packet of nops that ends a loop; that of an outer loop has three.
const fn end_of_loop(end: LoopEnd) -> Option<&'static [u32]> {
    const MORE: u32 = with_parse(NOP, Parse::More);
    const END: u32 = with_parse(NOP, Parse::MoreLoopEnd);
    const LAST: u32 = with_parse(NOP, Parse::Last);
    match end {
        LoopEnd::None => None,
        LoopEnd::Inner => Some(&[END, LAST]),
        LoopEnd::Outer => Some(&[MORE, END, LAST]),
        LoopEnd::Both => Some(&[END, END, LAST]),
    }
}

/// Loads the results into their registers, and stores one where a store takes it.
fn commit(writer: &mut Writer, site: &Site, place: Place) -> Option<()> {
    let destinations = || site.tasks().filter_map(|task| Some((task, task.work.destination()?)));
    let vectors = destinations().any(|(_, register)| !matches!(register, Register::Scalar(_)));
    if vectors {
        writer.packet(&[encode::global_pointer(0), encode::all_ones(1), store_double(SAVED_AT, 0)])?;
        for (task, register) in destinations() {
            let result = RESULTS_AT / VECTOR_BYTES + u32::from(task.result);
            match register {
                Register::Vector(v) => writer.packet(&[encode::load_vector(v, 0, result)])?,
                Register::Pair(_) => {
                    writer.packet(&[encode::load_vector(register.low(), 0, result)])?;
                    writer.packet(&[encode::load_vector(register.high(), 0, result + 1)])?;
                }
                // A temporary load changes no vector register.
                Register::Predicate(q) => {
                    writer.packet(&[encode::predicate_of(q, 0, 1), encode::load_temporary(0, 0, result)])?
                }
                Register::Scalar(_) => {}
            }
        }
        if let Some(store) = site.store {
            let from = RESULTS_AT + u32::from(store.result) * VECTOR_BYTES;
            writer.packet(&[store_double(SAVED_AT + 8, 2), store_double(SAVED_AT + 16, 30)])?;
            writer.packet(&[add(1, 0, from), load_word(0, STORE_AT)])?;
            let call = far_call(writer.here(), place.copy);
            writer.packet(&call)?;
            writer.packet(&[load_double(2, SAVED_AT + 8), load_double(30, SAVED_AT + 16)])?;
        }
        writer.packet(&[load_double(0, SAVED_AT)])?;
    }
    let scalars = site.tasks().filter_map(|task| match task.work.destination() {
        Some(Register::Scalar(r)) => Some((r, SCALARS_AT + 4 * u32::from(task.word))),
        _ => None,
    });
    let base = site.store.map(|store| store.access);
    let base =
        base.filter(|access| !matches!(access.step, Step::Offset(_))).map(|access| (access.base, BASE_AT));
    for (register, from) in scalars.chain(base) {
        writer.packet(&[load_word(register, from)])?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Packet, Packets};
    use std::vec::Vec;

    const PLACE: Place = Place { at: 0x8000, site: 0x1234_5678, enter: 0x40_0000, copy: 0x40_1000 };

    fn packet(words: &[u32], address: u32) -> Option<Packet> {
        let text: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Packets::new(&text, address).next()?.ok()
    }

    fn packets(stub: &Stub) -> Vec<Packet> {
        let text: Vec<u8> = stub.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        Packets::new(&text, PLACE.at).map(|packet| packet.expect("a stub is packets")).collect()
    }

    fn of(words: &[u32]) -> Stub {
        let site = Site::of(&packet(words, 0x1000).expect("a packet")).expect("served").expect("a site");
        stub(&site, PLACE).expect("it fits")
    }

    fn target(packet: &Packet) -> u32 {
        let (extender, word) = match packet.words() {
            [.., extender, word] => (Some(*extender), *word),
            [word] => (None, *word),
            [] => panic!("an empty packet"),
        };
        let moved = Moved { word, extender, flow: Flow::Free };
        moved.target(packet, encode::B22, 4, true)
    }

    #[test]
    fn a_stub_calls_the_entry_and_goes_on_behind_the_packet() {
        let stub = of(&[0x1f83_e2c1]); // v1.sf=vadd(v2.sf,v3.sf)
        let packets = packets(&stub);
        assert_eq!(target(&packets[1]), PLACE.enter);
        assert_eq!(target(packets.last().expect("packets")), 0x1004);
        assert_eq!(stub.leaves.packets as usize, packets.len());
        // Saved, called, restored; saved, loaded, restored; gone.
        assert_eq!(packets.len(), 7);
        assert_eq!(packets[4].words(), [0x2800_c001]); // v1=vmem(r0+#0)
    }

    #[test]
    fn a_branch_has_a_way_of_its_own() {
        // { v1.sf=vadd(v2.sf,v3.sf); if (!p0) jump:nt 0x1040 }
        let word = encode::insert(0x5c20_c000, &[(1, 7), (13, 1), (16, 5), (22, 2)], 0x10);
        let stub = of(&[0x1f83_62c1, word]);
        let packets = packets(&stub);
        assert_eq!(target(&packets[7]), 0x1008);
        let taken = packets[3]
            .address
            .wrapping_add(4 * encode::extract(packets[3].words()[0], &[(1, 7), (13, 1), (16, 5), (22, 2)]));
        assert_eq!(taken, packets[8].address);
        assert_eq!(target(packets.last().expect("packets")), 0x1040);
        assert_eq!(stub.leaves.packets, 8);
    }

    #[test]
    fn loops_begin_where_they_did() {
        // { v1.sf=vadd(v2.sf,v3.sf); loop0(0x0ff8,r3) }
        let word = encode::insert(0x6003_c000, &[(3, 2), (8, 5)], 2_u32.wrapping_neg());
        let packets = packets(&of(&[0x1f83_62c1, word]));
        let [extender, moved] = packets[3].words() else { panic!("an extended word") };
        let distance = encode::extended(*extender) | encode::extract(*moved, &[(3, 2), (8, 5)]) & 0x3f;
        assert_eq!(packets[3].address.wrapping_add(distance), 0xff8);
    }

    /// SplitMix64.
    fn bits(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    #[test]
    fn any_packet_is_served_refused_or_left() {
        let (mut state, mut served, mut refused) = (7, 0, 0);
        for _ in 0..300_000 {
            let random = [bits(&mut state), bits(&mut state)];
            let mut words =
                [random[0] as u32, (random[0] >> 32) as u32, random[1] as u32, (random[1] >> 32) as u32];
            // Every second packet begins with a word that needs a model.
            if words[0] & 1 == 0 {
                words[0] = 0x1f80_20c0 | words[0] & 0x1f_df1f;
            }
            let Some(packet) = packet(&words, 0x1000) else { continue };
            match Site::of(&packet) {
                Ok(None) => {}
                Err(_) => refused += 1,
                Ok(Some(site)) => {
                    served += 1;
                    if let Some(stub) = stub(&site, PLACE) {
                        assert!(packets(&stub).len() >= 4, "{packet}");
                    }
                }
            }
        }
        assert!(served > 10_000 && refused > 10_000, "{served} {refused}");
    }
}
