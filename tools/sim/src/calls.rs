//! The domain's end of the carrier: frames in, FastRPC arguments out, and back.
//!
//! In-buffers are handed to the skel where they lie in the frame, at any alignment, as a device's driver may; out-buffers
//! lie behind the frame. The host is the peer of the firmware and not of this program, but a frame that does not add up
//! ends the domain: nobody could tell what it was meant to be.

use core::ptr::NonNull;
use estream_idl::carrier::{CALLS_FD, MAX_ARGUMENTS, MAX_FRAME, Reader};
use estream_sim::memory::{self, Range, Source};
use estream_sim::sys;

/// `remote_arg`: a buffer, or a handle of 64 bits.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Argument {
    buffer: Buffer,
    handle: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Buffer {
    base: *mut u8,
    bytes: u32,
}

const _: () = assert!(size_of::<Argument>() == 8 && align_of::<Argument>() == 8);

/// The skel's entry.
pub type Invoke = unsafe extern "C" fn(u64, u32, *mut Argument) -> i32;

/// What ends the service.
#[derive(Debug)]
pub enum End {
    /// The host has closed the socket.
    Closed,
    /// A frame that does not add up.
    Frame,
    /// No room for a call's buffers.
    Memory,
}

/// A mapping for the time of one call.
struct Scratch(Range);

impl Scratch {
    fn new(bytes: usize) -> Option<Self> {
        memory::map(u32::try_from(bytes).ok()?, Source::Zeros).map(Self)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is this value's alone, initialised with zeros, and borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.0.base.as_ptr(), self.0.bytes as usize) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: nothing borrows the mapping any more.
        unsafe { memory::unmap(self.0) };
    }
}

/// Sends a frame made of `parts`.
pub fn send(parts: &[&[u8]]) -> Result<(), End> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).map_err(|_| End::Frame)?.to_le_bytes();
    for mut part in core::iter::once(&length[..]).chain(parts.iter().copied()) {
        while !part.is_empty() {
            let count = sys::write(CALLS_FD, part).map_err(|_| End::Closed)?;
            part = &part[count..];
        }
    }
    Ok(())
}

fn receive(mut bytes: &mut [u8]) -> Result<(), End> {
    while !bytes.is_empty() {
        match sys::read(CALLS_FD, bytes) {
            Ok(0) | Err(_) => return Err(End::Closed),
            Ok(count) => bytes = &mut bytes[count..],
        }
    }
    Ok(())
}

/// Carries calls to `invoke` until the host closes the socket.
pub fn serve(invoke: Invoke) -> End {
    loop {
        if let Err(end) = one(invoke) {
            return end;
        }
    }
}

/// The places of a call's out-buffers and out-handles among its arguments.
struct Shape {
    in_buffers: usize,
    out_buffers: usize,
    in_handles: usize,
    out_handles: usize,
}

impl Shape {
    fn of(scalars: u32) -> Result<Self, End> {
        let field = |shift: u32, mask: u32| (scalars >> shift & mask) as usize;
        let shape = Self {
            in_buffers: field(16, 0xff),
            out_buffers: field(8, 0xff),
            in_handles: field(4, 0xf),
            out_handles: field(0, 0xf),
        };
        let count = shape.in_buffers + shape.out_buffers + shape.in_handles + shape.out_handles;
        if count <= MAX_ARGUMENTS { Ok(shape) } else { Err(End::Frame) }
    }
}

fn one(invoke: Invoke) -> Result<(), End> {
    let mut length = [0; 4];
    receive(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME {
        return Err(End::Frame);
    }
    let mut scratch = Scratch::new(length).ok_or(End::Memory)?;
    let frame = &mut scratch.bytes()[..length];
    receive(frame)?;
    let mut reader = Reader::new(frame);
    let handle = reader.double().ok_or(End::Frame)?;
    let scalars = reader.word().ok_or(End::Frame)?;
    let shape = Shape::of(scalars)?;

    let mut arguments = [Argument { handle: 0 }; MAX_ARGUMENTS];
    let (in_buffers, rest) = arguments.split_at_mut(shape.in_buffers);
    let (out_buffers, handles) = rest.split_at_mut(shape.out_buffers);
    for argument in in_buffers {
        let bytes = reader.buffer().ok_or(End::Frame)?;
        // The skel gets a pointer that it could write through, as on a device; the frame is its alone for the call.
        *argument =
            Argument { buffer: Buffer { base: bytes.as_ptr().cast_mut(), bytes: bytes.len() as u32 } };
    }
    let mut capacities = [0u32; MAX_ARGUMENTS];
    for capacity in &mut capacities[..shape.out_buffers] {
        *capacity = reader.word().ok_or(End::Frame)?;
    }
    for argument in &mut handles[..shape.in_handles] {
        *argument = Argument { handle: reader.double().ok_or(End::Frame)? };
    }
    if !reader.rest().is_empty() {
        return Err(End::Frame);
    }
    let capacities = &capacities[..shape.out_buffers];
    let total: u64 = capacities.iter().map(|&capacity| u64::from(capacity).next_multiple_of(8)).sum();
    let total = usize::try_from(total).ok().filter(|&total| total <= MAX_FRAME).ok_or(End::Frame)?;
    let mut out = Scratch::new(total).ok_or(End::Memory)?;
    let mut base = out.0.base;
    for (argument, &bytes) in out_buffers.iter_mut().zip(capacities) {
        *argument = Argument { buffer: Buffer { base: base.as_ptr(), bytes } };
        // SAFETY: the sum of all steps is `total`, and that was mapped.
        base = unsafe { base.add((bytes as usize).next_multiple_of(8)) };
    }
    // SAFETY: the entry is the skel's, linked; the arguments are as the scalars say, and each buffer is mapped.
    let value = unsafe { invoke(handle, scalars, arguments.as_mut_ptr()) };

    let out_handles = shape.in_buffers + shape.out_buffers + shape.in_handles;
    answer(value, out.bytes(), capacities, &arguments[out_handles..out_handles + shape.out_handles])
}

/// Sends what a call returned.
fn answer(value: i32, mut out: &[u8], capacities: &[u32], handles: &[Argument]) -> Result<(), End> {
    let value = value.to_le_bytes();
    let mut lengths = [[0; 4]; MAX_ARGUMENTS];
    let mut numbers = [[0; 8]; MAX_ARGUMENTS];
    for (to, capacity) in lengths.iter_mut().zip(capacities) {
        *to = capacity.to_le_bytes();
    }
    for (to, argument) in numbers.iter_mut().zip(handles) {
        // SAFETY: all arguments were initialised with 64 bits.
        *to = unsafe { argument.handle }.to_le_bytes();
    }
    let mut parts: [&[u8]; 1 + 2 * MAX_ARGUMENTS] = [&[]; 1 + 2 * MAX_ARGUMENTS];
    parts[0] = &value;
    for (index, &capacity) in capacities.iter().enumerate() {
        let (bytes, _) = out.split_at(capacity as usize);
        parts[1 + 2 * index] = &lengths[index];
        parts[2 + 2 * index] = bytes;
        out = &out[(capacity as usize).next_multiple_of(8)..];
    }
    let first = 1 + 2 * capacities.len();
    for (part, number) in parts[first..].iter_mut().zip(&numbers[..handles.len()]) {
        *part = number;
    }
    send(&parts[..first + handles.len()])
}

/// The range as bytes that this program alone reaches.
///
/// # Safety
/// Nobody else reaches into the range while the slice lives.
pub unsafe fn exclusive<'a>(range: Range) -> &'a mut [u8] {
    let base: NonNull<u8> = range.base;
    // SAFETY: mapped, initialised with zeros, and the caller's alone.
    unsafe { core::slice::from_raw_parts_mut(base.as_ptr(), range.bytes as usize) }
}
