//! Tensors by name and shape, with a tick for each one used: what stays unticked is not understood.

use super::Matrix;
use crate::encode;
use crate::error::{Error, Result};
use crate::gguf::{Gguf, types};
use estream_idl::format::Format;

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

    fn find(&self, name: &str) -> Result<usize> {
        self.gguf.find(name).ok_or_else(|| {
            if let Some(layer) = name.strip_suffix("_exps.weight") {
                let old = format!("{layer}.0.weight");
                if self.gguf.find(&old).is_some() {
                    let message = "one tensor an expert, the layout of early 2024: convert the model again";
                    return Error::input("old-layout", message).of(&old);
                }
            }
            Error::input("missing-tensor", "the model lacks this tensor").of(name)
        })
    }

    fn take(
        &mut self,
        name: &str,
        wanted: [u64; 4],
        format: impl Fn(u32) -> Option<Format>,
    ) -> Result<(usize, Format)> {
        let index = self.find(name)?;
        let tensor = &self.gguf.tensors[index];
        if tensor.dims != wanted {
            let message =
                format!("its shape is {}, the keys say {}", tensor.shape(), crate::gguf::shape(&wanted));
            return Err(Error::input("bad-shape", message).of(name).at(tensor.data));
        }
        self.used[index] = true;
        Ok((
            index,
            format(tensor.ggml.id).unwrap_or_else(|| {
                self.refused.push(index);
                Format::F32
            }),
        ))
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
        let (tensor, format) = self.take(name, [k.into(), n.into(), 1, 1], encode::format_of)?;
        Ok(Matrix { tensor, k, n, format })
    }

    pub(super) fn experts(&mut self, name: &str, k: u32, n: u32, experts: u32) -> Result<Matrix> {
        let (tensor, format) = self.take(name, [k.into(), n.into(), experts.into(), 1], encode::format_of)?;
        Ok(Matrix { tensor, k, n, format })
    }

    /// A router: routing is decided in f32, so its weights must be.
    pub(super) fn router(&mut self, name: &str, k: u32, n: u32) -> Result<Matrix> {
        let (tensor, format) = self.take(name, [k.into(), n.into(), 1, 1], single)?;
        Ok(Matrix { tensor, k, n, format })
    }

    pub(super) fn vector(&mut self, name: &str, k: u32) -> Result<Matrix> {
        let (tensor, format) = self.take(name, [k.into(), 1, 1, 1], single)?;
        Ok(Matrix { tensor, k, n: 0, format })
    }

    /// Refuses a file with types that have no codec (naming every tensor) or with tensors that nothing used.
    pub(super) fn finish(&self) -> Result<()> {
        let name = |index: usize| &self.gguf.tensors[index].name;
        if let Some(&first) = self.refused.first() {
            let all: Vec<String> = (self.refused.iter())
                .map(|&index| format!("{} ({})", name(index), self.gguf.tensors[index].ggml.name))
                .collect();
            let message = format!(
                "{} tensors have types that cannot be packed (matrices: F32, F16, BF16, Q4_0, Q8_0, Q6_K; norms and \
                 routers: F32): {}",
                all.len(),
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

fn single(ggml: u32) -> Option<Format> {
    (ggml == types::F32).then_some(Format::F32)
}
