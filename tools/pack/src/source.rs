//! Bytes at an offset: the seam under every reader, so that a file, a piece of a file and a model that exists only as a
//! seed are read by the same code.
//!
//! Reads are positioned and copied, never mapped: a file that is cut while it is read is an error and not a signal, and
//! memory stays what the caller's buffers are.

use crate::error::{Error, Result};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Something with bytes at offsets.
pub trait Source: Sync {
    /// Bytes in all.
    fn bytes(&self) -> u64;

    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] past the end, or what the system says.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// The file that the bytes are in, for messages.
    fn path(&self) -> Option<&Path> {
        None
    }
}

/// A range of a regular file.
#[derive(Debug)]
pub struct FileRange {
    file: File,
    path: PathBuf,
    base: u64,
    bytes: u64,
}

impl FileRange {
    /// The whole file at `path`.
    ///
    /// # Errors
    /// `not-found`, `not-a-file` (a folder, or a pipe, on which a read could wait for ever) or `unreadable`.
    pub fn open(path: &Path) -> Result<Self> {
        let found = |error: io::Error| {
            let code = match error.kind() {
                io::ErrorKind::NotFound => "not-found",
                _ => "unreadable",
            };
            Error::input(code, format!("cannot open: {error}")).in_file(path)
        };
        let metadata = std::fs::metadata(path).map_err(found)?;
        if !metadata.is_file() {
            return Err(Error::input("not-a-file", "not a regular file").in_file(path));
        }
        let file = File::open(path).map_err(found)?;
        Ok(Self { file, path: path.to_owned(), base: 0, bytes: metadata.len() })
    }

    /// The bytes `base..base + bytes` of this range, as a source of their own; the caller has checked that they exist.
    pub(crate) fn narrow(self, base: u64, bytes: u64) -> Self {
        Self { base: self.base + base, bytes, ..self }
    }
}

impl Source for FileRange {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        check(offset, out.len(), self.bytes)?;
        self.file.read_exact_at(out, self.base + offset)
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

impl Source for Vec<u8> {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        check(offset, out.len(), self.bytes())?;
        let first = offset as usize;
        out.copy_from_slice(&self[first..first + out.len()]);
        Ok(())
    }
}

fn check(offset: u64, wanted: usize, bytes: u64) -> io::Result<()> {
    match offset.checked_add(wanted as u64) {
        Some(end) if end <= bytes => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Reads a piece of known, already bounded size.
pub(crate) fn read_vec(source: &dyn Source, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut out = vec![0; bytes];
    source.read_at(offset, &mut out).map_err(|error| Error::read(&error, offset))?;
    Ok(out)
}
