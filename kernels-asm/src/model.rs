//! What the words of [`word`](crate::word) do, in plain integer arithmetic.
//!
//! The models share nothing with the kernels that are tested on them. They are as faithful to the bit as public sources
//! allow, and strict: a breach of a rule that silicon would answer with a fault, a hang or a wrong number is an error value
//! with the numbers of the breach.

pub mod dma;
pub mod float;
pub mod hmx;
mod round;

/// Memory as a unit of the DSP sees it, by 32-bit virtual addresses.
///
/// A trait and not a slice: in the simulator it is the guest's own memory behind the page table that it keeps, in native
/// runs several borrowed buffers that stand for one scratchpad.
pub trait Memory {
    /// Fills `into` from `address` on. False, and nothing read, if not every byte is mapped.
    fn read(&self, address: u32, into: &mut [u8]) -> bool;
    /// Writes `from` at `address`. False, and nothing written, if not every byte is mapped.
    fn write(&mut self, address: u32, from: &[u8]) -> bool;
}

/// The scratchpad: what the matrix unit's operands must lie in, and what DMA bypasses the cache for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vtcm {
    /// The first byte's address.
    pub base: u32,
    /// Bytes.
    pub length: u32,
    /// Whether one page maps it. If not, no operand of the matrix unit may cross a multiple of 256 KiB.
    pub single_page: bool,
}

impl Vtcm {
    /// Whether all `length` bytes from `address` on are in it.
    #[must_use]
    pub fn contains(&self, address: u32, length: u32) -> bool {
        address
            .checked_sub(self.base)
            .and_then(|offset| offset.checked_add(length))
            .is_some_and(|end| end <= self.length)
    }

    /// Whether any of `length` bytes from `address` on is in it.
    #[must_use]
    pub fn touches(&self, address: u32, length: u32) -> bool {
        let (start, end) = (u64::from(address), u64::from(address) + u64::from(length));
        let base = u64::from(self.base);
        start < base + u64::from(self.length) && base < end
    }
}

/// One mapped range.
#[derive(Debug)]
pub struct Range<'a> {
    /// The address of the first byte.
    pub base: u32,
    /// The bytes.
    pub bytes: &'a mut [u8],
}

impl Range<'_> {
    fn span(&self, address: u32, length: usize) -> Option<core::ops::Range<usize>> {
        let start = address.checked_sub(self.base)? as usize;
        let end = start.checked_add(length)?;
        (end <= self.bytes.len()).then_some(start..end)
    }
}

impl Memory for Range<'_> {
    fn read(&self, address: u32, into: &mut [u8]) -> bool {
        let Some(span) = self.span(address, into.len()) else { return false };
        into.copy_from_slice(&self.bytes[span]);
        true
    }

    fn write(&mut self, address: u32, from: &[u8]) -> bool {
        let Some(span) = self.span(address, from.len()) else { return false };
        self.bytes[span].copy_from_slice(from);
        true
    }
}

/// Ranges that do not overlap; an access lies in one of them as a whole.
impl<M: Memory> Memory for [M] {
    fn read(&self, address: u32, into: &mut [u8]) -> bool {
        self.iter().any(|memory| memory.read(address, into))
    }

    fn write(&mut self, address: u32, from: &[u8]) -> bool {
        self.iter_mut().any(|memory| memory.write(address, from))
    }
}
