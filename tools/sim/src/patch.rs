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

/// Where stubs may stand: in reach of a jump from the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The address of the first byte, a multiple of four.
    pub at: u32,
    /// Bytes.
    pub bytes: u32,
}

/// A text and the address of its first byte.
type Text<'a> = (&'a [u8], u32);

fn texts(file: &[u8], base: u32) -> impl Iterator<Item = Text<'_>> {
    sections::code(file).map(move |section| (section.bytes, base.wrapping_add(section.address)))
}

/// Hands every site to `each`; whether a refusal is one is for `tolerates` to say. The number of sites.
fn walk<'a>(
    texts: impl Iterator<Item = Text<'a>>,
    tolerates: impl Fn(&Refusal) -> bool,
    mut each: impl FnMut(Site),
) -> Result<u32, Failure> {
    let mut count = 0;
    for site in texts.flat_map(|(text, address)| sites(text, address)) {
        match site {
            Ok(site) => {
                each(site);
                count += 1;
            }
            Err(refusal) if tolerates(&refusal) => {}
            Err(refusal) => return Err(Failure::Refused(refusal)),
        }
    }
    Ok(count)
}

/// How many packets of a skel need a stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(u32);

impl Count {
    /// Bytes that the stubs may take.
    #[must_use]
    pub const fn bytes(self) -> Option<u32> {
        self.0.checked_mul(4 * STUB_WORDS as u32)
    }
}

/// Checks the code of a skel.
///
/// # Errors
/// When it cannot be run.
pub fn check(file: &[u8]) -> Result<Count, Failure> {
    if texts(file, 0).next().is_none() {
        return Err(Failure::NoSections);
    }
    walk(texts(file, 0), |_| false, drop).map(Count)
}

/// Puts stubs in place in the linked image of a skel that runs at `base`; `count` is what [`check`] made of the same file.
///
/// # Errors
/// When its code cannot be run; the image is of no use then.
pub fn install(file: &[u8], base: u32, count: Count, area: Area) -> Result<(), Failure> {
    let mut places = Table::new(count.0)?.places();
    walk(texts(file, base), |_| false, |site| places.push(site))?;
    places.lay(area)
}

/// Puts stubs in place in the program's own code: for programs that are linked with what a skel would be made of.
///
/// # Errors
/// When the code cannot be changed or run.
pub fn install_in_program() -> Result<(), Failure> {
    let (at, bytes) = program::text().ok_or(Failure::NoSections)?;
    let stubs = program::stubs();
    // SAFETY: the program's own text and the place for its stubs; what is written there is made by `lay`.
    let changeable =
        unsafe { memory::make_changeable(at, bytes) && memory::make_changeable(stubs.at, stubs.bytes) };
    if !changeable {
        return Err(Failure::Memory);
    }
    let text: *const u8 = core::ptr::with_exposed_provenance(at as usize);
    // SAFETY: the program's own text, which nobody changes while it is walked.
    let text = || core::iter::once((unsafe { core::slice::from_raw_parts(text, bytes as usize) }, at));
    // The entry and what starts threads use the global pointer as intended, and the entry reads the real counters.
    let tolerates = |refusal: &Refusal| matches!(refusal, Refusal::GlobalPointer(_));
    let entry = enter::entry()..enter::entry_end();
    let count = walk(text(), tolerates, drop)?;
    let mut places = Table::new(count)?.places();
    walk(text(), tolerates, |site| {
        if !entry.contains(&site.packet.address) {
            places.push(site);
        }
    })?;
    places.lay(stubs)
}

/// The sites of a text, where their stubs find them for the life of the program.
struct Table {
    first: *mut Placed,
    room: u32,
}

impl Table {
    fn new(room: u32) -> Result<Self, Failure> {
        if room == 0 {
            return Ok(Self { first: core::ptr::null_mut(), room });
        }
        let bytes = room.checked_mul(size_of::<Placed>() as u32).ok_or(Failure::Memory)?;
        let range = memory::map(bytes, Source::Zeros).ok_or(Failure::Memory)?;
        Ok(Self { first: range.base.cast().as_ptr(), room })
    }

    const fn places(self) -> Places {
        Places { table: self, count: 0 }
    }
}

/// The places of a table that are filled.
struct Places {
    table: Table,
    count: u32,
}

impl Places {
    /// Adds a site; one more than there is room for is left out, which the count of the same text excludes.
    fn push(&mut self, site: Site) {
        if self.count < self.table.room {
            let placed = Placed { site, leaves: Weight::default(), loops: Weight::default() };
            // SAFETY: the place is in the table's mapping.
            unsafe { self.table.first.add(self.count as usize).write(placed) };
            self.count += 1;
        }
    }

    /// Lays down the stubs from the start of `area` on, and the jumps to them.
    fn lay(self, area: Area) -> Result<(), Failure> {
        let end = area.at + area.bytes;
        let mut at = area.at;
        for index in 0..self.count {
            // SAFETY: the place was filled by `push`, and nothing runs a stub yet.
            let placed = unsafe { &mut *self.table.first.add(index as usize) };
            let site = &placed.site;
            let address = site.packet.address;
            let named = (&raw const *placed).addr() as u32;
            let place = Place { at, site: named, enter: enter::entry(), copy: enter::copy() };
            let reach = Failure::Reach(address);
            let stub = stub(site, place).ok_or(reach)?;
            let to_stub = jump(address, at).ok_or(reach)?;
            let mut packet = [with_parse(NOP, Parse::Last); 4];
            packet[0] = with_parse(to_stub, Parse::Last);
            let behind = at + 4 * stub.words().len() as u32;
            if behind > end {
                return Err(reach);
            }
            // SAFETY: the stub fits its area, and the packet's words are those of a text that may be changed.
            unsafe {
                write(at, stub.words());
                write(address, &packet[..site.packet.words().len()]);
            }
            let [leaves, loops] = [stub.leaves, stub.loops].map(|own| surplus(site, own));
            (placed.leaves, placed.loops) = (leaves, loops);
            at = behind;
        }
        Ok(())
    }
}

/// Writes words of code.
///
/// # Safety
/// The bytes are mapped, may be changed, and are borrowed by nobody.
unsafe fn write(at: u32, words: &[u32]) {
    let to: *mut u32 = core::ptr::with_exposed_provenance_mut(at as usize);
    // SAFETY: the caller's promise; code is aligned to its words.
    unsafe { to.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
}

/// The program's own code, as its headers tell it.
mod program {
    use super::Area;
    use core::cell::UnsafeCell;

    const STUB_BYTES: usize = 2 << 20;

    #[repr(align(65536))]
    struct Stubs(UnsafeCell<[u8; STUB_BYTES]>);

    // SAFETY: written by one thread before another is started, as code afterwards.
    unsafe impl Sync for Stubs {}

    static STUBS: Stubs = Stubs(UnsafeCell::new([0; STUB_BYTES]));

    unsafe extern "C" {
        /// The linker's: the program's file header, which is loaded with it.
        static __ehdr_start: [u32; 13];
    }

    pub(super) fn stubs() -> Area {
        Area { at: STUBS.0.get().addr() as u32, bytes: STUB_BYTES as u32 }
    }

    /// Address and bytes of the one segment that is code.
    pub(super) fn text() -> Option<(u32, u32)> {
        const LOADED: u32 = 1;
        const EXECUTABLE: u32 = 1;
        let header = &raw const __ehdr_start;
        // SAFETY: the linker puts the header where its symbol stands.
        let words = unsafe { header.read() };
        let (first, count) = (words[7] as usize, words[11] & 0xffff);
        (0..count as usize).find_map(|index| {
            // SAFETY: the program headers follow the file header in the segment that holds both.
            let segment = unsafe { header.byte_add(first + 32 * index).cast::<[u32; 8]>().read() };
            let [kind, _, address, _, _, bytes, flags, _] = segment;
            (kind == LOADED && flags & EXECUTABLE != 0).then_some((address, bytes))
        })
    }
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
