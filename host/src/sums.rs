//! The pack's checksums: which ranges they cover, and whether bytes in memory match them.
//!
//! Two kinds stand in the table: one CRC32C per extent (dense matrix, expert record) and one per page of the embedding.
//! Together with the header and its four tables they cover every byte of the file; [`Sums::new`] refuses a table that
//! leaves a gap, because a gap is where a flipped byte would hide.

use estream_idl::address::PAGE;
use estream_idl::pack::{Checksums, ExtentSum, Header, Range};

/// The checksum table, checked against the header's ranges.
pub(crate) struct Sums {
    table: Vec<u8>,
    embedding: Range,
}

/// A range whose bytes are not those that were packed, or that no checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// The extent (or embedding page) at `file` has another checksum.
    Damaged { file: u64, bytes: u64, expected: u32, found: u32 },
    /// The range begins or ends inside an extent: nothing can be said about it.
    Uncovered { file: u64 },
}

impl Sums {
    /// The table in `bytes`, if it covers the ranges of `header` exactly; else the index of the first entry that does
    /// not fit, and why.
    pub(crate) fn new(bytes: Vec<u8>, header: &Header) -> Result<Self, (usize, String)> {
        covers(&bytes, header)?;
        Ok(Self { table: bytes, embedding: header.embedding })
    }

    /// The tables in place.
    pub(crate) fn table(&self) -> Checksums<'_> {
        Checksums::read(&self.table).expect("checked when it was made")
    }

    /// Compares the bytes of file range `file..` with the checksums of everything in it.
    pub(crate) fn check(&self, file: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        let end = file + bytes.len() as u64;
        let Range { file: first, bytes: size } = self.embedding;
        if file >= first && end <= first + size && !bytes.is_empty() {
            return self.check_pages(file, bytes);
        }
        let table = self.table();
        let mut index = self.find(file).ok_or(Mismatch::Uncovered { file })?;
        let mut rest = bytes;
        let mut at = file;
        while !rest.is_empty() {
            let extent = table.extents.get(index).filter(|extent| extent.file == at);
            let extent = extent.ok_or(Mismatch::Uncovered { file: at })?;
            let cut = usize::try_from(extent.bytes).ok().and_then(|bytes| rest.split_at_checked(bytes));
            let (whole, after) = cut.ok_or(Mismatch::Uncovered { file: at })?;
            compare(at, whole, extent.crc)?;
            (rest, at, index) = (after, at + extent.bytes, index + 1);
        }
        Ok(())
    }

    fn check_pages(&self, file: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        let first = (file - self.embedding.file) / PAGE as u64;
        for (number, page) in bytes.chunks(PAGE).enumerate() {
            let at = file + (number * PAGE) as u64;
            let expected = self.table().embedding_pages.get(first as usize + number);
            compare(at, page, expected.ok_or(Mismatch::Uncovered { file: at })?)?;
        }
        Ok(())
    }

    /// The extent that begins at `file`.
    fn find(&self, file: u64) -> Option<usize> {
        let extents = self.table().extents;
        let (mut low, mut high) = (0, extents.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match extents.get(middle)?.file.cmp(&file) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => high = middle,
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

fn compare(file: u64, bytes: &[u8], expected: u32) -> Result<(), Mismatch> {
    let found = crc32c::crc32c(bytes);
    if found == expected {
        return Ok(());
    }
    Err(Mismatch::Damaged { file, bytes: bytes.len() as u64, expected, found })
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
                write!(f, "the read at byte {file} cuts an extent, so it cannot be checked")
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

    #[test]
    fn a_range_that_cuts_an_extent_is_not_taken_for_checked() {
        let (sums, file) = fixture(|_| ());
        let sums = sums.unwrap();
        for (first, pages) in [(1, 1), (2, 1), (2, 2), (3, 2), (5, 2), (0, 1)] {
            let range = first * PAGE..(first + pages) * PAGE;
            let found = sums.check(range.start as u64, &file[range]);
            assert!(matches!(found, Err(Mismatch::Uncovered { .. })), "{first}+{pages}: {found:?}");
        }
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
