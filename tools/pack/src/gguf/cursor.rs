//! A cursor over a source: small reads through one window, with every length checked before anything is allocated.
//!
//! Counts and lengths in a file are claims. A string is read only when its bytes are in the file and within the limit of
//! its kind, and what is kept (keys and names) draws on a budget, so that no file makes the reader hold more than
//! [`KEPT_BYTES`] whatever it claims.

use crate::error::{Error, Result};
use crate::source::Source;

/// Bytes of the window.
const WINDOW: usize = 64 << 10;
/// Bytes of keys and names that a file's metadata may hold.
const KEPT_BYTES: usize = 8 << 20;

pub(super) struct Cursor<'a> {
    source: &'a dyn Source,
    window: Vec<u8>,
    window_at: u64,
    at: u64,
    kept: usize,
    /// What is being read, for messages.
    pub(super) part: String,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(source: &'a dyn Source, at: u64) -> Self {
        Self { source, window: Vec::new(), window_at: 0, at, kept: 0, part: "the header".to_owned() }
    }

    pub(super) const fn position(&self) -> u64 {
        self.at
    }

    pub(super) fn left(&self) -> u64 {
        self.source.bytes().saturating_sub(self.at)
    }

    fn truncated(&self, wanted: u64) -> Error {
        let (bytes, at) = (self.source.bytes(), self.at);
        let message = format!("the file ends in {}: {wanted} bytes wanted, {bytes} in the file", self.part);
        Error::input("truncated", message).at(at)
    }

    /// Passes over `bytes` bytes, which must be there.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.left() {
            return Err(self.truncated(bytes));
        }
        self.at += bytes;
        Ok(())
    }

    fn fill(&mut self, out: &mut [u8]) -> Result<()> {
        let wanted = out.len() as u64;
        if wanted > self.left() {
            return Err(self.truncated(wanted));
        }
        let inside =
            self.at >= self.window_at && self.at + wanted <= self.window_at + self.window.len() as u64;
        if !inside {
            let bytes = self.left().min(WINDOW.max(out.len()) as u64) as usize;
            self.window.resize(bytes, 0);
            self.window_at = self.at;
            self.source.read_at(self.at, &mut self.window).map_err(|error| Error::read(&error, self.at))?;
        }
        let first = (self.at - self.window_at) as usize;
        out.copy_from_slice(&self.window[first..first + out.len()]);
        self.at += wanted;
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        self.fill(&mut out)?;
        Ok(out)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The bytes of a string of at most `limit` bytes.
    pub(super) fn string_bytes(&mut self, limit: usize) -> Result<Vec<u8>> {
        let at = self.at;
        let length = self.u64()?;
        if length > self.left() {
            return Err(self.truncated(length));
        }
        if length > limit as u64 {
            let message = format!("a string in {} has {length} bytes, more than {limit}", self.part);
            return Err(Error::input("string-too-long", message).at(at));
        }
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// A key or name that stays in memory.
    pub(super) fn kept_string(&mut self, limit: usize) -> Result<String> {
        let at = self.at;
        let bytes = self.string_bytes(limit)?;
        self.kept += bytes.len();
        if self.kept > KEPT_BYTES {
            let message = format!("keys and names take more than {KEPT_BYTES} bytes");
            return Err(Error::input("metadata-too-large", message).at(at));
        }
        String::from_utf8(bytes).map_err(|_| {
            Error::input("not-utf8", format!("a key or name in {} is not UTF-8", self.part)).at(at)
        })
    }
}
