//! The scratchpad as its users see it: byte ranges that somebody reads or writes at a time.
//!
//! A fence. Many threads and two engines work in one block at once, on ranges that the layout keeps apart in space and the
//! executor's sequence numbers in time; the type system sees neither. So ranges become slices here, and each call says
//! why nobody else is there.

use super::layout::BIAS_BYTES;
use crate::kernels::hexagon::decode::Tile;
use crate::kernels::hexagon::hvx::V;
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;

/// A block of scratchpad, lent for as long as `'a`.
#[derive(Clone, Copy, Debug)]
pub struct Pad<'a> {
    base: NonNull<u8>,
    bytes: usize,
    /// Where the units see it.
    address: u32,
    lent: PhantomData<&'a mut [u8]>,
}

// SAFETY: a Pad is the exclusive slice that it was made of; the contracts of its methods keep threads apart.
unsafe impl Send for Pad<'_> {}
// SAFETY: as above.
unsafe impl Sync for Pad<'_> {}

impl<'a> Pad<'a> {
    /// A pad over `block`, which the units see at `address`.
    #[must_use]
    pub fn new(block: &'a mut [u8], address: u32) -> Self {
        Self { bytes: block.len(), base: NonNull::from(block).cast(), address, lent: PhantomData }
    }

    /// Writes a bias block to the pad's first bytes: `low` for every column, zeros above. For whoever has just made the pad:
    /// nobody else may be at work on it.
    pub fn fill_bias(&mut self, low: u32) {
        // SAFETY: `&mut self` of a pad that is not yet copied.
        let words = unsafe { self.slice_mut::<u32>(0, BIAS_BYTES / 4) };
        let (lows, highs) = words.split_at_mut(BIAS_BYTES / 8);
        lows.fill(low);
        highs.fill(0);
    }

    /// Bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the units see byte `at`.
    #[must_use]
    pub const fn address(&self, at: usize) -> u32 {
        self.address + at as u32
    }

    /// The first byte, for a unit's model.
    #[must_use]
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// `count` values from byte `at` on.
    ///
    /// # Panics
    /// When they reach out of the pad or `at` is not aligned to them.
    ///
    /// # Safety
    /// T is plain bytes, and nobody writes the range while the slice lives.
    #[must_use]
    pub unsafe fn slice<T>(&self, at: usize, count: usize) -> &'a [T] {
        let range = self.range::<T>(at, count);
        // SAFETY: inside the block by `range`; unwritten meanwhile by the caller's promise.
        unsafe { core::slice::from_raw_parts(self.base.add(range.start).cast().as_ptr(), count) }
    }

    /// `count` values from byte `at` on, to write.
    ///
    /// # Panics
    /// As [`Self::slice`].
    ///
    /// # Safety
    /// T is plain bytes, and nobody else reads or writes the range while the slice lives.
    #[must_use]
    pub unsafe fn slice_mut<T>(&self, at: usize, count: usize) -> &'a mut [T] {
        let range = self.range::<T>(at, count);
        // SAFETY: inside the block by `range`; exclusive by the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.base.add(range.start).cast().as_ptr(), count) }
    }

    /// The vector at byte `at`.
    ///
    /// # Panics
    /// As [`Self::slice`].
    ///
    /// # Safety
    /// Nobody writes it meanwhile.
    #[must_use]
    #[inline(always)]
    pub unsafe fn read(&self, at: usize) -> V {
        let range = self.range::<V>(at, 1);
        // SAFETY: inside the block by `range`, plain bytes.
        unsafe { self.base.add(range.start).cast::<V>().read() }
    }

    /// Writes the vector at byte `at`.
    ///
    /// # Panics
    /// As [`Self::slice`].
    ///
    /// # Safety
    /// Nobody else reads or writes it meanwhile.
    #[inline(always)]
    pub unsafe fn write(&self, at: usize, v: V) {
        let range = self.range::<V>(at, 1);
        // SAFETY: inside the block by `range`, plain bytes.
        unsafe { self.base.add(range.start).cast::<V>().write(v) };
    }

    /// The vectors at every `stride`-th byte from `at` on, `count` of them, to be written one by one.
    ///
    /// # Panics
    /// When they reach out of the pad or are not aligned.
    #[must_use]
    pub fn column(&self, at: usize, stride: usize, count: usize) -> Column<'a> {
        let end = count.checked_sub(1).map_or(at, |last| at + last * stride);
        let _ = (self.range::<V>(at, usize::from(count > 0)), self.range::<V>(end, usize::from(count > 0)));
        assert!(stride.is_multiple_of(size_of::<V>()), "vectors at their borders");
        // SAFETY: `at` lies inside the block.
        Column { first: unsafe { self.base.add(at) }.cast(), stride, count, lent: PhantomData }
    }

    /// The first of `count` tiles at every `stride`-th byte from `at` on.
    ///
    /// # Panics
    /// When they reach out of the pad or are not aligned.
    #[must_use]
    pub fn tiles(&self, at: usize, stride: usize, count: usize) -> *mut Tile {
        let last = count.checked_sub(1).map_or(at, |last| at + last * stride);
        let _ = (
            self.range::<Tile>(at, usize::from(count > 0)),
            self.range::<Tile>(last, usize::from(count > 0)),
        );
        // SAFETY: `at` lies inside the block.
        unsafe { self.base.add(at) }.cast().as_ptr()
    }

    fn range<T>(&self, at: usize, count: usize) -> Range<usize> {
        let end = count.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(at));
        assert!(
            end.is_some_and(|end| end <= self.bytes) && at.is_multiple_of(align_of::<T>()),
            "a range of the pad"
        );
        at..end.unwrap_or(at)
    }
}

/// Vectors of a pad at equal distances.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    first: NonNull<V>,
    stride: usize,
    count: usize,
    lent: PhantomData<&'a mut [u8]>,
}

impl Column<'_> {
    /// The first of the vectors, and the bytes from one to the next.
    #[must_use]
    pub const fn raw(&self) -> (*mut V, usize) {
        (self.first.as_ptr(), self.stride)
    }

    /// Writes `vectors` in order.
    ///
    /// # Panics
    /// When there are more of them.
    ///
    /// # Safety
    /// Nobody else reads or writes these vectors meanwhile.
    #[inline(always)]
    pub unsafe fn fill(self, vectors: impl ExactSizeIterator<Item = V>) {
        assert!(vectors.len() <= self.count, "vectors of the column");
        let mut to = self.first;
        for v in vectors {
            // SAFETY: as many vectors lie inside the pad, and are the caller's.
            unsafe {
                to.write(v);
                to = NonNull::new_unchecked(to.as_ptr().wrapping_byte_add(self.stride));
            }
        }
    }
}
