//! GGUF to pack: the source is read once, a few MiB at a time, and the pack written front to back.
//!
//! Memory does not depend on the model: rows of at most [`CHUNK_BYTES`] are read, encoded into strips and written before
//! the next are read, even where one matrix has hundreds of MiB.

use crate::encode;
use crate::error::{Error, Result};
use crate::gguf::write::Metadata;
use crate::gguf::{Gguf, Tensor};
use crate::layout::{Layout, padded};
use crate::model::{Matrix, Model};
use crate::order::Order;
use crate::output::Output;
use crate::source::{FileRange, Source, read_vec};
use estream_idl::address::{PAGE, TILE};
use estream_idl::format::VECTOR;
use estream_idl::pack::{ChecksumHeader, ExtentSum};
use serde::Serialize;
use std::path::{Path, PathBuf};
use zerocopy::IntoBytes;

/// Bytes of source rows in memory.
const CHUNK_BYTES: usize = 8 << 20;

/// The key in the tokenizer extent that says that the head repeats the embedding.
pub(crate) const TIED_HEAD: &str = "estream.tied_head";

/// Told how many bytes of how many are done.
pub type Progress<'a> = &'a dyn Fn(u64, u64);

/// How to convert.
pub struct Options<'a> {
    /// A JSON file with one list a layer: its experts in the order in which they are to be stored. `None` = by number.
    pub order: Option<PathBuf>,
    /// Told how far it is.
    pub progress: Progress<'a>,
}

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The value of `general.architecture`.
    pub architecture: String,
    /// Bytes of the pack.
    pub file_bytes: u64,
    /// Layers with experts.
    pub sparse_layers: u32,
    /// Experts of a layer.
    pub experts: u32,
    /// W_e, the largest expert record.
    pub record_bytes: u64,
    /// Bytes of all expert records.
    pub expert_bytes: u64,
    /// Bytes of the resident matrices.
    pub dense_bytes: u64,
    /// Whether the head repeats the embedding, because the model ties them.
    pub tied_head: bool,
}

/// Converts the GGUF at `input` to a pack at `output`, which appears whole or not at all.
///
/// # Errors
/// Input errors for a file that cannot be packed, run-time errors for a disk that cannot be written.
pub fn convert(input: &Path, output: &Path, options: &Options<'_>) -> Result<Report> {
    let source = FileRange::open(input)?;
    let same = std::fs::canonicalize(input).ok().zip(std::fs::canonicalize(output).ok());
    if same.is_some_and(|(input, output)| input == output) {
        return Err(Error::input("same-file", "input and output are the same file").in_file(input));
    }
    pack(&source, output, options).map_err(|error| error.in_file(input))
}

/// Packs whatever GGUF the source holds.
pub(crate) fn pack(source: &dyn Source, output: &Path, options: &Options<'_>) -> Result<Report> {
    let gguf = Gguf::read(source)?;
    let model = Model::of(&gguf)?;
    let order = match &options.order {
        Some(path) => Order::read(path, &model.sparse)?,
        None => Order::identity(&model.sparse),
    };
    let layout = Layout::of(&model, &order, tokenizer(&gguf, model.tied)?)?;
    let output = Output::create(output, layout.header.file_bytes)?;
    let writer = Writer {
        output: &output,
        gguf: &gguf,
        at: layout.header.dense.file,
        crc: 0,
        total: layout.header.file_bytes,
        progress: options.progress,
    };
    let header = layout.header;
    write(writer, &model, &order, layout)?;
    output.commit()?;
    Ok(Report {
        architecture: model.architecture.to_owned(),
        file_bytes: header.file_bytes,
        sparse_layers: header.sparse_layers,
        experts: header.experts_per_layer,
        record_bytes: header.record_bytes,
        expert_bytes: header.experts.bytes,
        dense_bytes: header.dense.bytes,
        tied_head: model.tied,
    })
}

/// A GGUF without tensors that holds what the source says about text, record by record as it stood there, and whether
/// its head is tied.
fn tokenizer(gguf: &Gguf<'_>, tied: bool) -> Result<Vec<u8>> {
    let mut metadata = Metadata::default();
    for entry in &gguf.entries {
        if entry.key.starts_with("tokenizer.") || entry.key.starts_with("general.") {
            metadata.record(&read_vec(gguf.source(), entry.start, (entry.end - entry.start) as usize)?);
        }
    }
    metadata.bool(TIED_HEAD, tied);
    Ok(metadata.finish())
}

struct Writer<'a> {
    output: &'a Output,
    gguf: &'a Gguf<'a>,
    /// Where the next byte goes.
    at: u64,
    /// Of the extent that is being written.
    crc: u32,
    total: u64,
    progress: Progress<'a>,
}

fn write(mut writer: Writer<'_>, model: &Model, order: &Order, mut layout: Layout) -> Result<()> {
    let mut sums = Vec::with_capacity(layout.matrices.len());
    for (dense, entry) in model.dense.iter().zip(&layout.matrices) {
        writer.matrix(&dense.matrix, 0)?;
        sums.push(writer.end_extent(entry.file)?);
    }
    let pages = writer.embedding(&model.embedding, layout.row_bytes)?;
    for (index, (layer, entry)) in model.sparse.iter().zip(&layout.layers).enumerate() {
        for (position, &expert) in order.stored(index).iter().enumerate() {
            for matrix in [&layer.gate, &layer.up, &layer.down] {
                writer.matrix(matrix, u64::from(expert))?;
                writer.pad(VECTOR as u64)?;
            }
            sums.push(writer.end_extent(entry.file + position as u64 * entry.record_bytes)?);
        }
    }
    debug_assert_eq!(writer.at, writer.total);

    let head = ChecksumHeader { extents: sums.len() as u32, embedding_pages: pages.len() as u32 };
    let checksums = [head.as_bytes(), sums.as_bytes(), pages.as_bytes()].concat();
    let header = &mut layout.header;
    for (extent, bytes) in [
        (&mut header.recipe, layout.recipe),
        (&mut header.directory, layout.directory),
        (&mut header.checksums, checksums),
        (&mut header.tokenizer, layout.tokenizer),
    ] {
        let mut bytes = bytes;
        bytes.resize(padded(bytes.len() as u64) as usize, 0);
        extent.crc = crc32c::crc32c(&bytes);
        writer.output.write_at(extent.file, &bytes)?;
    }
    header.crc = crc32c::crc32c(header.as_bytes());
    writer.output.write_at(0, header.as_bytes())?;
    (writer.progress)(writer.total, writer.total);
    Ok(())
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.output.write_at(self.at, bytes)?;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.at += bytes.len() as u64;
        (self.progress)(self.at, self.total);
        Ok(())
    }

    fn pad(&mut self, alignment: u64) -> Result<()> {
        let bytes = self.at.next_multiple_of(alignment) - self.at;
        if bytes > 0 { self.put(&[0; PAGE][..bytes as usize]) } else { Ok(()) }
    }

    /// Ends the extent that began at `file`.
    fn end_extent(&mut self, file: u64) -> Result<ExtentSum> {
        self.pad(PAGE as u64)?;
        Ok(ExtentSum { file, bytes: self.at - file, crc: std::mem::take(&mut self.crc), reserved: 0 })
    }

    fn rows<'t>(
        &self,
        tensor: &'t Tensor,
        first: u64,
        count: usize,
        rows: &mut Vec<u8>,
    ) -> Result<&'t Tensor> {
        let row_bytes = tensor.row_bytes();
        let at = tensor.data + first * row_bytes;
        rows.resize(count * row_bytes as usize, 0);
        self.gguf.source().read_at(at, rows).map_err(|error| Error::read(&error, at).of(&tensor.name))?;
        Ok(tensor)
    }

    /// Writes the matrix (or vector) that is number `expert` of its tensor.
    fn matrix(&mut self, matrix: &Matrix, expert: u64) -> Result<()> {
        let gguf = self.gguf;
        let tensor = &gguf.tensors[matrix.tensor];
        let mut rows = Vec::new();
        if matrix.n == 0 {
            self.rows(tensor, 0, 1, &mut rows)?;
            return self.put(&rows);
        }
        let (k, n) = (matrix.k as usize, matrix.n as usize);
        let row_bytes = tensor.row_bytes() as usize;
        let strip_bytes = matrix.format.strip(k).bytes;
        let strips_a_chunk = (CHUNK_BYTES / (row_bytes * TILE)).max(1);
        let mut out = Vec::new();
        for first in (0..n).step_by(strips_a_chunk * TILE) {
            let count = (n - first).min(strips_a_chunk * TILE);
            self.rows(tensor, expert * n as u64 + first as u64, count, &mut rows)?;
            out.resize(count.div_ceil(TILE) * strip_bytes, 0);
            encode::encode_strips(&matrix.format, k, row_bytes, &rows, &mut out);
            self.put(&out)?;
        }
        Ok(())
    }

    /// Writes the embedding and returns the checksums of its pages.
    fn embedding(&mut self, matrix: &Matrix, encoded: usize) -> Result<Vec<u32>> {
        let gguf = self.gguf;
        let tensor = &gguf.tensors[matrix.tensor];
        let row_bytes = tensor.row_bytes() as usize;
        let (k, vocab) = (matrix.k as usize, matrix.n as usize);
        // Whole pages at a time: PAGE rows always are.
        let rows_a_chunk = (CHUNK_BYTES / row_bytes).next_multiple_of(PAGE);
        let (mut rows, mut out, mut pages) = (Vec::new(), Vec::new(), Vec::new());
        for first in (0..vocab).step_by(rows_a_chunk) {
            let count = (vocab - first).min(rows_a_chunk);
            self.rows(tensor, first as u64, count, &mut rows)?;
            out.clear();
            out.resize(padded((count * encoded) as u64) as usize, 0);
            for (row, out) in rows.chunks_exact(row_bytes).zip(out.chunks_exact_mut(encoded)) {
                encode::encode_row(&matrix.format, k, row, out);
            }
            pages.extend(out.chunks_exact(PAGE).map(crc32c::crc32c));
            self.put(&out)?;
        }
        self.crc = 0;
        Ok(pages)
    }
}
