//! Which packets of a skel the simulator must serve itself, and the code that takes their place.
//!
//! `qemu-hexagon` runs no HVX floating point, no HMX and no user DMA: most such words trap, and a dozen run silently as
//! something else. So that the very bytes that ship run in the simulator, its loader replaces every packet that has such a
//! word by a jump to a [`stub`](stub::stub), which has the words served by the models of `estream-kernels-asm` and runs
//! the rest of the packet natively. Traps alone were the other way: they cost twenty times as much, and the words that do
//! not trap would be wrong.
//!
//! The crate is pure: it reads words and writes words. The simulator executes what it lays down; `xtask elf` walks a skel's
//! text with the same code, so that a packet without a supported form fails the build and not a run.
#![no_std]
#![forbid(unsafe_code)]

pub mod context;
pub mod encode;
pub mod ordinary;
pub mod packet;
pub mod site;
pub mod stub;
pub mod vector;

#[cfg(test)]
extern crate std;

use core::fmt;
use ordinary::{Fixed, Flow, flow, is_extender};
use packet::{Malformed, Packet, Packets};
use site::{Site, Unsupported};

/// Why a text cannot be run in the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not made of packets.
    Malformed(Malformed),
    /// A packet has no supported form.
    Unsupported(Unsupported),
    /// A packet uses the global pointer, which position-independent code does not, and the simulator does.
    GlobalPointer(Packet),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(Malformed { address }) => write!(f, "no packet begins at {address:#x}"),
            Self::Unsupported(unsupported) => unsupported.fmt(f),
            Self::GlobalPointer(packet) => {
                write!(f, "the packet at {:#x} ({packet}) uses the global pointer", packet.address)
            }
        }
    }
}

/// The sites of a text whose first byte stands at `address`, in order.
pub fn sites(text: &[u8], address: u32) -> impl Iterator<Item = Result<Site, Refusal>> + '_ {
    Packets::new(text, address).filter_map(|packet| match packet {
        Err(malformed) => Some(Err(Refusal::Malformed(malformed))),
        Ok(packet) => match Site::of(&packet) {
            Err(unsupported) => Some(Err(Refusal::Unsupported(unsupported))),
            Ok(Some(site)) => Some(Ok(site)),
            Ok(None) => uses_global_pointer(&packet).then_some(Err(Refusal::GlobalPointer(packet))),
        },
    })
}

fn uses_global_pointer(packet: &Packet) -> bool {
    let mut extended = false;
    packet.words().iter().any(|&word| {
        let flow = flow(word, extended);
        extended = is_extender(word);
        flow == Flow::Fixed(Fixed::GlobalPointer)
    })
}
