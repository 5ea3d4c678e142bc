//! The engine's mixers: how the tokens of a layer see each other, added to the residual stream.

use crate::attention::Pass;
use crate::engine::{Engine, Fault};
use crate::kernels::Chain;
use crate::kernels::hexagon::rows::convolve;
use crate::latent;
use crate::linear::{Activations, Weights, product, strips};
use crate::model::{AttentionWeights, ConvolutionWeights, LatentWeights, Matrix, MixerWeights, Vector};
use crate::platform::working_for;
use crate::shared::Shared;
use crate::view::{Grid, Rows};
use core::ops::Range;
use estream_idl::operator::Operator;
use estream_idl::recipe::{Attention, Latent, Mixer};
use estream_idl::status::Status;

/// A dense matrix with its bytes.
pub(crate) fn weights<'s>(shared: &'s Shared<'_>, matrix: &Matrix) -> Result<Weights<'s>, Status> {
    Ok(Weights { format: matrix.format, k: matrix.k, bytes: shared.matrix(matrix)? })
}

/// Some strips of a dense matrix with their bytes.
pub(crate) fn some_strips<'s>(
    shared: &'s Shared<'_>,
    matrix: &Matrix,
    strips: &Range<usize>,
) -> Result<Weights<'s>, Status> {
    let bytes = matrix.format.strip(matrix.k).bytes;
    let at = |strip: usize| matrix.at + strip * bytes;
    Ok(Weights { format: matrix.format, k: matrix.k, bytes: shared.dense(at(strips.start)..at(strips.end))? })
}

impl Engine<'_> {
    /// Norms all rows of the residual stream into the side buffer, rows of `width`.
    pub(crate) fn norm(&mut self, weight: &Vector) -> Result<(), Fault> {
        let (width, tokens) = (self.model.recipe.width as usize, self.batch.tokens);
        let (kernels, epsilon) = (self.backend.kernels, self.model.recipe.epsilon);
        let weight = self.shared.vector(weight)?;
        let x = Rows::new(&self.work.x[..tokens * width], width);
        let out = Grid::new(&mut self.work.side[..tokens * width], width);
        working_for(Operator::Norm, || {
            self.pool.rows(out, 8, &mut [], &|first, mut block, _| {
                for row in 0..block.rows() {
                    kernels.rms_norm(x.row(first + row), weight, epsilon, block.row(row));
                }
            });
        });
        Ok(())
    }

    /// Runs the mixer of layer `index`.
    pub(crate) fn mixer(&mut self, index: usize, norm: &Vector, mixer: &MixerWeights) -> Result<(), Fault> {
        self.norm(norm)?;
        match (self.model.recipe.layer(index).mixer, mixer) {
            (Mixer::Attention(attention), MixerWeights::Attention(weights)) => {
                self.grouped(index, &attention, weights)?;
            }
            (Mixer::Latent(latent), MixerWeights::Latent(weights)) => self.latent(index, &latent, weights)?,
            (Mixer::Convolution(convolution), MixerWeights::Convolution(weights)) => {
                self.convolution(convolution.taps as usize, weights)?;
            }
            _ => return Err(Fault::Pass(Status::BadDirectory.into())),
        }
        self.traffic.pump()
    }

    /// Adds `out · rows`, rows of the side buffer, to the residual stream.
    fn project(&mut self, output: &Matrix) -> Result<(), Fault> {
        let (width, tokens) = (self.model.recipe.width as usize, self.batch.tokens);
        let rows = Rows::new(&self.work.side[..tokens * output.k], output.k);
        let x = Grid::new(&mut self.work.x[..tokens * width], width);
        let matrix = weights(&self.shared, output)?;
        let (backend, pool, packed) = (&self.backend, &self.pool, &mut *self.work.packed);
        let rows = Activations::pack(backend, pool, rows, output.k, &[output.format], packed);
        product(backend, pool, self.work.scratch, rows, matrix, 0, x, Chain::Continue);
        Ok(())
    }

    fn grouped(
        &mut self,
        index: usize,
        attention: &Attention,
        layer: &AttentionWeights,
    ) -> Result<(), Fault> {
        let (width, tokens, backend) = (self.model.recipe.width as usize, self.batch.tokens, &self.backend);
        let [heads, kv_heads] = [attention.heads as usize, attention.kv_heads as usize];
        let [key, value] = [attention.key_width as usize, attention.value_width as usize];
        let norms = match &layer.norms {
            None => None,
            Some((query, key)) => Some((self.shared.vector(query)?, self.shared.vector(key)?)),
        };
        let pass = Pass {
            kernels: backend.kernels,
            pool: &self.pool,
            attention,
            epsilon: self.model.recipe.epsilon,
            angles: &self.work.angles[usize::from(self.model.recipe.layers[index]) * self.angle_elements..],
            spans: self.batch.spans(),
        };
        let scratch = &mut *self.work.scratch;
        let side = Rows::new(&self.work.side[..tokens * width], width);
        let formats = [layer.query.format, layer.key.format, layer.value.format];
        let side = Activations::pack(backend, &self.pool, side, width, &formats, self.work.packed);

        let rows = &mut self.work.query[..tokens * kv_heads * key];
        let matrix = weights(&self.shared, &layer.key)?;
        product(backend, &self.pool, scratch, side, matrix, 0, Grid::new(rows, kv_heads * key), Chain::Start);
        pass.position(rows, kv_heads * key, norms.map(|(_, key)| key), scratch);
        pass.transpose_keys(rows, self.work.keys);

        let matrix = weights(&self.shared, &layer.value)?;
        let values = &mut self.work.values[..kv_heads * value * tokens];
        strips(backend, &self.pool, scratch, side, matrix, values);

        let rows = &mut self.work.query[..tokens * heads * key];
        let matrix = weights(&self.shared, &layer.query)?;
        product(backend, &self.pool, scratch, side, matrix, 0, Grid::new(rows, heads * key), Chain::Start);
        pass.position(rows, heads * key, norms.map(|(query, _)| query), scratch);
        self.traffic.pump()?;

        let attended = Grid::new(&mut self.work.side[..tokens * heads * value], heads * value);
        let queries = Rows::new(rows, heads * key);
        pass.attend(queries, self.work.keys, self.work.values, tokens, attended, scratch);
        self.project(&layer.output)
    }

    fn latent(&mut self, index: usize, mixer: &Latent, layer: &LatentWeights) -> Result<(), Fault> {
        let (width, tokens) = (self.model.recipe.width as usize, self.batch.tokens);
        let attention = latent::attention(mixer);
        let work = &mut self.work;
        let kind = usize::from(self.model.recipe.layers[index]);
        let operator = latent::Operator {
            backend: &self.backend,
            pass: Pass {
                kernels: self.backend.kernels,
                pool: &self.pool,
                attention: &attention,
                epsilon: self.model.recipe.epsilon,
                angles: &work.angles[kind * self.angle_elements..],
                spans: self.batch.spans(),
            },
            mixer,
            tokens,
            norm: self.shared.vector(&layer.norm)?,
            query: weights(&self.shared, &layer.query)?,
            latent: weights(&self.shared, &layer.latent)?,
            key: weights(&self.shared, &layer.key)?,
            value: weights(&self.shared, &layer.value)?,
        };
        let scratch = &mut *work.scratch;
        let side = Rows::new(&work.side[..tokens * width], width);
        operator.keys_and_values(side, work.latent, work.query, work.keys, work.values, work.packed, scratch);
        operator.queries(side, work.query, work.wide, work.packed, scratch);
        self.traffic.pump()?;
        operator.attend(work.query, work.wide, work.keys, work.values, work.side, work.packed, scratch);
        self.project(&layer.output)
    }

    fn convolution(&mut self, taps: usize, layer: &ConvolutionWeights) -> Result<(), Fault> {
        let (width, tokens, backend) = (self.model.recipe.width as usize, self.batch.tokens, &self.backend);
        let kernel = self.shared.vector(&layer.taps)?;
        let scratch = &mut *self.work.scratch;
        let side = Rows::new(&self.work.side[..tokens * width], width);
        let gates = &mut self.work.query[..tokens * 3 * width];
        let matrix = weights(&self.shared, &layer.input)?;
        let formats = [matrix.format];
        let side = Activations::pack(backend, &self.pool, side, width, &formats, self.work.packed);
        product(backend, &self.pool, scratch, side, matrix, 0, Grid::new(gates, 3 * width), Chain::Start);
        let gates = Rows::new(gates, 3 * width);
        let out = Grid::new(&mut self.work.side[..tokens * width], width);
        let spans = self.batch.spans();
        let position = |token: usize| crate::attention::locate(spans, token).1;
        let on_vectors = backend.matrix;
        working_for(Operator::Convolution, || {
            self.pool.rows(out, 8, &mut [], &|first, mut block, _| {
                if on_vectors {
                    return convolve(gates, first, &position, kernel, taps, &mut block);
                }
                for row in 0..block.rows() {
                    let token = first + row;
                    crate::convolution::row(gates, token, position(token), kernel, taps, block.row(row));
                }
            });
        });
        self.project(&layer.output)
    }
}
