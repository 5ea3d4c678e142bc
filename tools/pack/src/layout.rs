//! Where everything stands in a pack, computed before a byte is written.
//!
//! All sizes follow from the model's shapes, so the directory is written once and the file front to back; only checksums
//! (and the header, which seals them) come last, into space that is known from the start.

use crate::error::{Error, Result};
use crate::model::{Dense, Matrix, Model, encode_recipe};
use crate::order::Order;
use estream_idl::address::PAGE;
use estream_idl::format::VECTOR;
use estream_idl::pack::{
    ChecksumHeader, DirectoryHeader, Extent, ExtentSum, Header, LayerEntry, MatrixEntry, Part, Range,
};
use zerocopy::IntoBytes;

/// A pack that is about to be written.
pub(crate) struct Layout {
    /// Complete but for checksums.
    pub(crate) header: Header,
    pub(crate) recipe: Vec<u8>,
    pub(crate) directory: Vec<u8>,
    pub(crate) tokenizer: Vec<u8>,
    pub(crate) matrices: Vec<MatrixEntry>,
    pub(crate) layers: Vec<LayerEntry>,
    pub(crate) row_bytes: usize,
}

/// Bytes in whole pages.
pub(crate) const fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE as u64)
}

/// Bytes of a matrix (or a vector) without padding to a page.
const fn matrix_bytes(matrix: &Matrix) -> u64 {
    match matrix.n {
        0 => 4 * matrix.k as u64,
        n => matrix.format.matrix_bytes(matrix.k as usize, n as usize) as u64,
    }
}

fn too_large(what: &str, bytes: u64) -> Error {
    Error::input("unsupported-shape", format!("{what} of {bytes} bytes is more than a pack can describe"))
}

/// An extent at `at`, which moves behind it.
fn extent(at: &mut u64, bytes: usize, what: &str) -> Result<Extent> {
    let file = *at;
    *at += padded(bytes as u64);
    let bytes = u32::try_from(bytes).map_err(|_| too_large(what, bytes as u64))?;
    Ok(Extent { file, bytes, crc: 0 })
}

/// The three parts of a record (gate, up, down), and W_l.
pub(crate) fn record([gate, up, down]: &[Matrix; 3]) -> Result<([Part; 3], u64)> {
    let mut at = 0u64;
    let mut part = |matrix: &Matrix| {
        let offset = u32::try_from(at).map_err(|_| too_large("an expert record", at))?;
        at += matrix_bytes(matrix).next_multiple_of(VECTOR as u64);
        Ok::<_, Error>(Part {
            offset,
            k: matrix.k,
            n: matrix.n,
            reserved: 0,
            format: matrix.format.to_bytes(),
        })
    };
    let parts = [part(gate)?, part(up)?, part(down)?];
    Ok((parts, padded(at)))
}

impl Layout {
    pub(crate) fn of(model: &Model, order: &Order, tokenizer: Vec<u8>) -> Result<Self> {
        let recipe = encode_recipe(&model.recipe)?;
        let experts: usize = model.sparse.iter().map(|layer| layer.experts as usize).sum();
        let row_bytes = model.embedding.format.row(model.recipe.width as usize).bytes;
        let embedding_bytes = padded(row_bytes as u64 * u64::from(model.recipe.vocab));

        let mut header = Header::empty();
        let mut at = PAGE as u64;
        header.recipe = extent(&mut at, recipe.len(), "the recipe")?;
        let directory_bytes = size_of::<DirectoryHeader>()
            + model.sparse.len() * size_of::<LayerEntry>()
            + model.dense.len() * size_of::<MatrixEntry>()
            + experts * size_of::<u16>();
        header.directory = extent(&mut at, directory_bytes, "the directory")?;
        let checksum_bytes = size_of::<ChecksumHeader>()
            + (model.dense.len() + experts) * size_of::<ExtentSum>()
            + (embedding_bytes / PAGE as u64) as usize * size_of::<u32>();
        header.checksums = extent(&mut at, checksum_bytes, "the checksum table")?;
        header.tokenizer = extent(&mut at, tokenizer.len(), "the tokenizer")?;

        let matrices = place_dense(&model.dense, &mut at);
        header.dense = Range { file: padded(header.tokenizer.file + tokenizer.len() as u64), bytes: 0 };
        header.dense.bytes = at - header.dense.file;
        header.embedding = Range { file: at, bytes: embedding_bytes };
        at += embedding_bytes;
        header.experts = Range { file: at, bytes: 0 };
        let layers = place_experts(model, &mut at)?;
        header.experts.bytes = at - header.experts.file;
        header.file_bytes = at;
        header.record_bytes = layers.iter().map(|layer| layer.record_bytes).max().unwrap_or(0);
        header.sparse_layers = layers.len() as u32;
        header.experts_per_layer = layers.iter().map(|layer| layer.experts).max().unwrap_or(0);

        let mut directory = Vec::with_capacity(directory_bytes);
        let head = DirectoryHeader {
            layers: layers.len() as u32,
            matrices: matrices.len() as u32,
            permutations: experts as u32,
            row_bytes: u32::try_from(row_bytes)
                .map_err(|_| too_large("an embedding row", row_bytes as u64))?,
            dense: header.dense,
            embedding: header.embedding,
            embedding_format: model.embedding.format.to_bytes(),
        };
        directory.extend(head.as_bytes());
        directory.extend(layers.as_bytes());
        directory.extend(matrices.as_bytes());
        for index in 0..layers.len() {
            directory.extend(order.positions(index).as_bytes());
        }
        Ok(Self { header, recipe, directory, tokenizer, matrices, layers, row_bytes })
    }
}

fn place_dense(dense: &[Dense], at: &mut u64) -> Vec<MatrixEntry> {
    let place = |dense: &Dense| {
        let bytes = padded(matrix_bytes(&dense.matrix));
        let file = *at;
        *at += bytes;
        MatrixEntry {
            role: dense.role as u16,
            layer: dense.layer,
            k: dense.matrix.k,
            n: dense.matrix.n,
            reserved: 0,
            file,
            bytes,
            format: dense.matrix.format.to_bytes(),
        }
    };
    dense.iter().map(place).collect()
}

fn place_experts(model: &Model, at: &mut u64) -> Result<Vec<LayerEntry>> {
    let mut permutation = 0;
    let mut place = |layer: &crate::model::SparseLayer| {
        let ([gate, up, down], record_bytes) = record(&layer.record(0))?;
        let entry = LayerEntry {
            layer: layer.layer,
            experts: layer.experts,
            file: *at,
            record_bytes,
            permutation,
            reserved: 0,
            gate,
            up,
            down,
        };
        *at += u64::from(layer.experts) * record_bytes;
        permutation += layer.experts;
        Ok(entry)
    };
    model.sparse.iter().map(&mut place).collect()
}
