//! Logits of all positions as a NumPy file, written strip by strip in constant memory.
//!
//! Panels arrive with all rows of some columns, so each row's piece is written at its own place in the file; the page
//! cache gathers them. The file has no name until every element is there ([`Output`]): a failed, cancelled or killed pass
//! leaves nothing.

use crate::errors::{Error, Exit, Result};
use estream_host::RowSink;
use estream_idl::message::Rows;
use estream_pack::Output;
use std::io;
use std::path::{Path, PathBuf};
use zerocopy::IntoBytes;

/// Bytes that NumPy aligns the data to.
const ALIGN: usize = 64;

/// A float32 `[tokens, vocab]` array on its way to a file: the sink of a pass with one request.
#[derive(Debug)]
pub struct LogitsFile {
    output: Output,
    path: PathBuf,
    tokens: u64,
    vocab: u64,
    data: u64,
    written: u64,
}

impl LogitsFile {
    /// Begins the file beside `path`, which is replaced by [`Self::finish`] alone.
    ///
    /// # Errors
    /// `bad-output` where `path` is no regular file, `write` or `disk-full` where the folder or the disk does not take it.
    pub fn create(path: &Path, tokens: u32, vocab: u32) -> Result<Self> {
        let header = header(tokens, vocab);
        let (tokens, vocab, data) = (u64::from(tokens), u64::from(vocab), header.len() as u64);
        let bytes = (tokens * vocab).saturating_mul(4).saturating_add(data);
        let output = Output::create(path, bytes)?;
        output.write_at(0, &header)?;
        Ok(Self { output, path: path.to_owned(), tokens, vocab, data, written: 0 })
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// `write` where the disk or the folder fails, `incomplete` where elements are missing.
    pub fn finish(self) -> Result<()> {
        let whole = self.tokens * self.vocab;
        if self.written != whole {
            let message = format!("the device handed over {} of {whole} logits", self.written);
            return Err(Error::new("incomplete", Exit::Runtime, message).in_file(&self.path));
        }
        Ok(self.output.commit()?)
    }
}

impl RowSink for LogitsFile {
    fn rows(&mut self, rows: &Rows, panel: &[f32]) -> io::Result<()> {
        let (first_row, first_column) = (u64::from(rows.first_row), u64::from(rows.first_column));
        let (count, columns) = (u64::from(rows.rows), u64::from(rows.columns));
        let inside = rows.request == 0
            && first_row + count <= self.tokens
            && first_column + columns <= self.vocab
            && panel.len() as u64 == count * columns;
        if !inside {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a panel of logits lies outside the request",
            ));
        }
        if columns == 0 {
            return Ok(());
        }
        for (row, values) in (first_row..).zip(panel.chunks_exact(rows.columns as usize)) {
            let element = row * self.vocab + first_column;
            let at = self.data + 4 * element;
            self.output.write_at(at, values.as_bytes()).map_err(io::Error::other)?;
        }
        self.written += count * columns;
        Ok(())
    }
}

/// The NumPy format's version 1 header.
fn header(tokens: u32, vocab: u32) -> Vec<u8> {
    const FIXED: usize = 10;
    let mut text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({tokens}, {vocab}), }}");
    let end = (FIXED + text.len() + 1).next_multiple_of(ALIGN);
    text.extend(std::iter::repeat_n(' ', end - FIXED - text.len() - 1));
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(first_row: u32, rows: u32, first_column: u32, columns: u32) -> Rows {
        Rows { ticket: 0, request: 0, first_row, rows, first_column, columns, page: 0 }
    }

    #[test]
    fn the_header_is_numpy_s() {
        // What numpy.save writes for a (3, 5) float32 array.
        let header = header(3, 5);
        assert_eq!(header.len(), 128);
        assert!(header.starts_with(
            b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5), }  "
        ));
        assert_eq!(header.last(), Some(&b'\n'));
    }

    #[test]
    fn panels_land_at_their_places_and_the_name_comes_last() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("logits.npy");
        let mut file = LogitsFile::create(&path, 2, 3).expect("a file");
        file.rows(&panel(0, 2, 2, 1), &[2.0, 5.0]).expect("the last column");
        file.rows(&panel(1, 1, 0, 2), &[3.0, 4.0]).expect("the second row");
        assert!(!path.exists());
        file.rows(&panel(0, 1, 0, 2), &[0.0, 1.0]).expect("the first row");
        file.finish().expect("whole");
        let bytes = std::fs::read(&path).expect("the file");
        let expected: Vec<u8> = (0..6_u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
        assert_eq!(&bytes[128..], expected);
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1);
    }

    #[test]
    fn bad_panels_are_refused_and_unfinished_files_leave_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("logits.npy");
        let mut file = LogitsFile::create(&path, 2, 3).expect("a file");
        assert!(file.rows(&panel(1, 2, 0, 1), &[0.0; 2]).is_err());
        assert!(file.rows(&panel(0, 1, 3, 1), &[0.0]).is_err());
        assert!(file.rows(&panel(u32::MAX, u32::MAX, 0, 1), &[0.0]).is_err());
        assert!(file.rows(&panel(0, 2, 0, 2), &[0.0; 3]).is_err());
        let error = file.finish().expect_err("nothing was written");
        assert_eq!(error.code, "incomplete");
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    }
}
