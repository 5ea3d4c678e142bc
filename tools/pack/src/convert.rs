//! GGUF to pack: the source is read once, a few MiB at a time, and the pack written front to back.
//!
//! Memory does not depend on the model: rows of at most [`CHUNK_BYTES`] are read and encoded into strips while the ones
//! before them are written, even where one matrix has hundreds of MiB.

use crate::encode::{self, Encoding};
use crate::error::{Error, Result};
use crate::gguf::write::Metadata;
use crate::gguf::{Gguf, Tensor};
use crate::layout::{Layout, padded};
use crate::mapping::{Mapping, mappings};
use crate::model::{Matrix, Model};
use crate::model_files::ModelFiles;
use crate::order::Order;
use crate::output::Output;
use crate::source::read_vec;
use crate::write_behind::WriteBehind;
use estream_idl::address::{PAGE, TILE};
use estream_idl::format::VECTOR;
use estream_idl::pack::{ChecksumHeader, ExtentSum};
use serde::Serialize;
use std::path::{Path, PathBuf};
use zerocopy::IntoBytes;

/// Bytes of source rows in memory.
const CHUNK_BYTES: usize = 4 << 20;

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
    /// How each tensor was stored.
    pub tensors: Vec<Mapping>,
}

/// Converts the GGUF at `input` (or any file of a split one, or the folder with the model) to a pack at `output`, which appears whole or not at all.
///
/// # Errors
/// Input errors for a file that cannot be packed, run-time errors for a disk that cannot be written.
pub fn convert(input: &Path, output: &Path, options: &Options<'_>) -> Result<Report> {
    let files = ModelFiles::open(input)?;
    let target = output.canonicalize().ok();
    let is_target = |path: &&Path| target.is_some() && path.canonicalize().ok() == target;
    if let Some(same) = files.paths().find(is_target) {
        return Err(Error::input("same-file", "input and output are the same file").in_file(same));
    }
    files.gguf().and_then(|gguf| pack(&gguf, output, options)).map_err(|error| error.in_file(input))
}

/// Packs a model.
pub(crate) fn pack(gguf: &Gguf<'_>, output: &Path, options: &Options<'_>) -> Result<Report> {
    let model = Model::of(gguf)?;
    let order = match &options.order {
        Some(path) => Order::read(path, &model.sparse)?,
        None => Order::identity(&model.sparse),
    };
    let layout = Layout::of(&model, &order, tokenizer(gguf, model.tied)?)?;
    let output = Output::create(output, layout.header.file_bytes)?;
    let header = layout.header;
    let tables = WriteBehind::run(&output, |disk| {
        let (at, total) = (header.dense.file, header.file_bytes);
        let progress = options.progress;
        write(Writer { disk, gguf, at, crc: 0, total, progress }, &model, &order, &layout)
    })?;
    finish(&output, layout, tables)?;
    output.commit()?;
    (options.progress)(header.file_bytes, header.file_bytes);
    Ok(Report {
        architecture: model.architecture.to_owned(),
        file_bytes: header.file_bytes,
        sparse_layers: header.sparse_layers,
        experts: header.experts_per_layer,
        record_bytes: header.record_bytes,
        expert_bytes: header.experts.bytes,
        dense_bytes: header.dense.bytes,
        tied_head: model.tied,
        tensors: mappings(gguf, &model),
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
    disk: WriteBehind,
    gguf: &'a Gguf<'a>,
    /// Where the next byte goes.
    at: u64,
    /// Of the extent that is being written.
    crc: u32,
    total: u64,
    progress: Progress<'a>,
}

/// Writes all weights and returns the checksum table.
fn write(mut writer: Writer<'_>, model: &Model, order: &Order, layout: &Layout) -> Result<Vec<u8>> {
    let mut sums = Vec::with_capacity(layout.matrices.len());
    for (dense, entry) in model.dense.iter().zip(&layout.matrices) {
        writer.matrix(&dense.matrix)?;
        sums.push(writer.end_extent(entry.file)?);
    }
    let pages = writer.embedding(&model.embedding, layout.row_bytes)?;
    for (index, (layer, entry)) in model.sparse.iter().zip(&layout.layers).enumerate() {
        for (position, &expert) in order.stored(index).iter().enumerate() {
            for matrix in layer.record(expert.into()) {
                writer.matrix(&matrix)?;
                writer.pad(VECTOR as u64)?;
            }
            sums.push(writer.end_extent(entry.file + position as u64 * entry.record_bytes)?);
        }
    }
    debug_assert_eq!(writer.at, writer.total);
    let head = ChecksumHeader { extents: sums.len() as u32, embedding_pages: pages.len() as u32 };
    Ok([head.as_bytes(), sums.as_bytes(), pages.as_bytes()].concat())
}

/// Writes the tables and then the header, which seals them.
fn finish(output: &Output, mut layout: Layout, checksums: Vec<u8>) -> Result<()> {
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
        output.write_at(extent.file, &bytes)?;
    }
    header.crc = crc32c::crc32c(header.as_bytes());
    output.write_at(0, header.as_bytes())
}

impl Writer<'_> {
    fn put(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.crc = crc32c::crc32c_append(self.crc, &bytes);
        let at = self.at;
        self.at += bytes.len() as u64;
        self.disk.write(at, bytes)?;
        (self.progress)(self.at, self.total);
        Ok(())
    }

    fn pad(&mut self, alignment: u64) -> Result<()> {
        let bytes = self.at.next_multiple_of(alignment) - self.at;
        if bytes == 0 {
            return Ok(());
        }
        let mut zeros = self.disk.buffer();
        zeros.resize(bytes as usize, 0);
        self.put(zeros)
    }

    /// Ends the extent that began at `file`.
    fn end_extent(&mut self, file: u64) -> Result<ExtentSum> {
        self.pad(PAGE as u64)?;
        Ok(ExtentSum { file, bytes: self.at - file, crc: std::mem::take(&mut self.crc), reserved: 0 })
    }

    /// Reads rows of a matrix's tensor.
    fn rows(&self, tensor: &Tensor, first: u64, count: usize, rows: &mut Vec<u8>) -> Result<()> {
        rows.clear();
        self.append_rows(tensor, first, count, rows)
    }

    fn append_rows(&self, tensor: &Tensor, first: u64, count: usize, rows: &mut Vec<u8>) -> Result<()> {
        let (row_bytes, before) = (tensor.row_bytes(), rows.len());
        rows.resize(before + count * row_bytes as usize, 0);
        self.gguf.read_data(tensor, first * row_bytes, &mut rows[before..])
    }

    /// Writes a matrix, or a vector.
    fn matrix(&mut self, matrix: &Matrix) -> Result<()> {
        let gguf = self.gguf;
        let tensor = &gguf.tensors[matrix.tensor];
        let encoding = encoding_of(tensor)?;
        let mut rows = Vec::new();
        if matrix.n == 0 {
            self.rows(tensor, 0, (u64::from(matrix.k) / tensor.dims[0]) as usize, &mut rows)?;
            let mut out = self.disk.buffer();
            encode::encode_vector(encoding, &rows, &mut out);
            return self.put(out);
        }
        let (k, n) = (matrix.k as usize, matrix.n as usize);
        let row_bytes = tensor.row_bytes() as usize;
        let strip_bytes = encoding.format.strip(k).bytes;
        let strips_a_chunk = (CHUNK_BYTES / (row_bytes * TILE)).max(1);
        for first in (0..n).step_by(strips_a_chunk * TILE) {
            let count = (n - first).min(strips_a_chunk * TILE);
            rows.clear();
            for (row, count) in matrix.pieces(first, count) {
                self.append_rows(tensor, row, count, &mut rows)?;
            }
            let mut out = self.disk.buffer();
            out.resize(count.div_ceil(TILE) * strip_bytes, 0);
            encode::encode_strips(encoding, tensor.ggml, k, &rows, &mut out);
            self.put(out)?;
        }
        Ok(())
    }

    /// Writes the embedding and returns the checksums of its pages.
    fn embedding(&mut self, matrix: &Matrix, encoded: usize) -> Result<Vec<u32>> {
        let gguf = self.gguf;
        let tensor = &gguf.tensors[matrix.tensor];
        let encoding = encoding_of(tensor)?;
        let row_bytes = tensor.row_bytes() as usize;
        let (k, vocab) = (matrix.k as usize, matrix.n as usize);
        // Whole pages at a time: the fewest rows that fill some.
        let rows_of_pages = PAGE >> encoded.trailing_zeros().min(PAGE.trailing_zeros());
        let rows_a_chunk = (CHUNK_BYTES / row_bytes).max(1).next_multiple_of(rows_of_pages);
        let (mut rows, mut pages) = (Vec::new(), Vec::new());
        for first in (0..vocab).step_by(rows_a_chunk) {
            let count = (vocab - first).min(rows_a_chunk);
            self.rows(tensor, first as u64, count, &mut rows)?;
            let mut out = self.disk.buffer();
            out.resize(padded((count * encoded) as u64) as usize, 0);
            for (row, out) in rows.chunks_exact(row_bytes).zip(out.chunks_exact_mut(encoded)) {
                encode::encode_row(encoding, tensor.ggml, k, row, out);
            }
            pages.extend(out.chunks_exact(PAGE).map(crc32c::crc32c));
            self.put(out)?;
        }
        self.crc = 0;
        Ok(pages)
    }
}

/// The encoding of a tensor that the model has found a place for.
fn encoding_of(tensor: &Tensor) -> Result<&'static Encoding> {
    let error = || Error::input("unsupported-type", "its type cannot be packed").of(&tensor.name);
    encode::encoding(tensor.ggml).ok_or_else(error)
}
