//! Tensors by name and shape, with a tick for each one used: what stays unticked is not understood.

use super::Matrix;
use crate::encode;
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gguf::types::GgmlType;
use estream_idl::format::{Codec, Format};

/// How many names an error lists where the list only illustrates.
const LISTED: usize = 8;

pub(super) struct Tensors<'a> {
    gguf: &'a Gguf<'a>,
    used: Vec<bool>,
    /// Every tensor whose type has no codec.
    refused: Vec<usize>,
}

impl<'a> Tensors<'a> {
    pub(super) fn new(gguf: &'a Gguf<'a>) -> Self {
        Self { gguf, used: vec![false; gguf.tensors.len()], refused: Vec::new() }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.gguf.find(name).is_some()
    }

    fn find(&self, name: &str) -> Result<usize> {
        self.gguf
            .find(name)
            .ok_or_else(|| Error::input("missing-tensor", "the model lacks this tensor").of(name))
    }

    /// Where a tensor's record or data is wrong.
    fn refused(&self, index: usize, code: &'static str, message: String) -> Error {
        let tensor = &self.gguf.tensors[index];
        let error = Error::input(code, message).of(&tensor.name).at(tensor.data);
        error.in_source(self.gguf.source_of(tensor))
    }

    /// Ticks the tensor off, whose shape must be `wanted`, and says how it is stored.
    pub(super) fn take(
        &mut self,
        name: &str,
        wanted: [u64; 4],
        format: impl Fn(&GgmlType) -> Option<Format>,
    ) -> Result<(usize, Format)> {
        let index = self.find(name)?;
        let tensor = &self.gguf.tensors[index];
        if tensor.dims != wanted {
            let message =
                format!("its shape is {}, the keys say {}", tensor.shape(), crate::gguf::shape(&wanted));
            return Err(self.refused(index, "bad-shape", message));
        }
        let first = !std::mem::replace(&mut self.used[index], true);
        let format = format(tensor.ggml);
        if format.is_none() && first {
            self.refused.push(index);
        }
        Ok((index, format.unwrap_or(Format::F32)))
    }

    /// Takes the tensor, which must be stored as `like` is.
    pub(super) fn take_alike(&mut self, name: &str, wanted: [u64; 4], like: usize) -> Result<usize> {
        let (index, _) = self.take(name, wanted, matrix_format)?;
        let (this, first) = (&self.gguf.tensors[index], &self.gguf.tensors[like]);
        if this.ggml == first.ggml {
            return Ok(index);
        }
        let message = format!(
            "its type is {}, that of {} is {}: the experts of a layer are stored alike",
            this.ggml.name, first.name, first.ggml.name
        );
        Err(self.refused(index, "mixed-experts", message))
    }

    /// Rows of a two-dimensional tensor.
    pub(super) fn rows(&self, name: &str) -> Result<u64> {
        Ok(self.gguf.tensors[self.find(name)?].dims[1])
    }

    /// Elements of a vector.
    pub(super) fn rows_of_vector(&self, name: &str) -> Result<u64> {
        Ok(self.gguf.tensors[self.find(name)?].dims[0])
    }

    pub(super) fn matrix(&mut self, name: &str, k: u32, n: u32) -> Result<Matrix> {
        self.stacked(name, k, n, 1)
    }

    /// A matrix of `count` blocks of `n` outputs, one after the other in the tensor's third dimension.
    pub(super) fn stacked(&mut self, name: &str, k: u32, n: u32, count: u32) -> Result<Matrix> {
        let (tensor, format) = self.take(name, [k.into(), n.into(), count.into(), 1], matrix_format)?;
        let n = n.checked_mul(count).ok_or_else(|| {
            Error::input("size-overflow", format!("size overflow: {count} blocks of {n} rows")).of(name)
        })?;
        Ok(Matrix { tensor, first_row: 0, run: n, stride: 0, k, n, format })
    }

    /// A vector of plain elements, which the pack stores in f32.
    pub(super) fn vector(&mut self, name: &str, k: u32) -> Result<Matrix> {
        self.rows_as_vector(name, k, 1)
    }

    /// A small tensor of `rows` rows of plain elements, kept as one vector.
    pub(super) fn rows_as_vector(&mut self, name: &str, k: u32, rows: u32) -> Result<Matrix> {
        let plain = |ggml: &GgmlType| {
            let format = matrix_format(ggml).filter(|format| format.codec == Codec::F16);
            format.and(Some(Format::F32))
        };
        let (tensor, format) = self.take(name, [k.into(), rows.into(), 1, 1], plain)?;
        let k = k.checked_mul(rows).ok_or_else(|| {
            Error::input("size-overflow", format!("size overflow: {rows} rows of {k} elements")).of(name)
        })?;
        Ok(Matrix { tensor, first_row: 0, run: 1, stride: 0, k, n: 0, format })
    }

    /// Refuses a file with types that have no codec (naming every tensor) or with tensors that nothing used.
    pub(super) fn finish(&self) -> Result<()> {
        let name = |index: usize| &self.gguf.tensors[index].name;
        if let Some(&first) = self.refused.first() {
            let all: Vec<String> = (self.refused.iter())
                .map(|&index| format!("{} ({})", name(index), self.gguf.tensors[index].ggml.name))
                .collect();
            let types: Vec<&str> = encode::type_names().collect();
            let message = format!(
                "{} tensors have types that cannot be packed (possible are {}; for norms F32, F16 and BF16): {}",
                all.len(),
                types.join(", "),
                all.join(", ")
            );
            return Err(Error::input("unsupported-type", message).of(name(first)));
        }
        let unused: Vec<&str> = (0..self.used.len())
            .filter(|&index| !self.used[index])
            .map(|index| name(index).as_str())
            .collect();
        match unused.first() {
            None => Ok(()),
            Some(first) => {
                let listed = unused[..unused.len().min(LISTED)].join(", ");
                let message =
                    format!("{} tensors have no place in this architecture: {listed}", unused.len());
                Err(Error::input("unknown-tensor", message).of(first))
            }
        }
    }
}

/// The pack's storage of a matrix of this type.
pub(super) fn matrix_format(ggml: &GgmlType) -> Option<Format> {
    encode::encoding(ggml).map(|encoding| encoding.format)
}
