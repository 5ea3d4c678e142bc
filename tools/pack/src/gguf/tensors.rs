//! Tensor records: shapes and places that were checked before anyone computes with them.

use super::cursor::Cursor;
use super::types::{self, GgmlType};
use crate::error::{Error, Result};

/// Bytes of a tensor's name; ggml itself keeps 64.
const NAME_LIMIT: usize = 512;
const MAX_DIMENSIONS: u32 = 4;

/// A tensor of the file.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Extents, the contiguous one first; missing ones are 1.
    pub dims: [u64; 4],
    /// Its type.
    pub ggml: &'static GgmlType,
    /// Which file of a split model holds it, from 0.
    pub shard: usize,
    /// Byte offset of its data in that file.
    pub data: u64,
    /// Bytes of its data.
    pub bytes: u64,
    /// Byte offset of its record in the metadata.
    pub(super) record: u64,
}

impl Tensor {
    /// Elements.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Bytes of one row, the contiguous extent.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        self.ggml.row_bytes(self.dims[0])
    }

    /// The extents without trailing ones, as people write shapes.
    #[must_use]
    pub fn shape(&self) -> String {
        shape(&self.dims)
    }

    pub(super) fn parse(cursor: &mut Cursor<'_>, index: u64, alignment: u64) -> Result<Self> {
        let record = cursor.position();
        cursor.part = format!("tensor record {index}");
        let name = cursor.kept_string(NAME_LIMIT)?;
        let refused = |code, message: String| Error::input(code, message).of(&name).at(record);
        let count = cursor.u32()?;
        if !(1..=MAX_DIMENSIONS).contains(&count) {
            return Err(refused(
                "bad-shape",
                format!("{count} dimensions; 1 to {MAX_DIMENSIONS} are possible"),
            ));
        }
        let mut dims = [1; 4];
        for dim in &mut dims[..count as usize] {
            *dim = cursor.u64()?;
        }
        let (number, offset) = (cursor.u32()?, cursor.u64()?);
        let Some(ggml) = types::find(number) else {
            return Err(match types::removed(number) {
                Some(old) => refused(
                    "removed-type",
                    format!("type {number} ({old}) was removed from ggml: quantise the model again"),
                ),
                None => refused("unknown-type", format!("type {number} is not known")),
            });
        };
        if dims.contains(&0) {
            return Err(refused("bad-shape", format!("an extent of {} is zero", shape(&dims))));
        }
        let overflow =
            || refused("size-overflow", format!("size overflow: {} of {}", shape(&dims), ggml.name));
        let elements =
            dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim)).ok_or_else(overflow)?;
        if !dims[0].is_multiple_of(ggml.block) {
            let message = format!("rows of {} are not whole {} blocks of {}", dims[0], ggml.name, ggml.block);
            return Err(refused("bad-shape", message));
        }
        let bytes = (elements / ggml.block).checked_mul(ggml.bytes).ok_or_else(overflow)?;
        if !offset.is_multiple_of(alignment) {
            let message = format!("its data offset {offset} is not a multiple of the alignment {alignment}");
            return Err(refused("bad-offset", message));
        }
        Ok(Self { dims, ggml, shard: 0, data: offset, bytes, record, name })
    }
}

/// Whether a record was refused for its type alone: the cursor then stands behind it.
pub(super) fn is_of_type(error: &Error) -> bool {
    matches!(error.code, "removed-type" | "unknown-type")
}

pub(crate) fn shape(dims: &[u64]) -> String {
    let used = dims.iter().rposition(|&dim| dim != 1).map_or(1, |last| last + 1);
    let parts: Vec<String> = dims[..used].iter().map(u64::to_string).collect();
    format!("[{}]", parts.join(", "))
}

/// Turns offsets in the data area into offsets in the file, and refuses data outside the file or shared by two tensors.
pub(super) fn place(tensors: &mut [Tensor], data: u64, file_bytes: u64) -> Result<()> {
    for tensor in &mut *tensors {
        let overflow = || {
            let message = format!("size overflow: data of {} bytes at offset {}", tensor.bytes, tensor.data);
            Error::input("size-overflow", message).of(&tensor.name).at(tensor.record)
        };
        let first = data.checked_add(tensor.data).ok_or_else(overflow)?;
        let end = first.checked_add(tensor.bytes).ok_or_else(overflow)?;
        if end > file_bytes {
            let message = format!("its data is bytes {first} to {end}, and the file ends at {file_bytes}");
            return Err(Error::input("truncated", message).of(&tensor.name).at(file_bytes));
        }
        tensor.data = first;
    }
    let mut order: Vec<&Tensor> = tensors.iter().collect();
    order.sort_by_key(|tensor| tensor.data);
    for pair in order.windows(2) {
        if pair[0].data + pair[0].bytes > pair[1].data {
            let message = format!("its data overlaps that of {:?}", pair[0].name);
            return Err(Error::input("overlap", message).of(&pair[1].name).at(pair[1].data));
        }
    }
    Ok(())
}
