//! Putting stubs in place: what the loader does to the code of a skel before it runs.
//!
//! Each packet with a word that the simulator does not run becomes a jump to its stub; the words behind the jump become
//! nops, which nothing reaches. Stubs stand behind the image in the same mapping, within the eight mebibytes that a jump of
//! one word reaches. A packet that cannot be served refuses the whole skel: it would be found at run time only if that
//! packet ran.

use crate::memory::{self, Source};
use crate::{enter, sections};
use core::fmt;
use estream_kernels_asm::word::{Parse, with_parse};
use estream_patch::encode::{NOP, jump};
use estream_patch::site::{Site, Weight};
use estream_patch::stub::{Place, STUB_WORDS, stub};
use estream_patch::{Refusal, sites};

/// Stubs begin at a multiple of this many bytes of the image.
pub const ALIGNMENT: u32 = 64;

/// A site in its place, as its stub names it to the entry.
#[derive(Debug)]
pub struct Placed {
    /// The site.
    pub site: Site,
    /// What stub and entry execute beyond the packet, if it goes on behind itself or branches.
    pub leaves: Weight,
    /// The same, if a loop that ends with it starts over.
    pub loops: Weight,
}

/// Why the code of a skel cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The file does not say where its code is.
    NoSections,
    /// A packet cannot be served, or the code is none.
    Refused(Refusal),
    /// A stub would be longer than any, or out of reach.
    Reach(u32),
    /// There is no memory for what the stubs name.
    Memory,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSections => f.write_str("it has no section headers, which tell its code from its tables"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Reach(address) => write!(f, "no stub can be reached from the packet at {address:#x}"),
            Self::Memory => f.write_str("its stubs do not fit the address space"),
        }
    }
}

fn count(file: &[u8]) -> Result<u32, Failure> {
    if sections::code(file).next().is_none() {
        return Err(Failure::NoSections);
    }
    let mut count = 0;
    for section in sections::code(file) {
        for site in sites(section.bytes, section.address) {
            site.map_err(Failure::Refused)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Bytes that the stubs of a skel may take.
///
/// # Errors
/// When its code cannot be run.
pub fn measure(file: &[u8]) -> Result<u32, Failure> {
    count(file)?.checked_mul(4 * STUB_WORDS as u32).ok_or(Failure::Memory)
}

/// Puts stubs in place in a linked image that runs at `base`, from its byte `stubs` on.
///
/// # Errors
/// When its code cannot be run; the image is of no use then.
pub fn install(file: &[u8], image: &mut [u8], base: u32, stubs: u32) -> Result<(), Failure> {
    let count = count(file)?;
    if count == 0 {
        return Ok(());
    }
    let bytes = count.checked_mul(size_of::<Placed>() as u32).ok_or(Failure::Memory)?;
    let table = memory::map(bytes, Source::Zeros).ok_or(Failure::Memory)?;
    let mut placed: *mut Placed = table.base.cast().as_ptr();
    let mut at = stubs;
    for section in sections::code(file) {
        for site in sites(section.bytes, base.wrapping_add(section.address)) {
            let site = site.map_err(Failure::Refused)?;
            let address = site.packet.address;
            let place = Place {
                at: base.wrapping_add(at),
                site: placed.addr() as u32,
                enter: enter::entry(),
                copy: enter::copy(),
            };
            let stub = stub(&site, place).ok_or(Failure::Reach(address))?;
            let to_stub = jump(address, place.at).ok_or(Failure::Reach(address))?;
            at = lay(image, at, stub.words()).ok_or(Failure::Reach(address))?;
            let mut packet = [with_parse(NOP, Parse::Last); 4];
            packet[0] = with_parse(to_stub, Parse::Last);
            let packet = &packet[..site.packet.words().len()];
            lay(image, address.wrapping_sub(base), packet).ok_or(Failure::Reach(address))?;
            let [leaves, loops] = [stub.leaves, stub.loops].map(|own| surplus(&site, own));
            // SAFETY: the table has a place for each of the sites that were counted in the same file.
            unsafe {
                placed.write(Placed { site, leaves, loops });
                placed = placed.add(1);
            }
        }
    }
    Ok(())
}

/// What is executed beyond the packet, apart from what the entry counts itself.
fn surplus(site: &Site, stub: Weight) -> Weight {
    let mut packet = Weight::default();
    packet.add(site.packet.words());
    let to_stub = Weight { packets: 1, instructions: 1, vectors: 0 };
    let (tail, copy) = (enter::entry_tail(), enter::copy_weight());
    let copy = if site.store.is_some() { copy } else { Weight::default() };
    let sum = |of: fn(&Weight) -> u32| {
        let executed = [&to_stub, &stub, &tail, &copy].map(of).into_iter().fold(0, u32::wrapping_add);
        executed.wrapping_sub(of(&packet))
    };
    Weight {
        packets: sum(|weight| weight.packets),
        instructions: sum(|weight| weight.instructions),
        vectors: sum(|weight| weight.vectors),
    }
}

/// Lays down words at a byte of the image; the byte behind them.
fn lay(image: &mut [u8], at: u32, words: &[u32]) -> Option<u32> {
    let to = image.get_mut(at as usize..)?.get_mut(..4 * words.len())?;
    for (to, word) in to.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    Some(at + 4 * words.len() as u32)
}
