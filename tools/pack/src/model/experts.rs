//! Where the experts' matrices stand: files lay them out in three ways, and the pack is the same for all.
//!
//! Today's converters stack the experts of a layer in one tensor a projection. Some architectures fuse gate and up, each
//! expert's gate rows before its up rows. Files of Mixtral's first months have one tensor an expert.

use super::Matrix;
use super::tensors::{Tensors, matrix_format};
use crate::error::Result;
use estream_idl::format::Format;

/// One of an expert's three matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Projection {
    Gate,
    Up,
    Down,
}

/// One projection of all experts of a layer.
#[derive(Clone, Debug)]
pub struct ExpertMatrix {
    /// Inputs.
    pub k: u32,
    /// Outputs.
    pub n: u32,
    /// Storage in the pack.
    pub format: Format,
    /// Where the experts' rows stand.
    pub place: Place,
}

/// Where the rows of a projection stand.
#[derive(Clone, Debug)]
pub enum Place {
    /// In one tensor: those of expert e begin at row `first + e·stride`.
    Stacked {
        /// Number of the tensor.
        tensor: usize,
        /// First row of expert 0.
        first: u64,
        /// Rows from one expert to the next.
        stride: u64,
    },
    /// In one tensor an expert, by their numbers.
    Each(Vec<usize>),
}

impl ExpertMatrix {
    /// The matrix of `expert`, which is below the layer's count.
    #[must_use]
    pub fn of(&self, expert: u32) -> Matrix {
        let (tensor, first_row) = match &self.place {
            Place::Stacked { tensor, first, stride } => (*tensor, first + u64::from(expert) * stride),
            Place::Each(tensors) => (tensors[expert as usize], 0),
        };
        Matrix { tensor, first_row, run: self.n, stride: 0, k: self.k, n: self.n, format: self.format }
    }
}

impl Tensors<'_> {
    /// A projection of the experts of layer `layer`, in whichever way the file lays it out.
    pub(super) fn experts(
        &mut self,
        layer: usize,
        projection: Projection,
        k: u32,
        n: u32,
        experts: u32,
    ) -> Result<ExpertMatrix> {
        let part = match projection {
            Projection::Gate => "ffn_gate",
            Projection::Up => "ffn_up",
            Projection::Down => "ffn_down",
        };
        let stacked = format!("blk.{layer}.{part}_exps.weight");
        let fused = format!("blk.{layer}.ffn_gate_up_exps.weight");
        let each = |expert: u32| format!("blk.{layer}.{part}.{expert}.weight");
        let (columns, rows, count) = (u64::from(k), u64::from(n), u64::from(experts));
        let (format, place) = if !self.has(&stacked) && projection != Projection::Down && self.has(&fused) {
            let (tensor, format) = self.take(&fused, [columns, 2 * rows, count, 1], matrix_format)?;
            let first = if projection == Projection::Up { rows } else { 0 };
            (format, Place::Stacked { tensor, first, stride: 2 * rows })
        } else if !self.has(&stacked) && self.has(&each(0)) {
            let (first, format) = self.take(&each(0), [columns, rows, 1, 1], matrix_format)?;
            let mut tensors = vec![first];
            for expert in 1..experts {
                tensors.push(self.take_alike(&each(expert), [columns, rows, 1, 1], first)?);
            }
            (format, Place::Each(tensors))
        } else {
            let (tensor, format) = self.take(&stacked, [columns, rows, count, 1], matrix_format)?;
            (format, Place::Stacked { tensor, first: 0, stride: rows })
        };
        Ok(ExpertMatrix { k, n, format, place })
    }
}
