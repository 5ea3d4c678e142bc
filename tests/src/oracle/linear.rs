//! Rows of f64 against weights of f32: product, norm, softmax, and the sharing of rows among threads.

use super::gguf::Values;

/// Lanes of a dot product, so that the compiler can use vectors: f64 needs no particular order.
const LANES: usize = 8;

/// `rows` of `width` numbers, end to end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rows {
    pub(super) data: Vec<f64>,
    pub(super) width: usize,
}

impl Rows {
    pub(super) fn zeros(rows: usize, width: usize) -> Self {
        Self { data: vec![0.0; rows * width], width }
    }

    pub(super) fn len(&self) -> usize {
        self.data.len() / self.width
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.data[row * self.width..][..self.width]
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut [f64]> {
        self.data.chunks_exact_mut(self.width)
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (sum, term) in self.data.iter_mut().zip(&other.data) {
            *sum += term;
        }
    }

    /// Calls `body(row, output)` for every row of a new matrix, the rows shared among threads.
    pub(super) fn compute(rows: usize, width: usize, body: impl Fn(usize, &mut [f64]) + Sync) -> Self {
        let mut out = Self::zeros(rows, width);
        out.share(|first, chunk| {
            for (row, output) in chunk.chunks_exact_mut(width).enumerate() {
                body(first + row, output);
            }
        });
        out
    }

    /// Calls `body(first row, rows)` for one contiguous share of the rows on each processor.
    fn share(&mut self, body: impl Fn(usize, &mut [f64]) + Sync) {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let each = self.len().div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            for (share, chunk) in self.data.chunks_mut(each * self.width).enumerate() {
                let body = &body;
                scope.spawn(move || body(share * each, chunk));
            }
        });
    }
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    let (mut left, mut right) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for (x, y) in left.by_ref().zip(right.by_ref()) {
        for lane in 0..LANES {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    let tail: f64 = left.remainder().iter().zip(right.remainder()).map(|(x, y)| x * y).sum();
    lanes.iter().sum::<f64>() + tail
}

/// `x` times matrix `index` of `weights`, whose rows are outputs.
pub(super) fn multiply(x: &Rows, weights: &Values, index: usize) -> Rows {
    let (inputs, outputs) = (weights.shape[0], weights.shape[1]);
    assert_eq!(x.width, inputs, "the product's inner dimensions differ");
    let matrix = &weights.data[index * inputs * outputs..][..inputs * outputs];
    let mut out = Rows::zeros(x.len(), outputs);
    out.share(|first, chunk| {
        let mut wide = vec![0.0; inputs];
        for (n, row) in matrix.chunks_exact(inputs).enumerate() {
            for (to, &from) in wide.iter_mut().zip(row) {
                *to = f64::from(from);
            }
            for (t, output) in chunk.chunks_exact_mut(outputs).enumerate() {
                output[n] = dot(x.row(first + t), &wide);
            }
        }
    });
    out
}

/// `x · rsqrt(mean(x²) + ε) · weight`, in place over slices of the weight's length.
pub(super) fn rms_norm(x: &mut [f64], weight: &[f32], epsilon: f64) {
    for slice in x.chunks_exact_mut(weight.len()) {
        let factor = 1.0 / (dot(slice, slice) / slice.len() as f64 + epsilon).sqrt();
        for (value, &w) in slice.iter_mut().zip(weight) {
            *value *= factor * f64::from(w);
        }
    }
}

pub(super) fn softmax(x: &mut [f64]) {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for value in &mut *x {
        *value = (*value - max).exp();
        sum += *value;
    }
    for value in x {
        *value /= sum;
    }
}
