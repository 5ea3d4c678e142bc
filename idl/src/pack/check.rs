//! The checks of a directory, the same for packer, host and firmware.
//!
//! A checksum says that bytes are those that were written, not that whoever wrote them meant well: a pack can be sealed
//! around any numbers. Everything that follows from the format alone is checked here: tables end to end, nothing beside
//! its range, nothing twice, sizes that fit their shapes. [`Directory::check_tables`] needs no header, for the firmware is
//! given none; [`Directory::check`] holds the header against the tables, which is what makes W_e, and with it the bound
//! that a user sets on the arena, worth believing. What the recipe implies (which roles there are, and their shapes)
//! stays with the firmware, which alone reads recipes.
//!
//! The cost is bounded by [`MAX_LAYERS`], [`MAX_EXPERTS`] and the roles, whatever the counts say: each (layer, role) may
//! stand once, so matrices beyond `layers · 32` meet a repetition, and layers ascend.

use super::{Directory, DirectoryHeader, Header, LayerEntry, MatrixEntry, NO_LAYER, Part, Range};
use crate::address::{PAGE, TILE};
use crate::format::{FormatBytes, VECTOR};
use crate::recipe::MAX_LAYERS;
use core::fmt;
use core::mem::offset_of;

/// Most experts of a layer.
pub const MAX_EXPERTS: usize = 4096;
/// Bytes of the largest expert record: one load holds it.
pub const MAX_RECORD: u64 = 1 << 30;
/// Inputs of a matrix are below this, so that a strip's bytes fit 32 bits in every codec.
pub const MAX_INPUTS: u32 = 1 << 24;
/// Role numbers are below this.
const MAX_ROLES: u16 = 32;

const PAGE_BYTES: u64 = PAGE as u64;

/// Where a directory is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryTable {
    /// The pack's header, which says something else; the index is the field's byte offset.
    Header,
    /// The head of the directory; the index is 0.
    Head,
    /// The layer table.
    Layers,
    /// The matrix table.
    Matrices,
    /// The permutation table.
    Permutations,
}

/// The first thing that is wrong with a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryFault {
    /// The table.
    pub table: DirectoryTable,
    /// The entry in it; the number of entries where one is missing.
    pub index: usize,
    /// What it breaks, in words that follow the entry's name.
    pub what: &'static str,
}

impl DirectoryFault {
    const fn new(table: DirectoryTable, index: usize, what: &'static str) -> Self {
        Self { table, index, what }
    }

    /// The byte of the pack that it is about.
    #[must_use]
    pub fn offset(&self, directory: &Directory<'_>, header: &Header) -> u64 {
        let layers = size_of::<DirectoryHeader>();
        let matrices = layers + directory.layers.len() * size_of::<LayerEntry>();
        let permutations = matrices + directory.matrices.len() * size_of::<MatrixEntry>();
        let at = match self.table {
            DirectoryTable::Header => return self.index as u64,
            DirectoryTable::Head => 0,
            DirectoryTable::Layers => layers + self.index * size_of::<LayerEntry>(),
            DirectoryTable::Matrices => matrices + self.index * size_of::<MatrixEntry>(),
            DirectoryTable::Permutations => permutations + self.index * size_of::<u16>(),
        };
        header.directory.file.saturating_add(at as u64)
    }
}

impl fmt::Display for DirectoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, what, .. } = self;
        match self.table {
            DirectoryTable::Header => write!(f, "the pack's header {what}"),
            DirectoryTable::Head => write!(f, "the head of the directory {what}"),
            DirectoryTable::Layers => write!(f, "entry {index} of the layer table {what}"),
            DirectoryTable::Matrices => write!(f, "entry {index} of the matrix table {what}"),
            DirectoryTable::Permutations => write!(f, "entry {index} of the permutation table {what}"),
        }
    }
}

impl Directory<'_> {
    /// Checks the tables and that the header says the same.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, header: &Header) -> Result<(), DirectoryFault> {
        self.check_tables()?;
        let (mut records, mut largest, mut most) = (0, 0, 0);
        for layer in self.layers.iter() {
            // Neither overflows: the tables were checked.
            records += layer.record_bytes * u64::from(layer.experts);
            largest = largest.max(layer.record_bytes);
            most = most.max(layer.experts);
        }
        let experts =
            Range { file: self.header.embedding.file + self.header.embedding.bytes, bytes: records };
        let same = [
            (header.dense == self.header.dense, offset_of!(Header, dense), "has another dense range"),
            (
                header.embedding == self.header.embedding,
                offset_of!(Header, embedding),
                "has another embedding range",
            ),
            (header.experts == experts, offset_of!(Header, experts), "has another range of expert records"),
            (
                header.record_bytes == largest,
                offset_of!(Header, record_bytes),
                "states another size of the largest expert record",
            ),
            (
                header.sparse_layers as usize == self.layers.len(),
                offset_of!(Header, sparse_layers),
                "states another number of layers with experts",
            ),
            (
                header.experts_per_layer == most,
                offset_of!(Header, experts_per_layer),
                "states another number of experts",
            ),
        ];
        match same.into_iter().find(|(same, ..)| !same) {
            Some((_, field, what)) => Err(DirectoryFault::new(DirectoryTable::Header, field, what)),
            None => Ok(()),
        }
    }

    /// Checks what the tables say by themselves and about each other.
    ///
    /// # Errors
    /// The first fault.
    pub fn check_tables(&self) -> Result<(), DirectoryFault> {
        let experts = self.check_head()?;
        self.check_matrices()?;
        self.check_layers(experts)
    }

    /// Checks the ranges and the embedding; where the expert records begin.
    fn check_head(&self) -> Result<u64, DirectoryFault> {
        let fault = |what| DirectoryFault::new(DirectoryTable::Head, 0, what);
        let DirectoryHeader { dense, embedding, row_bytes, embedding_format, .. } = self.header;
        let end = |range: Range, what| {
            let whole = range.file.is_multiple_of(PAGE_BYTES) && range.bytes.is_multiple_of(PAGE_BYTES);
            range.file.checked_add(range.bytes).filter(|_| whole).ok_or(fault(what))
        };
        let dense_end = end(dense, "has a dense range that is not whole pages")?;
        let experts = end(embedding, "has an embedding range that is not whole pages")?;
        if embedding.file != dense_end {
            return Err(fault("has an embedding that does not begin where the dense matrices end"));
        }
        if row_bytes == 0 || !row_bytes.is_multiple_of(16) || embedding_format.check().is_none() {
            return Err(fault("describes embedding rows that do not exist"));
        }
        Ok(experts)
    }

    /// Matrices ascend without gaps, fill the dense range, have the sizes of their shapes, and stand once.
    fn check_matrices(&self) -> Result<(), DirectoryFault> {
        let dense = self.header.dense;
        let mut roles = [0u32; MAX_LAYERS + 1];
        let mut at = dense.file;
        for (index, matrix) in self.matrices.iter().enumerate() {
            let fault = |what| DirectoryFault::new(DirectoryTable::Matrices, index, what);
            let MatrixEntry { role, layer, k, n, file, bytes, format, .. } = matrix;
            let layer = if layer == NO_LAYER { MAX_LAYERS } else { usize::from(layer) };
            let known = (1..MAX_ROLES).contains(&role) && (layer < MAX_LAYERS || matrix.layer == NO_LAYER);
            if !known {
                return Err(fault("has no role or layer that exists"));
            }
            if roles[layer] >> role & 1 == 1 {
                return Err(fault("stands there twice"));
            }
            roles[layer] |= 1 << role;
            if file != at {
                return Err(fault("does not begin where the one before it ends"));
            }
            let stored = stored_bytes(&format, k, n).ok_or(fault("has a shape or format that is none"))?;
            if stored.next_multiple_of(PAGE_BYTES) != bytes {
                return Err(fault("has another size than its shape and format give"));
            }
            let end = at.checked_add(bytes).filter(|&end| end - dense.file <= dense.bytes);
            at = end.ok_or(fault("leaves the dense range"))?;
        }
        if at - dense.file != dense.bytes {
            let missing = "is missing: the dense range goes on";
            return Err(DirectoryFault::new(DirectoryTable::Matrices, self.matrices.len(), missing));
        }
        Ok(())
    }

    /// Layers ascend, their records lie end to end from `experts` on, and so do their permutations in the table.
    fn check_layers(&self, experts: u64) -> Result<(), DirectoryFault> {
        let (mut at, mut next, mut position) = (experts, 0, 0);
        for (index, layer) in self.layers.iter().enumerate() {
            let fault = |what| DirectoryFault::new(DirectoryTable::Layers, index, what);
            let LayerEntry { record_bytes, permutation, .. } = layer;
            let count = layer.experts as usize;
            if !(next..MAX_LAYERS as u32).contains(&layer.layer) {
                return Err(fault("names a layer out of order, or none that exists"));
            }
            next = layer.layer + 1;
            if !(1..=MAX_EXPERTS).contains(&count) {
                return Err(fault("has no experts, or more than are possible"));
            }
            if !(1..=MAX_RECORD).contains(&record_bytes) || !record_bytes.is_multiple_of(PAGE_BYTES) {
                return Err(fault("has records of no possible size"));
            }
            if layer.file != at {
                return Err(fault("does not begin where the records before it end"));
            }
            let end = at.checked_add(record_bytes * count as u64);
            at = end.ok_or(fault("has records beyond any file"))?;
            check_parts(&layer).map_err(fault)?;
            if permutation as usize != position {
                return Err(fault("has a permutation that does not begin where the one before it ends"));
            }
            self.check_permutation(position, count)?;
            position += count;
        }
        if position != self.permutations.len() {
            let more = "belongs to no layer";
            return Err(DirectoryFault::new(DirectoryTable::Permutations, position, more));
        }
        Ok(())
    }

    /// `count` entries from `first` on are a permutation of 0..count.
    fn check_permutation(&self, first: usize, count: usize) -> Result<(), DirectoryFault> {
        let mut seen = [0u64; MAX_EXPERTS / 64];
        for index in first..first + count {
            let fault = |what| DirectoryFault::new(DirectoryTable::Permutations, index, what);
            let place = self.permutations.get(index).ok_or(fault("is missing"))?;
            let (word, bit) = (usize::from(place) / 64, place % 64);
            if usize::from(place) >= count || seen[word] >> bit & 1 == 1 {
                return Err(fault("is out of range or a repetition: the order is no permutation"));
            }
            seen[word] |= 1 << bit;
        }
        Ok(())
    }
}

/// The parts of a record fit each other's shapes, lie in it and do not overlap.
fn check_parts(layer: &LayerEntry) -> Result<(), &'static str> {
    let LayerEntry { gate, up, down, record_bytes, .. } = layer;
    if (gate.k, gate.n) != (up.k, up.n) || (gate.k, gate.n) != (down.n, down.k) {
        return Err("has gate, up and down whose shapes do not fit");
    }
    let range = |part: &Part| {
        let stored = stored_bytes(&part.format, part.k, part.n).filter(|_| part.n > 0);
        let from = u64::from(part.offset);
        let end = from.checked_add(stored.ok_or("has a part whose shape or format is none")?);
        let end = end.filter(|end| end <= record_bytes && from.is_multiple_of(VECTOR as u64));
        Ok::<_, &'static str>((from, end.ok_or("has a part that is not aligned in its record or leaves it")?))
    };
    let parts = [range(gate)?, range(up)?, range(down)?];
    let apart = |a: usize, b: usize| parts[a].1 <= parts[b].0 || parts[b].1 <= parts[a].0;
    if apart(0, 1) && apart(0, 2) && apart(1, 2) { Ok(()) } else { Err("has parts that overlap") }
}

/// Bytes of a matrix of `k` inputs and `n` outputs (0: a vector of f32), without padding to a page.
fn stored_bytes(format: &FormatBytes, k: u32, n: u32) -> Option<u64> {
    let format = format.check()?;
    if !(1..MAX_INPUTS).contains(&k) {
        return None;
    }
    match n {
        0 => Some(4 * u64::from(k)),
        _ => (format.strip(k as usize).bytes as u64).checked_mul(u64::from(n).div_ceil(TILE as u64)),
    }
}

#[cfg(test)]
mod tests;
