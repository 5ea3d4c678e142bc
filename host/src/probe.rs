//! The start-up probe: does O_DIRECT really deliver here?
//!
//! Three failures are known: the open is refused, the read is refused, and the read reports success without filling
//! the buffer. The last one would compute with garbage, so a poisoned page is read both ways and compared.

use crate::mapping::Buffer;
use crate::read::{ReadAt, open_direct};
use estream_idl::address::PAGE;
use std::fs::File;
use std::path::Path;

/// How the pack is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// Past the page cache, straight into the shared memory.
    Direct,
    /// Through the page cache.
    Buffered {
        /// Why not past it.
        reason: String,
    },
}

impl IoMode {
    /// The mode's name in reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Buffered { .. } => "buffered",
        }
    }
}

/// The poison, where the page does not hold it itself: see [`deliver`].
const POISON: u8 = 0xA5;

/// The descriptor for direct reads of `path`, if they work, and the mode that follows.
pub(crate) fn probe(path: &Path, cached: &File) -> (Option<Box<dyn ReadAt>>, IoMode) {
    let direct = open_direct(path).map_err(|error| format!("O_DIRECT is refused at open: {error}"));
    match direct.and_then(|direct| deliver(&direct, cached).map(|()| direct)) {
        Ok(direct) => (Some(Box::new(direct)), IoMode::Direct),
        Err(reason) => (None, IoMode::Buffered { reason }),
    }
}

/// Whether `direct` fills a page of poison with the file's first page, or why not.
fn deliver(direct: &dyn ReadAt, cached: &dyn ReadAt) -> Result<(), String> {
    let buffer = || Buffer::new(PAGE).map_err(|error| format!("no page to try O_DIRECT with: {error}"));
    let mut expected = buffer()?;
    match cached.read_at(expected.bytes(), 0) {
        Ok(PAGE) => {}
        other => return Err(format!("the first page could not be read for comparison ({other:?})")),
    }
    // Poison that differs from the expected page in every byte: one byte left alone is one byte found.
    let mut page = buffer()?;
    for (byte, &wanted) in page.bytes().iter_mut().zip(expected.bytes().iter()) {
        *byte = if wanted == POISON { !POISON } else { POISON };
    }
    match direct.read_at(page.bytes(), 0) {
        Err(error) => Err(format!("O_DIRECT is refused at the first read: {error}")),
        Ok(PAGE) if page.bytes() == expected.bytes() => Ok(()),
        Ok(PAGE) => Err("O_DIRECT reports success without filling the buffer".into()),
        Ok(read) => Err(format!("O_DIRECT gives {read} of {PAGE} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::io::{self, IoSliceMut};

    enum Disk {
        Honest,
        Refusing,
        Short,
        Lying,
        LyingInOneByte,
    }

    impl ReadAt for Disk {
        fn read_vectored_at(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
            let into = &mut into[0];
            let page: Vec<u8> = (0..into.len()).map(|i| (i as u64 + offset) as u8).collect();
            match self {
                Self::Honest => into.copy_from_slice(&page),
                Self::Refusing => return Err(Errno::INVAL.into()),
                Self::Short => return Ok(512),
                Self::Lying => {}
                // The byte that equals the usual poison stays unwritten.
                Self::LyingInOneByte => {
                    for (at, (to, from)) in into.iter_mut().zip(page).enumerate() {
                        if at != usize::from(POISON) {
                            *to = from;
                        }
                    }
                }
            }
            Ok(into.len())
        }
    }

    #[test]
    fn only_a_page_that_was_really_filled_passes() {
        assert_eq!(deliver(&Disk::Honest, &Disk::Honest), Ok(()));
        for (disk, word) in [
            (Disk::Refusing, "refused"),
            (Disk::Short, "512"),
            (Disk::Lying, "without filling"),
            (Disk::LyingInOneByte, "without filling"),
        ] {
            let reason = deliver(&disk, &Disk::Honest).unwrap_err();
            assert!(reason.contains(word), "{reason}");
        }
    }
}
