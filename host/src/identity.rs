//! Whether a pack is still the file that was opened.
//!
//! A session keeps its descriptors, so a pack that is renamed, unlinked or replaced by another one is read to its end as it
//! was. One that is written to in place is not: bytes that were checked when it was opened may be others when they are
//! read. Under `--verify always` each read is checked for itself. Under the other policies a pass looks at its end whether
//! size and time of modification are those of the open, and its numbers are withheld if not; the time of the last change
//! of the inode is not looked at, since a rename over the path moves it too.
//!
//! Kernels stamp files by the tick (up to 10 ms; finer from Linux 6.13 on): a write in the same tick as the last one before
//! the open is not seen.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// The file behind a descriptor, as it was once.
pub(crate) struct Identity {
    file: File,
    stamp: Stamp,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Identity {
    /// The file as it is now.
    pub(crate) fn of(file: File) -> io::Result<Self> {
        let stamp = Stamp::of(&file)?;
        Ok(Self { file, stamp })
    }

    /// The descriptor.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// What has changed since, if anything has.
    pub(crate) fn change(&self) -> Option<String> {
        match Stamp::of(&self.file) {
            Ok(stamp) if stamp == self.stamp => None,
            Ok(Stamp { bytes, .. }) if bytes != self.stamp.bytes => {
                Some(format!("it had {} bytes when it was opened and has {bytes} now", self.stamp.bytes))
            }
            Ok(_) => Some("it was written to since it was opened".into()),
            Err(error) => Some(format!("it cannot be looked at any more: {error}")),
        }
    }
}

impl Stamp {
    fn of(file: &File) -> io::Result<Self> {
        let stat = file.metadata()?;
        Ok(Self { bytes: stat.size(), seconds: stat.mtime(), nanoseconds: stat.mtime_nsec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_file_that_is_written_to_is_another_and_one_that_loses_its_name_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pack");
        std::fs::write(&path, b"bytes").unwrap();
        let writer = File::options().write(true).open(&path).unwrap();
        // Long enough ago that a write now has another time.
        writer.set_modified(SystemTime::now() - Duration::from_secs(1)).unwrap();
        let identity = Identity::of(File::open(&path).unwrap()).unwrap();
        assert_eq!(identity.change(), None);
        std::fs::write(folder.path().join("other"), b"other bytes").unwrap();
        std::fs::rename(folder.path().join("other"), &path).unwrap();
        assert_eq!(identity.change(), None, "the file that was opened is the one that it was");
        writer.write_all_at(b"B", 0).unwrap();
        assert!(identity.change().unwrap().contains("written to"));
        writer.set_len(3).unwrap();
        assert!(identity.change().unwrap().contains("5 bytes when it was opened and has 3"));
    }
}
