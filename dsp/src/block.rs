//! Carving typed tables from the one private block that a session asks the platform for.
//!
//! A layout is one function over a [`Carver`], run twice: measuring, where nothing is handed out and the bytes are
//! counted, and carving, where the same calls cut the block. What the plan says is what `start` takes, by construction;
//! there is no second list of sizes to keep in step. A layout must not look into the tables it takes, since they are
//! empty while it is measured.
//!
//! Every table starts at a multiple of [`ALIGN`] and is written as it is cut, with zeros or a value. That touches its pages at `start`, so that no
//! pass meets a page fault and the memory in use is the memory planned, also when a block is carved again.

use estream_idl::status::{Refusal, Status};
use zerocopy::FromZeros;

/// Alignment of every table: a vector of HVX, two cache lines of a CPU.
pub const ALIGN: usize = 128;

/// The block is too small, or no block could be that large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory {
    /// Bytes up to the end of the table that did not fit; `u64::MAX` where they are more than can be counted.
    pub needed: u64,
    /// Bytes of the block.
    pub limit: u64,
}

impl From<NoMemory> for Refusal {
    fn from(error: NoMemory) -> Self {
        Self { needed: error.needed, limit: error.limit, ..Status::NoMemory.into() }
    }
}

/// Hands out the tables of a layout, or counts their bytes.
#[derive(Debug)]
pub struct Carver<'a> {
    /// What is left of the block; `None` while measuring.
    rest: Option<&'a mut [u8]>,
    /// Bytes taken, a multiple of [`ALIGN`].
    taken: u64,
}

impl<'a> Carver<'a> {
    /// A carver that only counts.
    #[must_use]
    pub const fn measuring() -> Self {
        Self { rest: None, taken: 0 }
    }

    /// A carver over `block`. Bytes before its first multiple of [`ALIGN`] are left out; a block from the platform has
    /// none.
    #[must_use]
    pub fn carving(block: &'a mut [u8]) -> Self {
        let unaligned = block.as_ptr().align_offset(ALIGN).min(block.len());
        Self { rest: Some(&mut block[unaligned..]), taken: 0 }
    }

    /// Bytes taken so far: the size of a block that holds them.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.taken
    }

    /// A zeroed table of `count` elements; an empty one while measuring.
    ///
    /// # Errors
    /// [`NoMemory`] when the block ends before the table does, or the bytes cannot be counted.
    pub fn take<T: FromZeros>(&mut self, count: usize) -> Result<&'a mut [T], NoMemory> {
        const { assert!(!core::mem::needs_drop::<T>(), "a table is forgotten, never dropped") };
        let Some(table) = self.cut::<T>(count)? else { return Ok(&mut []) };
        table.fill(0);
        // SAFETY: `cut` gives an aligned, exclusive table of `count` elements. All its bytes are zero, a valid T by
        // FromZeros, and T has no drop glue, so the caller may just let go of it.
        Ok(unsafe { core::slice::from_raw_parts_mut(table.as_mut_ptr().cast(), count) })
    }

    /// A table of `count` times `value`, for types that zeros do not make; an empty one while measuring.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn filled<T: Copy>(&mut self, count: usize, value: T) -> Result<&'a mut [T], NoMemory> {
        let Some(table) = self.cut::<T>(count)? else { return Ok(&mut []) };
        let first = table.as_mut_ptr().cast::<T>();
        for index in 0..count {
            // SAFETY: `cut` gives an aligned, exclusive table of `count` elements.
            unsafe { first.add(index).write(value) };
        }
        // SAFETY: as above, and every element has just been written; T is Copy, so nothing needs to be dropped.
        Ok(unsafe { core::slice::from_raw_parts_mut(first, count) })
    }

    /// The bytes of a table of `count` elements, aligned to [`ALIGN`], which T's alignment divides: the block began so,
    /// and every cut is a multiple of it. `None` while measuring.
    fn cut<T>(&mut self, count: usize) -> Result<Option<&'a mut [u8]>, NoMemory> {
        const { assert!(align_of::<T>() <= ALIGN, "a table is aligned to ALIGN and no more") };
        let limit = match &self.rest {
            Some(rest) => self.taken + rest.len() as u64,
            None => u64::MAX,
        };
        let end = (count as u64)
            .checked_mul(size_of::<T>() as u64)
            .and_then(|bytes| bytes.checked_next_multiple_of(ALIGN as u64))
            .and_then(|bytes| bytes.checked_add(self.taken))
            .ok_or(NoMemory { needed: u64::MAX, limit })?;
        if end > limit {
            return Err(NoMemory { needed: end, limit });
        }
        let bytes = (end - self.taken) as usize;
        self.taken = end;
        let Some(rest) = self.rest.take() else { return Ok(None) };
        let (table, rest) = rest.split_at_mut(bytes);
        self.rest = Some(rest);
        Ok(Some(table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};
    use std::vec;

    struct Tables<'a> {
        ids: &'a mut [u32],
        flags: &'a mut [bool],
        words: &'a mut [AtomicU32],
        rows: &'a mut [f32],
        places: &'a mut [Option<(u8, u32)>],
    }

    fn layout<'a>(carver: &mut Carver<'a>, rows: usize) -> Result<Tables<'a>, NoMemory> {
        Ok(Tables {
            ids: carver.take(3)?,
            flags: carver.take(1)?,
            words: carver.take(33)?,
            rows: carver.take(rows)?,
            places: carver.filled(rows, Some((7, 9)))?,
        })
    }

    fn measure(rows: usize) -> u64 {
        let mut carver = Carver::measuring();
        let tables = layout(&mut carver, rows).unwrap();
        assert!(tables.ids.is_empty() && tables.rows.is_empty());
        carver.bytes()
    }

    #[test]
    fn the_plan_is_the_carving() {
        for rows in [0, 1, 32, 1000] {
            let bytes = measure(rows);
            let lines = |bytes: usize| (bytes as u64).next_multiple_of(128);
            let place = size_of::<Option<(u8, u32)>>();
            assert_eq!(bytes, 128 + 128 + 256 + lines(rows * 4) + lines(rows * place));
            // Dirty and unaligned: the carver's business, not the caller's.
            let mut block = vec![0xffu8; bytes as usize + ALIGN];
            let skipped = block.as_ptr().align_offset(ALIGN);
            let mut carver = Carver::carving(&mut block[..skipped + bytes as usize]);
            let tables = layout(&mut carver, rows).unwrap();
            assert_eq!(carver.bytes(), bytes);
            assert_eq!(tables.ids, [0; 3]);
            assert_eq!(tables.flags, [false]);
            assert!(tables.words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            assert!(tables.rows.len() == rows && tables.rows.iter().all(|&x| x.to_bits() == 0));
            assert!(tables.places.len() == rows && tables.places.iter().all(|&place| place == Some((7, 9))));
            let starts = [
                tables.ids.as_ptr().addr(),
                tables.flags.as_ptr().addr(),
                tables.words.as_ptr().addr(),
                tables.rows.as_ptr().addr(),
            ];
            assert!(starts.iter().all(|start| start % ALIGN == 0));
            assert!(starts.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!(starts[3] - starts[0], 512);
        }
    }

    #[test]
    fn one_byte_too_few_is_refused_with_what_is_needed() {
        let bytes = measure(100);
        let mut block = vec![0u8; bytes as usize + ALIGN];
        let skipped = block.as_ptr().align_offset(ALIGN);
        let mut carver = Carver::carving(&mut block[skipped..skipped + bytes as usize - 1]);
        let refused = layout(&mut carver, 100).err().unwrap();
        assert_eq!(refused, NoMemory { needed: bytes, limit: bytes - 1 });
        assert_eq!(Refusal::from(refused).needed, bytes);
        assert!(Carver::carving(&mut []).take::<u8>(1).is_err());
        assert!(Carver::carving(&mut []).take::<u8>(0).unwrap().is_empty());
    }

    #[test]
    fn sizes_beyond_counting_are_refused_not_wrapped() {
        let mut carver = Carver::measuring();
        assert_eq!(carver.take::<u64>(usize::MAX).unwrap_err().needed, u64::MAX);
        assert!(carver.take::<u8>(usize::MAX - 4096).unwrap().is_empty());
        assert!(carver.take::<u8>(usize::MAX - 4096).is_err());
        assert_eq!(carver.bytes(), (usize::MAX - 4096) as u64 / 128 * 128 + 128);
    }
}
