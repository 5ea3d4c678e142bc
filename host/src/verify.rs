//! Verification: every byte of a pack is checked before a number comes out of it.
//!
//! The pass reads the file front to back in chunks of [`CHUNK`] bytes, two threads taking chunks in turn so that reading
//! and summing overlap; memory stays at two chunks. An extent may span chunks and a chunk many extents, so each thread
//! sums the pieces it meets and the pieces are joined afterwards (CRC32C of a concatenation follows from the parts).
//! Summing whole extents instead would need a buffer as large as the largest matrix.

use crate::Error;
use crate::mapping::Buffer;
use crate::pack::{layout, unreadable};
use crate::read::Reader;
use crate::sidecar::Sidecar;
use crate::sums::{Mismatch, Sums};
use estream_idl::address::PAGE;
use estream_idl::pack::{ExtentSum, Header};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// Bytes of one read of the pass.
const CHUNK: usize = 4 << 20;
/// Threads of the pass.
const THREADS: usize = 2;

/// When the bytes behind the header and its tables are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// All of them, at the first open of this very file; the fact is remembered beside it.
    #[default]
    Once,
    /// Each extent and embedding page as it is read.
    Always,
    /// Never: header and tables only.
    Never,
}

impl Verify {
    /// The policy's name, as users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// What was verified when a pack was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// The policy.
    pub policy: Verify,
    /// Whether the whole pass ran now.
    pub ran: bool,
    /// Whether an earlier pass over this very file was remembered.
    pub remembered: bool,
    /// Milliseconds of the pass.
    pub millis: u64,
    /// Why the pass could not be remembered: it will be repeated at the next open.
    pub not_remembered: Option<String>,
}

/// Verifies the pack as `policy` says.
pub(crate) fn verify(
    path: &Path,
    file: &File,
    reader: &Reader,
    header: &Header,
    sums: &Sums,
    policy: Verify,
    progress: &dyn Fn(u64, u64),
) -> Result<VerifyReport, Error> {
    let mut report = VerifyReport { policy, ran: false, remembered: false, millis: 0, not_remembered: None };
    if policy != Verify::Once {
        return Ok(report);
    }
    let sidecar = Sidecar::of(path, file, header).map_err(|error| unreadable(path, 0, &error))?;
    if sidecar.is_remembered() {
        report.remembered = true;
        return Ok(report);
    }
    sidecar.let_the_clock_pass();
    let begin = Instant::now();
    check_whole(path, reader, header, sums, progress)?;
    report.ran = true;
    report.millis = begin.elapsed().as_millis() as u64;
    let after = Sidecar::of(path, file, header).map_err(|error| unreadable(path, 0, &error))?;
    report.not_remembered = if after == sidecar {
        sidecar.remember().err().map(|error| error.to_string())
    } else {
        Some("the file changed while it was verified".into())
    };
    Ok(report)
}

/// Reads the whole file and compares every checksum.
pub(crate) fn check_whole(
    path: &Path,
    reader: &Reader,
    header: &Header,
    sums: &Sums,
    progress: &dyn Fn(u64, u64),
) -> Result<(), Error> {
    let spans = spans(header, sums);
    let size = header.file_bytes;
    let (next, done, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    // Sums the chunks that this thread takes; `tell` hears of each.
    let work = |tell: &dyn Fn(u64)| -> Result<Vec<Piece>, Error> {
        let mut buffer = Buffer::new(CHUNK).map_err(|error| {
            Error::runtime("no_memory", format!("{CHUNK} bytes to verify the pack in: {error}"))
        })?;
        let mut pieces = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            let at = next.fetch_add(CHUNK as u64, Ordering::Relaxed);
            if at >= size {
                break;
            }
            let bytes = &mut buffer.bytes()[..(size - at).min(CHUNK as u64) as usize];
            if let Err(error) = reader.fill(bytes, at) {
                failed.store(true, Ordering::Relaxed);
                return Err(unreadable(path, at, &error));
            }
            cut(&spans, at, bytes, &mut pieces);
            tell(done.fetch_add(bytes.len() as u64, Ordering::Relaxed) + bytes.len() as u64);
        }
        Ok(pieces)
    };
    let mut pieces = thread::scope(|scope| {
        let others: Vec<_> = (1..THREADS)
            .map(|number| {
                let name = format!("estream-verify-{number}");
                thread::Builder::new().name(name).spawn_scoped(scope, || work(&|_| ()))
            })
            .collect();
        let mut pieces = work(&|done| progress(done, size))?;
        // A thread that could not be made leaves its chunks to this one; a panic in one is passed on.
        for other in others.into_iter().flatten() {
            match other.join() {
                Ok(theirs) => pieces.extend(theirs?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok::<_, Error>(pieces)
    })?;
    progress(size, size);
    pieces.sort_unstable_by_key(|piece| piece.file);
    let found = join(&spans, &pieces);
    found.map_err(|mismatch| Error::bad_pack("checksum", path, mismatch.file(), mismatch))
}

/// The checksum of a part of a span.
struct Piece {
    file: u64,
    bytes: usize,
    crc: u32,
}

/// Everything that has a checksum behind the header, ascending and without gaps: tables, extents, embedding pages.
/// (The header's own sum excludes a field, so it was compared when it was read.)
fn spans(header: &Header, sums: &Sums) -> Vec<ExtentSum> {
    let table = sums.table();
    let mut spans: Vec<ExtentSum> = table.extents.iter().collect();
    let crcs = [header.recipe.crc, header.directory.crc, header.checksums.crc, header.tokenizer.crc];
    for ((_, range), crc) in layout(header).into_iter().zip(crcs) {
        spans.push(ExtentSum { file: range.file, bytes: range.bytes, crc, reserved: 0 });
    }
    for (page, crc) in table.embedding_pages.iter().enumerate() {
        let file = header.embedding.file + (page * PAGE) as u64;
        spans.push(ExtentSum { file, bytes: PAGE as u64, crc, reserved: 0 });
    }
    spans.retain(|span| span.bytes > 0);
    spans.sort_unstable_by_key(|span| span.file);
    spans
}

/// Sums the parts of `spans` that lie in the chunk at `at`.
fn cut(spans: &[ExtentSum], at: u64, chunk: &[u8], pieces: &mut Vec<Piece>) {
    let end = at + chunk.len() as u64;
    let first = spans.partition_point(|span| span.file + span.bytes <= at);
    for span in spans[first..].iter().take_while(|span| span.file < end) {
        let from = span.file.max(at);
        let bytes = &chunk[(from - at) as usize..((span.file + span.bytes).min(end) - at) as usize];
        pieces.push(Piece { file: from, bytes: bytes.len(), crc: crc32c::crc32c(bytes) });
    }
}

/// Joins the pieces of each span and compares.
fn join(spans: &[ExtentSum], pieces: &[Piece]) -> Result<(), Mismatch> {
    let mut pieces = pieces.iter().peekable();
    for span in spans {
        let (mut crc, mut at) = (0, span.file);
        while let Some(piece) = pieces.next_if(|piece| piece.file == at && at < span.file + span.bytes) {
            crc = crc32c::crc32c_combine(crc, piece.crc, piece.bytes);
            at += piece.bytes as u64;
        }
        if at != span.file + span.bytes {
            return Err(Mismatch::Uncovered { file: at });
        }
        if crc != span.crc {
            let ExtentSum { file, bytes, crc: expected, .. } = *span;
            return Err(Mismatch::Damaged { file, bytes, expected, found: crc });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_summed_right_wherever_chunks_cut_them() {
        let bytes: Vec<u8> = (0..5000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 17) as u8).collect();
        let borders = [0, 700, 701, 2400, 2400 + 1024, 5000];
        let spans: Vec<ExtentSum> = borders
            .windows(2)
            .map(|ends| ExtentSum {
                file: ends[0] as u64,
                bytes: (ends[1] - ends[0]) as u64,
                crc: crc32c::crc32c(&bytes[ends[0]..ends[1]]),
                reserved: 0,
            })
            .collect();
        let verdict = |bytes: &[u8], chunk: usize, reach: usize| {
            let mut pieces = Vec::new();
            for (number, part) in bytes[..reach].chunks(chunk).enumerate() {
                cut(&spans, (number * chunk) as u64, part, &mut pieces);
            }
            join(&spans, &pieces)
        };
        for chunk in [1, 3, 64, 699, 700, 1024, 4999, 5000, 6000] {
            assert_eq!(verdict(&bytes, chunk, 5000), Ok(()), "chunks of {chunk}");
            for flip in [0, 699, 700, 701, 1500, 2400, 3423, 3424, 4999] {
                let mut damaged = bytes.clone();
                damaged[flip] ^= 0x40;
                let span = spans.iter().rfind(|span| span.file <= flip as u64).unwrap();
                let found = verdict(&damaged, chunk, 5000);
                assert!(matches!(found, Err(Mismatch::Damaged { file, .. }) if file == span.file), "{flip}");
            }
            assert!(verdict(&bytes, chunk, 4000).is_err(), "a missing part is not a match");
        }
    }
}
