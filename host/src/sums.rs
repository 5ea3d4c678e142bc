//! The pack's checksums: which ranges they cover, and whether bytes in memory match them.
//!
//! Two kinds stand in the table: one CRC32C per extent (dense matrix, expert record) and one per page of the embedding.
//! Together with the header and its four tables they cover every byte of the file; [`Sums::new`] refuses a table that
//! leaves a gap, because a gap is where a flipped byte would hide.
//!
//! A read need not begin and end with an extent: one larger than the largest load comes in parts. Each part is summed when
//! it comes, in whatever order, and the extent is compared when its last part is in (CRC32C of a concatenation follows
//! from the parts), so a damaged one fails a read before all of it was handed over. Reading the extent a second time to
//! check it whole would cost the disk twice and check other bytes than those in memory.

use estream_idl::address::PAGE;
use estream_idl::pack::{Checksums, ExtentSum, Header, Range};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The checksum table, checked against the header's ranges, and the extents of which only parts have come.
pub(crate) struct Sums {
    table: Vec<u8>,
    embedding: Range,
    /// By file offset, none overlapping: at the most one a page of the pack.
    parts: Mutex<BTreeMap<u64, Part>>,
}

/// A part of an extent that was read.
#[derive(Clone, Copy)]
struct Part {
    bytes: usize,
    crc: u32,
}

/// A range whose bytes are not those that were packed, or that no checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// The extent (or embedding page) at `file` has another checksum.
    Damaged { file: u64, bytes: u64, expected: u32, found: u32 },
    /// The byte at `file` has no checksum of its own here: nothing can be said about it.
    Uncovered { file: u64 },
}

impl Sums {
    /// The table in `bytes`, if it covers the ranges of `header` exactly; else the index of the first entry that does
    /// not fit, and why.
    pub(crate) fn new(bytes: Vec<u8>, header: &Header) -> Result<Self, (usize, String)> {
        covers(&bytes, header)?;
        Ok(Self { table: bytes, embedding: header.embedding, parts: Mutex::default() })
    }

    /// The tables in place.
    pub(crate) fn table(&self) -> Checksums<'_> {
        Checksums::read(&self.table).expect("checked when it was made")
    }

    /// Compares the bytes of file range `file..` with the checksums of everything that they complete.
    pub(crate) fn check(&self, file: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        let (mut at, mut rest) = (file, bytes);
        while !rest.is_empty() {
            let extent = self.holder(at).ok_or(Mismatch::Uncovered { file: at })?;
            let left = usize::try_from(extent.file + extent.bytes - at).unwrap_or(usize::MAX);
            let (part, after) = rest.split_at(left.min(rest.len()));
            let sum = Part { bytes: part.len(), crc: crc32c::crc32c(part) };
            match self.complete(&extent, at, sum) {
                Some(found) if found != extent.crc => {
                    let ExtentSum { file, bytes, crc: expected, .. } = extent;
                    return Err(Mismatch::Damaged { file, bytes, expected, found });
                }
                _ => (rest, at) = (after, at + part.len() as u64),
            }
        }
        Ok(())
    }

    /// The first byte that was read and whose extent was not compared, since other parts of it never came.
    pub(crate) fn unchecked(&self) -> Option<u64> {
        self.parts().keys().next().copied()
    }

    fn parts(&self) -> MutexGuard<'_, BTreeMap<u64, Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The checksum of `extent`, if the part at `at` is its last one to come (or all of it).
    fn complete(&self, extent: &ExtentSum, at: u64, part: Part) -> Option<u32> {
        let mut parts = self.parts();
        // A part that is read again takes the place of what it overlaps.
        let end = at + part.bytes as u64;
        let overlapped = parts.range(extent.file..end).filter(|(from, old)| *from + old.bytes as u64 > at);
        let overlapped: Vec<u64> = overlapped.map(|(&from, _)| from).collect();
        for from in overlapped {
            parts.remove(&from);
        }
        parts.insert(at, part);

        let whole = extent.file..extent.file + extent.bytes;
        let (mut crc, mut next) = (0, whole.start);
        for (&from, part) in parts.range(whole.clone()) {
            if from != next {
                return None;
            }
            // Combining takes longer than summing a page, and most extents come whole.
            let first = from == whole.start;
            crc = if first { part.crc } else { crc32c::crc32c_combine(crc, part.crc, part.bytes) };
            next += part.bytes as u64;
        }
        (next == whole.end).then(|| {
            parts.retain(|from, _| !whole.contains(from));
            crc
        })
    }

    /// The extent or embedding page that holds the byte at `file`.
    fn holder(&self, file: u64) -> Option<ExtentSum> {
        let table = self.table();
        let Range { file: first, bytes } = self.embedding;
        if (first..first + bytes).contains(&file) {
            let page = (file - first) / PAGE as u64;
            let crc = table.embedding_pages.get(usize::try_from(page).ok()?)?;
            return Some(ExtentSum {
                file: first + page * PAGE as u64,
                bytes: PAGE as u64,
                crc,
                reserved: 0,
            });
        }
        let (mut low, mut high) = (0, table.extents.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let extent = table.extents.get(middle)?;
            if file < extent.file {
                high = middle;
            } else if file >= extent.file + extent.bytes {
                low = middle + 1;
            } else {
                return Some(extent);
            }
        }
        None
    }
}

/// Whether the table in `bytes` covers the ranges of `header` exactly.
fn covers(bytes: &[u8], header: &Header) -> Result<(), (usize, String)> {
    let Some(table) = Checksums::read(bytes) else {
        return Err((0, "its length is not what its counts say".into()));
    };
    let pages = header.embedding.bytes / PAGE as u64;
    if table.embedding_pages.len() as u64 != pages {
        let count = table.embedding_pages.len();
        return Err((0, format!("it has {count} embedding pages, the header {pages}")));
    }
    let mut extents = table.extents.iter().enumerate();
    for range in [header.dense, header.experts] {
        let (mut at, end) = (range.file, range.file + range.bytes);
        while at < end {
            let Some((index, extent)) = extents.next() else {
                return Err((table.extents.len(), format!("nothing covers byte {at}")));
            };
            let whole = extent.bytes > 0 && extent.bytes.is_multiple_of(PAGE as u64);
            if extent.file != at || !whole || extent.bytes > end - at {
                let ExtentSum { file, bytes, .. } = extent;
                return Err((index, format!("extent {file}+{bytes} where one begins at {at}")));
            }
            at += extent.bytes;
        }
    }
    match extents.next() {
        Some((index, _)) => Err((index, "an extent beyond the expert records".into())),
        None => Ok(()),
    }
}

impl Mismatch {
    /// The byte that it is about.
    pub(crate) const fn file(&self) -> u64 {
        match *self {
            Self::Damaged { file, .. } | Self::Uncovered { file } => file,
        }
    }
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Damaged { file, bytes, expected, found } => {
                write!(f, "the extent at byte {file} ({bytes} bytes) is damaged: its checksum is ")?;
                write!(f, "{found:08x}, the pack says {expected:08x}")
            }
            Self::Uncovered { file } => {
                write!(f, "the byte at {file} has no checksum of its own, so it cannot be checked")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estream_idl::pack::ChecksumHeader;
    use zerocopy::IntoBytes;

    const P: u64 = PAGE as u64;

    /// Dense 2 + 1 pages, embedding 2 pages, experts 1 + 1 pages, from page 1 on; page n is filled with n.
    fn fixture(change: impl Fn(&mut Vec<ExtentSum>)) -> (Result<Sums, (usize, String)>, Vec<u8>) {
        let file: Vec<u8> = (0..8 * PAGE).map(|at| (at / PAGE) as u8).collect();
        let mut header = Header::empty();
        header.dense = Range { file: P, bytes: 3 * P };
        header.embedding = Range { file: 4 * P, bytes: 2 * P };
        header.experts = Range { file: 6 * P, bytes: 2 * P };
        let sum = |first: usize, pages: usize| ExtentSum {
            file: first as u64 * P,
            bytes: pages as u64 * P,
            crc: crc32c::crc32c(&file[first * PAGE..(first + pages) * PAGE]),
            reserved: 0,
        };
        let mut extents = vec![sum(1, 2), sum(3, 1), sum(6, 1), sum(7, 1)];
        change(&mut extents);
        let head = ChecksumHeader { extents: extents.len() as u32, embedding_pages: 2 };
        let pages = [sum(4, 1).crc, sum(5, 1).crc];
        let table = [head.as_bytes(), extents.as_bytes(), pages.as_bytes()].concat();
        (Sums::new(table, &header), file)
    }

    #[test]
    fn whole_extents_and_single_pages_are_checked_and_every_flip_is_found() {
        let (sums, mut file) = fixture(|_| ());
        let sums = sums.unwrap();
        for (first, pages) in [(1, 2), (1, 3), (3, 1), (6, 2), (7, 1), (4, 1), (5, 1), (4, 2)] {
            let range = first * PAGE..(first + pages) * PAGE;
            assert_eq!(sums.check(range.start as u64, &file[range.clone()]), Ok(()));
            for at in [range.start, range.end - 1, range.start + PAGE / 2] {
                file[at] ^= 0x10;
                let found = sums.check(range.start as u64, &file[range.clone()]);
                assert!(matches!(found, Err(Mismatch::Damaged { file, .. }) if file <= at as u64));
                file[at] ^= 0x10;
            }
        }
    }

    /// Reads pages of the file, each (first page, pages) after the other.
    fn reads(sums: &Sums, file: &[u8], ranges: &[(usize, usize)]) -> Result<(), Mismatch> {
        ranges.iter().try_for_each(|&(first, pages)| {
            sums.check(first as u64 * P, &file[first * PAGE..(first + pages) * PAGE])
        })
    }

    #[test]
    fn an_extent_that_comes_in_parts_is_compared_when_the_last_one_is_in() {
        // Five pages of an extent lie between two others.
        let mut file: Vec<u8> = (0..8 * PAGE).map(|at| (at / 37) as u8).collect();
        let mut header = Header::empty();
        header.dense = Range { file: 0, bytes: 7 * P };
        header.embedding = Range { file: 7 * P, bytes: 0 };
        header.experts = Range { file: 7 * P, bytes: P };
        let extents = [(0, 1), (1, 5), (6, 1), (7, 1)].map(|(first, pages): (usize, usize)| ExtentSum {
            file: first as u64 * P,
            bytes: pages as u64 * P,
            crc: crc32c::crc32c(&file[first * PAGE..(first + pages) * PAGE]),
            reserved: 0,
        });
        let head = ChecksumHeader { extents: 4, embedding_pages: 0 };
        let table = [head.as_bytes(), extents.as_bytes()].concat();
        let cuts: [&[(usize, usize)]; 7] = [
            &[(1, 2), (3, 3)],
            &[(3, 3), (1, 2)],
            &[(0, 3), (4, 3), (3, 1)],
            &[(5, 1), (2, 1), (1, 1), (4, 1), (3, 1)],
            // Again, and cut otherwise.
            &[(2, 2), (2, 2), (3, 2), (5, 2), (1, 2)],
            &[(1, 4), (3, 1), (1, 2), (4, 3)],
            &[(1, 3), (1, 5)],
        ];
        for cut in cuts {
            let sums = Sums::new(table.clone(), &header).unwrap();
            let (last, before) = cut.split_last().unwrap();
            // Twice: nothing of the first time is left.
            for _ in 0..2 {
                assert_eq!(reads(&sums, &file, before), Ok(()), "{cut:?}");
                assert!(sums.unchecked().is_some(), "{cut:?}");
                assert_eq!(reads(&sums, &file, &[*last]), Ok(()), "{cut:?}");
                assert_eq!(sums.unchecked(), None, "{cut:?}");
            }
            for page in 1..6 {
                file[page * PAGE + 99] ^= 2;
                let found = reads(&sums, &file, cut);
                assert!(
                    matches!(found, Err(Mismatch::Damaged { file, bytes, .. }) if (file, bytes) == (P, 5 * P)),
                    "{cut:?}: {found:?}"
                );
                file[page * PAGE + 99] ^= 2;
            }
        }
    }

    #[test]
    fn bytes_without_a_checksum_are_not_taken_for_checked() {
        let (sums, file) = fixture(|_| ());
        let sums = sums.unwrap();
        for pages in [1, 2] {
            assert_eq!(reads(&sums, &file, &[(0, pages)]), Err(Mismatch::Uncovered { file: 0 }));
        }
        let beyond = sums.check(7 * P, &[file[7 * PAGE..].to_vec(), vec![0; PAGE]].concat());
        assert_eq!(beyond, Err(Mismatch::Uncovered { file: 8 * P }));
        // Ranges that run from one kind into the other are whole where their ends are.
        assert_eq!(reads(&sums, &file, &[(1, 7), (3, 2), (5, 2)]), Ok(()));
    }

    #[test]
    fn tables_with_gaps_overlaps_or_leftovers_are_refused() {
        let refused = |change: fn(&mut Vec<ExtentSum>)| fixture(change).0.map(|_| ()).unwrap_err().0;
        assert_eq!(refused(|extents| drop(extents.drain(..1))), 0);
        assert_eq!(refused(|extents| extents.truncate(3)), 3);
        assert_eq!(refused(|extents| extents[1].bytes = 2 * P), 1);
        assert_eq!(refused(|extents| extents[2].bytes = P + 1), 2);
        assert_eq!(refused(|extents| extents.push(extents[3])), 4);
        assert_eq!(refused(|extents| extents[0].bytes = 0), 0);
    }
}
