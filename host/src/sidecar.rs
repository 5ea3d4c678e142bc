//! What `--verify once` remembers: a small text file beside the pack that says which very file was checked whole.
//!
//! The file is named by device, inode, size, both timestamps and the header's checksum. A change of the pack moves its
//! timestamps on, but only as finely as the kernel's clock ticks: a write in the tick of the last one would not be seen.
//! So the pass starts no sooner than [`TICK`] after the last change ([`Sidecar::let_the_clock_pass`]); any later write
//! then has another time.

use crate::pack::beside;
use estream_idl::pack::Header;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use zerocopy::IntoBytes as _;

/// Longer than a tick of any kernel's file clock (10 ms at 100 Hz).
const TICK: Duration = Duration::from_millis(20);

/// The memory of one pack file: where it is kept and what it must say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sidecar {
    path: PathBuf,
    text: String,
    changed: Duration,
}

impl Sidecar {
    /// The sidecar of the pack at `path`, open as `file`.
    pub(crate) fn of(path: &Path, file: &File, header: &Header) -> io::Result<Self> {
        let stat = file.metadata()?;
        let text = format!(
            "estream-verified 1\ndevice {}\ninode {}\nsize {}\nmtime {}.{:09}\nctime {}.{:09}\nheader {:08x}\n",
            stat.dev(),
            stat.ino(),
            stat.size(),
            stat.mtime(),
            stat.mtime_nsec(),
            stat.ctime(),
            stat.ctime_nsec(),
            crc32c::crc32c(header.as_bytes()),
        );
        let since_epoch = |seconds: i64, nanos: i64| {
            Duration::from_secs(seconds.max(0).unsigned_abs())
                + Duration::from_nanos(nanos.max(0).unsigned_abs())
        };
        let changed =
            since_epoch(stat.mtime(), stat.mtime_nsec()).max(since_epoch(stat.ctime(), stat.ctime_nsec()));
        Ok(Self { path: beside(path, ".verified"), text, changed })
    }

    /// Whether a pass over this very file was remembered.
    pub(crate) fn is_remembered(&self) -> bool {
        let fits = fs::metadata(&self.path).is_ok_and(|stat| stat.len() == self.text.len() as u64);
        fits && fs::read(&self.path).is_ok_and(|text| text == self.text.as_bytes())
    }

    /// Sleeps until the pack's last change is at least a tick old.
    pub(crate) fn let_the_clock_pass(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let age = now.saturating_sub(self.changed);
        if let Some(rest) = TICK.checked_sub(age) {
            std::thread::sleep(rest);
        }
    }

    /// Writes the memory whole or not at all.
    pub(crate) fn remember(&self) -> io::Result<()> {
        let unique = format!(".{}.new", rustix::thread::gettid().as_raw_nonzero());
        let temporary = beside(&self.path, &unique);
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display()));
        let written = File::create(&temporary).and_then(|mut file| {
            file.write_all(self.text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &self.path)
        });
        written.map_err(|error| {
            // Best effort: the temporary may never have come to be.
            let _ = fs::remove_file(&temporary);
            named(error)
        })
    }
}
