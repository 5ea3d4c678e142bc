//! The user-DMA engine of one thread: it walks chains of descriptors in memory and copies.
//!
//! Served are the linear descriptor (type 0, 16 bytes) and the two-dimensional one (type 1, 32 bytes) in its plain and its
//! wide form (sub-types 0 and 9). The engine can be slow on purpose: with [`Pace::Deferred`] nothing is copied until
//! `dmpoll`, which completes one descriptor, or `dmwait`, which completes all. A kernel that reads a buffer without
//! waiting then finds stale bytes, as it may on silicon.
//!
//! Strict where silicon faults, hangs or is not known to work: alignment, types, fields that must be 0, a done bit set in a
//! descriptor that is started, a start while running, a link behind anything but the chain's end, bytes that nothing maps,
//! and the bypass rule of kernels that run on devices: bypass on the VTCM side, none on the memory side (coherent through
//! the cache). A stride of 0, which one source reads as 65,536, is refused.

mod violation;

pub use violation::{Side, Violation};

use super::{Memory, Vtcm};

/// When copies happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At the start.
    Immediate,
    /// As late as allowed: one descriptor a poll, all at a wait.
    Deferred,
}

/// What the engine has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Descriptors completed.
    pub descriptors: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// `dmpoll` and `dmwait`.
    pub looks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// The next descriptor to complete.
    Running(u32),
    Paused(u32),
    Failed(u32),
}

/// One thread's engine.
#[derive(Clone, Debug)]
pub struct Engine {
    vtcm: Vtcm,
    pace: Pace,
    state: State,
    counters: Counters,
}

const DONE: u32 = 1 << 31;
/// Word 1: order, and compression of either side.
const WORD_1_ZERO: u32 = 1 << 30 | 3 << 26;
/// Word 4 but for the sub-type: upper addresses or fill value, allocation hints, transform.
const WORD_4_ZERO: u32 = !0xff;
/// Bytes moved at once.
const CHUNK: usize = 1024;

/// A transfer: rows of `width` bytes.
struct Transfer {
    source: u32,
    destination: u32,
    width: u32,
    height: u32,
    source_stride: u32,
    destination_stride: u32,
}

impl Engine {
    /// An idle engine.
    #[must_use]
    pub fn new(vtcm: Vtcm, pace: Pace) -> Self {
        Self { vtcm, pace, state: State::Idle, counters: Counters::default() }
    }

    /// The scratchpad changed hands.
    pub fn set_vtcm(&mut self, vtcm: Vtcm) {
        self.vtcm = vtcm;
    }

    /// What the engine has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// `dmstart(Rs)`
    pub fn start(&mut self, memory: &mut (impl Memory + ?Sized), descriptor: u32) -> Result<(), Violation> {
        match self.state {
            State::Idle => self.run(memory, descriptor),
            _ => Err(self.fail(Violation::StartWhileRunning { descriptor })),
        }
    }

    /// `dmlink(Rs,Rt)`: while running, `new` goes behind `tail`; idle, it starts, and `tail` may be anything. `new` 0 is a
    /// no-operation.
    pub fn link(
        &mut self,
        memory: &mut (impl Memory + ?Sized),
        tail: u32,
        new: u32,
    ) -> Result<(), Violation> {
        match self.state {
            _ if new == 0 => Ok(()),
            State::Idle => self.run(memory, new),
            State::Running(head) | State::Paused(head) => {
                let last = self.last(memory, head)?;
                if last != tail {
                    return Err(self.fail(Violation::NotTheTail { tail, last }));
                }
                if memory.write(tail, &new.to_le_bytes()) {
                    Ok(())
                } else {
                    Err(self.fail(Violation::Unmapped { descriptor: tail }))
                }
            }
            State::Failed(_) => Err(Violation::StartWhileRunning { descriptor: new }),
        }
    }

    /// `Rd=dmpoll`: in the deferred pace one descriptor completes first. The result has the head's address in its upper bits
    /// and 0 idle, 1 running, 2 failed in its lower two.
    pub fn poll(&mut self, memory: &mut (impl Memory + ?Sized)) -> Result<u32, Violation> {
        self.counters.looks += 1;
        self.step(memory)?;
        Ok(self.status())
    }

    /// `Rd=dmwait`: completes everything.
    pub fn wait(&mut self, memory: &mut (impl Memory + ?Sized)) -> Result<u32, Violation> {
        self.counters.looks += 1;
        while let State::Running(_) = self.state {
            self.step(memory)?;
        }
        Ok(self.status())
    }

    /// `Rd=dmpause`: the engine stops before its next descriptor.
    pub fn pause(&mut self) -> u32 {
        let status = self.status();
        if let State::Running(head) = self.state {
            self.state = State::Paused(head);
        }
        status
    }

    /// `dmresume(Rs)` with what `dmpause` returned; of an idle engine that is nothing to do.
    pub fn resume(&mut self, memory: &mut (impl Memory + ?Sized), paused: u32) -> Result<(), Violation> {
        match self.state {
            State::Idle if paused == 0 => Ok(()),
            State::Paused(head) if paused & !3 == head => self.run(memory, head),
            _ => Err(self.fail(Violation::NotPaused { descriptor: paused })),
        }
    }

    fn status(&self) -> u32 {
        match self.state {
            State::Idle => 0,
            State::Running(head) | State::Paused(head) => head | 1,
            State::Failed(head) => head & !3 | 2,
        }
    }

    fn run(&mut self, memory: &mut (impl Memory + ?Sized), descriptor: u32) -> Result<(), Violation> {
        if descriptor == 0 {
            return Err(self.fail(Violation::NullDescriptor));
        }
        // What is wrong with the first descriptor is wrong at the start, whatever the pace.
        if let Err(violation) = self.fetch(memory, descriptor) {
            return Err(self.fail(violation));
        }
        self.state = State::Running(descriptor);
        while self.pace == Pace::Immediate && matches!(self.state, State::Running(_)) {
            self.step(memory)?;
        }
        Ok(())
    }

    /// Completes the head of the chain.
    fn step(&mut self, memory: &mut (impl Memory + ?Sized)) -> Result<(), Violation> {
        let State::Running(descriptor) = self.state else { return Ok(()) };
        match self.complete(memory, descriptor) {
            Ok(0) => self.state = State::Idle,
            Ok(next) => self.state = State::Running(next),
            Err(violation) => return Err(self.fail(violation)),
        }
        Ok(())
    }

    fn fail(&mut self, violation: Violation) -> Violation {
        let head = match self.state {
            State::Idle => 0,
            State::Running(head) | State::Paused(head) | State::Failed(head) => head,
        };
        self.state = State::Failed(head);
        violation
    }

    /// The last descriptor of the chain from `head` on. A chain that comes back to itself is cut at a generous length: its
    /// second visit would find a done bit anyway.
    fn last(&mut self, memory: &(impl Memory + ?Sized), head: u32) -> Result<u32, Violation> {
        let mut last = head;
        for _ in 0..1 << 16 {
            let next = word(memory, last, 0).map_err(|violation| self.fail(violation))?;
            if next == 0 {
                break;
            }
            last = next;
        }
        Ok(last)
    }

    /// Copies, sets the done bit, and returns the next descriptor's address.
    fn complete(&mut self, memory: &mut (impl Memory + ?Sized), descriptor: u32) -> Result<u32, Violation> {
        let transfer = self.fetch(memory, descriptor)?;
        let mut buffer = [0; CHUNK];
        for row in 0..transfer.height {
            let mut from = row_start(descriptor, Side::Source, &transfer, row)?;
            let mut to = row_start(descriptor, Side::Destination, &transfer, row)?;
            let mut left = transfer.width;
            while left > 0 {
                let length = left.min(CHUNK as u32);
                let bytes = &mut buffer[..length as usize];
                let outside = |side, address| Violation::OutsideMemory { descriptor, side, address, length };
                if !memory.read(from, bytes) {
                    return Err(outside(Side::Source, from));
                }
                if !memory.write(to, bytes) {
                    return Err(outside(Side::Destination, to));
                }
                left -= length;
                // The next address is used only if bytes are left, and then the row's end was checked to be addressable.
                from = from.wrapping_add(length);
                to = to.wrapping_add(length);
            }
        }
        let word_1 = word(memory, descriptor, 1)?;
        if !memory.write(descriptor + 4, &(word_1 | DONE).to_le_bytes()) {
            return Err(Violation::Unmapped { descriptor });
        }
        self.counters.descriptors += 1;
        self.counters.bytes += u64::from(transfer.width) * u64::from(transfer.height);
        word(memory, descriptor, 0)
    }

    /// Reads and checks a descriptor.
    fn fetch(&self, memory: &(impl Memory + ?Sized), descriptor: u32) -> Result<Transfer, Violation> {
        aligned(descriptor, 16)?;
        let word_1 = word(memory, descriptor, 1)?;
        if word_1 & DONE != 0 {
            return Err(Violation::AlreadyDone { descriptor });
        }
        zero(descriptor, 1, word_1 & WORD_1_ZERO)?;
        let (source, destination) = (word(memory, descriptor, 2)?, word(memory, descriptor, 3)?);
        let transfer = match word_1 >> 24 & 3 {
            0 => Transfer {
                source,
                destination,
                width: word_1 & 0xff_ffff,
                height: 1,
                source_stride: 0,
                destination_stride: 0,
            },
            1 => plane(memory, descriptor, word_1, source, destination)?,
            kind => return Err(Violation::UnknownType { descriptor, kind, sub_type: 0 }),
        };
        if transfer.width == 0 || transfer.height == 0 {
            return Err(Violation::Empty { descriptor });
        }
        for (side, bit) in [(Side::Source, 29), (Side::Destination, 28)] {
            self.check_side(descriptor, &transfer, side, word_1 >> bit & 1 == 1)?;
        }
        Ok(transfer)
    }

    /// Stride, reach and bypass of one side.
    fn check_side(
        &self,
        descriptor: u32,
        transfer: &Transfer,
        side: Side,
        bypass: bool,
    ) -> Result<(), Violation> {
        let (address, stride) = transfer.side(side);
        let width = transfer.width;
        let overlaps = side == Side::Destination && stride < width;
        if transfer.height > 1 && (stride == 0 || overlaps) {
            return Err(Violation::Stride { descriptor, side, stride, width });
        }
        let last_row = row_start(descriptor, side, transfer, transfer.height - 1)?;
        let reach = u64::from(last_row - address) + u64::from(width);
        let length = u32::try_from(reach).unwrap_or(u32::MAX);
        let beyond = u64::from(address) + reach > 1 << 32;
        let in_vtcm = self.vtcm.contains(address, length);
        if beyond || !in_vtcm && self.vtcm.touches(address, length) {
            return Err(Violation::OutsideMemory { descriptor, side, address, length });
        }
        if bypass == in_vtcm { Ok(()) } else { Err(Violation::Bypass { descriptor, side, address, bypass }) }
    }
}

impl Transfer {
    /// Address and stride.
    fn side(&self, side: Side) -> (u32, u32) {
        match side {
            Side::Source => (self.source, self.source_stride),
            Side::Destination => (self.destination, self.destination_stride),
        }
    }
}

fn row_start(descriptor: u32, side: Side, transfer: &Transfer, row: u32) -> Result<u32, Violation> {
    let (address, stride) = transfer.side(side);
    row.checked_mul(stride).and_then(|offset| address.checked_add(offset)).ok_or(Violation::OutsideMemory {
        descriptor,
        side,
        address,
        length: u32::MAX,
    })
}

/// The fields of a two-dimensional descriptor.
fn plane(
    memory: &(impl Memory + ?Sized),
    descriptor: u32,
    word_1: u32,
    source: u32,
    destination: u32,
) -> Result<Transfer, Violation> {
    aligned(descriptor, 32)?;
    let [word_4, word_5, word_6, word_7] = {
        let mut words = [0; 4];
        for (index, slot) in (4..).zip(&mut words) {
            *slot = word(memory, descriptor, index)?;
        }
        words
    };
    let sub_type = word_4 & 0xff;
    zero(descriptor, 4, word_4 & WORD_4_ZERO)?;
    zero(descriptor, 7, word_7)?;
    match sub_type {
        0 => {
            // Word 1 holds no length here; its low bits are block offsets of other sub-types.
            zero(descriptor, 1, word_1 & 0xff_ffff)?;
            Ok(Transfer {
                source,
                destination,
                width: word_5 & 0xffff,
                height: word_5 >> 16,
                source_stride: word_6 & 0xffff,
                destination_stride: word_6 >> 16,
            })
        }
        9 => Ok(Transfer {
            source,
            destination,
            width: word_5 & 0xff_ffff,
            height: word_5 >> 24 | (word_6 & 0xff) << 8,
            source_stride: word_6 >> 8,
            destination_stride: word_1 & 0xff_ffff,
        }),
        _ => Err(Violation::UnknownType { descriptor, kind: 1, sub_type }),
    }
}

fn aligned(descriptor: u32, alignment: u32) -> Result<(), Violation> {
    if descriptor.is_multiple_of(alignment) {
        Ok(())
    } else {
        Err(Violation::Misaligned { descriptor, alignment })
    }
}

fn zero(descriptor: u32, word: u32, bits: u32) -> Result<(), Violation> {
    if bits == 0 { Ok(()) } else { Err(Violation::Reserved { descriptor, word, bits }) }
}

/// A word of a descriptor.
fn word(memory: &(impl Memory + ?Sized), descriptor: u32, index: u32) -> Result<u32, Violation> {
    let mut bytes = [0; 4];
    let mapped = descriptor.checked_add(4 * index).is_some_and(|address| memory.read(address, &mut bytes));
    if mapped { Ok(u32::from_le_bytes(bytes)) } else { Err(Violation::Unmapped { descriptor }) }
}
