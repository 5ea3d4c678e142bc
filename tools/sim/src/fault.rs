//! How a run ends that broke a rule: one line that names the rule and the place, and the end of the program.
//!
//! The host sees a device that died, with that line in its log. Two ways lead here: a model refuses what a word asks for,
//! or the simulator meets an instruction that it does not have and that no stub has taken the place of (SIGILL), which the
//! site check should have excluded.

use crate::sections;
use crate::stderr;
use crate::sys::{self, number};
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use spin::Once;

/// The exit status of a domain whose skel broke a rule: that of an internal error in `sysexits.h`.
pub const VIOLATION: u32 = 70;

const SIGILL: u32 = 4;
const SA_SIGINFO: u32 = 4;
/// Bytes of the kernel's set of signals.
const SET_BYTES: u32 = 8;
/// Where the address of the fault stands in `siginfo_t`.
const SI_ADDR: usize = 12;

/// A skel that is loaded: what turns an address into a name.
#[derive(Debug)]
struct Image {
    file: &'static [u8],
    base: u32,
    bytes: u32,
}

static IMAGE: Once<Image> = Once::new();
/// Keeps a second thread's message out while the first one ends the program.
static ENDING: AtomicU32 = AtomicU32::new(0);

/// Says which file is loaded where, for messages.
pub fn set_image(file: &'static [u8], base: u32, bytes: u32) {
    IMAGE.call_once(|| Image { file, base, bytes });
}

/// An address in words: its offset in the skel and the function there, where it is known.
#[derive(Clone, Copy, Debug)]
pub struct Place(pub u32);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let image = IMAGE.get().filter(|image| self.0.wrapping_sub(image.base) < image.bytes);
        let Some(image) = image else { return write!(f, "{:#x}", self.0) };
        let offset = self.0 - image.base;
        write!(f, "skel+{offset:#x}")?;
        match sections::function(image.file, offset) {
            Some((name, distance)) => write!(f, " ({name}+{distance:#x})"),
            None => Ok(()),
        }
    }
}

/// Ends the program with a line that says what was broken, where.
pub fn end(address: u32, what: fmt::Arguments<'_>) -> ! {
    if ENDING.swap(1, Ordering::Relaxed) == 0 {
        stderr::line(format_args!("estream-sim: violation at {}: {what}", Place(address)));
        sys::exit(VIOLATION)
    }
    loop {
        sys::sleep_us(1_000_000);
    }
}

/// `struct sigaction` as the simulator reads it.
#[repr(C)]
struct Action {
    handler: extern "C" fn(u32, *const u8, *const u8),
    flags: u32,
    mask: [u32; 2],
}

/// Has instructions that the simulator does not know end the program with their place and words.
pub fn catch_unpatched() {
    let action = Action { handler: unpatched, flags: SA_SIGINFO, mask: [0; 2] };
    let action = (&raw const action).addr() as u32;
    // SAFETY: the kernel reads a live block; the handler never returns and touches nothing of the interrupted code. Were it
    // refused, such an instruction would end the program without a message.
    let _ = unsafe { sys::call(number::RT_SIGACTION, [SIGILL, action, 0, SET_BYTES, 0, 0]) };
}

/// The address that the simulator reports is the one behind the packet; its words stand before that.
extern "C" fn unpatched(_signal: u32, info: *const u8, _context: *const u8) {
    // SAFETY: the kernel hands over a whole `siginfo_t`.
    let behind = unsafe { info.add(SI_ADDR).cast::<u32>().read() };
    let words: *const u32 = core::ptr::with_exposed_provenance(behind as usize);
    let mut packet = [0; 4];
    let mut count = 0;
    while count < packet.len() {
        // SAFETY: the packet was just decoded from there, and the word before a packet is text too or its own image's
        // header.
        let word = unsafe { words.sub(count + 1).read() };
        if count > 0 && matches!(word >> 14 & 3, 0 | 3) {
            break;
        }
        packet[count] = word;
        count += 1;
    }
    let words = Words { backwards: packet, count };
    end(
        behind.wrapping_sub(4 * count as u32),
        format_args!(
            "an instruction that the simulator does not have and no stub serves, in the packet{words}"
        ),
    )
}

/// The words of a packet, the last one first.
struct Words {
    backwards: [u32; 4],
    count: usize,
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backwards[..self.count].iter().rev().try_for_each(|word| write!(f, " {word:08x}"))
    }
}
