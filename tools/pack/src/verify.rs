//! Every checksum of a pack, in one pass over the file.

use crate::convert::Progress;
use crate::error::{Error, Result};
use crate::pack_file::{PackFile, matrix_name, stored_order};
use crate::source::Source;
use estream_idl::address::PAGE;
use serde::Serialize;
use std::path::Path;

const CHUNK_BYTES: usize = 4 << 20;

/// A pack whose every byte was checked.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Verified {
    /// Bytes of the file, all of them covered.
    pub file_bytes: u64,
    /// Dense matrices and expert records.
    pub extents: u64,
    /// Pages of the embedding.
    pub embedding_pages: u64,
}

/// Checks structure and every checksum of the pack at `path`.
///
/// # Errors
/// `checksum` names the damaged extent and its offset; others say what else is wrong with the file.
pub fn verify(path: &Path, progress: Progress<'_>) -> Result<Verified> {
    let pack = PackFile::open(path)?;
    check(&pack, progress).map_err(|error| error.in_file(path))
}

fn check(pack: &PackFile, progress: Progress<'_>) -> Result<Verified> {
    let header = &pack.header;
    let checksums = pack.checksums()?;
    let mut done = header.dense.file;
    let mut buffer = vec![0; CHUNK_BYTES];
    for sum in checksums.extents.iter() {
        let (mut crc, mut at) = (0, sum.file);
        while at < sum.file + sum.bytes {
            let piece = &mut buffer[..CHUNK_BYTES.min((sum.file + sum.bytes - at) as usize)];
            pack.file.read_at(at, piece).map_err(|error| Error::read(&error, at))?;
            crc = crc32c::crc32c_append(crc, piece);
            at += piece.len() as u64;
            done += piece.len() as u64;
            progress(done, header.file_bytes);
        }
        if crc != sum.crc {
            let message = format!("{} is damaged: its checksum differs", name(pack, sum.file)?);
            return Err(Error::input("checksum", message).at(sum.file));
        }
    }
    let mut pages = checksums.embedding_pages.iter();
    let mut at = header.embedding.file;
    while at < header.embedding.file + header.embedding.bytes {
        let left = header.embedding.file + header.embedding.bytes - at;
        let piece = &mut buffer[..CHUNK_BYTES.min(left as usize)];
        pack.file.read_at(at, piece).map_err(|error| Error::read(&error, at))?;
        for page in piece.chunks_exact(PAGE) {
            if pages.next() != Some(crc32c::crc32c(page)) {
                let number = (at - header.embedding.file) / PAGE as u64;
                let message = format!("page {number} of the embedding is damaged: its checksum differs");
                return Err(Error::input("checksum", message).at(at));
            }
            at += PAGE as u64;
        }
        done += piece.len() as u64;
        progress(done, header.file_bytes);
    }
    Ok(Verified {
        file_bytes: header.file_bytes,
        extents: checksums.extents.len() as u64,
        embedding_pages: checksums.embedding_pages.len() as u64,
    })
}

/// What stands at `file`, in words.
fn name(pack: &PackFile, file: u64) -> Result<String> {
    let directory = pack.directory()?;
    if let Some(matrix) = directory.matrices.iter().find(|matrix| matrix.file == file) {
        return Ok(matrix_name(&matrix));
    }
    let holds = |file: u64, first: u64, bytes: u64| file >= first && file - first < bytes;
    let layer = directory
        .layers
        .iter()
        .find(|layer| holds(file, layer.file, u64::from(layer.experts) * layer.record_bytes));
    Ok(match layer {
        Some(layer) => {
            let position = (file - layer.file) / layer.record_bytes;
            let expert =
                stored_order(&directory, &layer).and_then(|order| order.get(position as usize).copied());
            let expert = expert.map_or_else(|| "?".to_owned(), |expert| expert.to_string());
            format!("the record of expert {expert} (position {position}) of layer {}", layer.layer)
        }
        None => format!("the extent at byte {file}"),
    })
}
