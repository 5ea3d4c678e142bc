//! What is measured: peaks of memory, and each kernel at work on one thread.

use super::Row;
use estream::KernelSet;
use estream_dsp::attention::{Pass, SCRATCH, key_elements};
use estream_dsp::batch::RequestSpan;
use estream_dsp::kernels::peak::Peak;
use estream_dsp::kernels::{Backend, Chain, Decoded, Products, Strip};
use estream_dsp::pool::Pool;
use estream_dsp::view::{Block, Grid, Rows};
use estream_idl::format::Format;
use estream_idl::recipe::{Attention, QkNorm, Rope, RopePairs, RopeScaling};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Inputs of a strip.
const K: usize = 2048;
/// Rows of a product: an expert's share of a prompt of 512 tokens.
const ROWS: usize = 64;
/// Outputs of a strip.
const COLUMNS: usize = 32;
/// Bytes that no cache holds.
pub const LARGE: usize = 256 << 20;
/// Tokens, and the width of the one head, that attention is measured with.
const TOKENS: usize = 1024;
const HEAD: usize = 128;
/// How long each thing is measured; the best of its turns counts.
const PATIENCE: Duration = Duration::from_millis(150);
/// The best rate of `turn`, which returns how much it did.
pub fn rate(mut turn: impl FnMut() -> u64) -> f64 {
    let began = Instant::now();
    let mut best = 0f64;
    while began.elapsed() < PATIENCE {
        let turned = Instant::now();
        let done = turn();
        best = best.max(done as f64 / turned.elapsed().as_secs_f64());
    }
    best
}

/// Numbers of magnitude one without a pattern.
pub fn numbers(count: usize) -> Vec<f32> {
    (0..count as u32).map(|i| (i.wrapping_mul(2_654_435_769) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
}

/// Reads all of `memory` in `STREAMS` streams, with sums side by side.
pub fn read<const STREAMS: usize>(memory: &[f32]) -> u64 {
    const LINE: usize = 16;
    let streams: Vec<_> =
        memory.chunks_exact(memory.len() / STREAMS).map(|part| part.as_chunks::<LINE>().0).collect();
    let mut sums = [[0u32; LINE]; STREAMS];
    for line in 0..memory.len() / STREAMS / LINE {
        for (sums, stream) in sums.iter_mut().zip(&streams) {
            for (sum, number) in sums.iter_mut().zip(&stream[line]) {
                *sum ^= number.to_bits();
            }
        }
    }
    black_box(sums);
    size_of_val(memory) as u64
}

/// Strips' bytes without a pattern, whose scales are small numbers and not zero.
fn strips(format: Format, count: usize) -> Vec<u8> {
    let layout = format.strip(K);
    let bytes = (0..(count * layout.bytes) as u32).map(|i| (i.wrapping_mul(40_503) >> 9) as u8);
    let mut bytes: Vec<u8> = bytes.collect();
    for strip in bytes.chunks_exact_mut(layout.bytes) {
        for half in strip[layout.super_..].chunks_exact_mut(2) {
            (half[0], half[1]) = (half[0] | 1, 0x2c | half[1] & 0x83);
        }
    }
    bytes
}

/// What kernels are held against.
pub struct Bounds<'a> {
    /// Peaks, with what was measured of them.
    pub tops: &'a [(Peak, f64)],
    /// Bytes a second that are read from memory.
    pub read: f64,
}

impl Bounds<'_> {
    fn by_memory(&self, kernel: &'static str, per_second: f64) -> Row {
        Row {
            kernel,
            format: None,
            activations: None,
            unit: "bytes",
            per_second,
            bound: Some("memory"),
            share: Some(per_second / self.read),
        }
    }

    /// The peak that bounds a set's products; products in f32 are those of its f32 kernels.
    fn top(&self, set: KernelSet, in_place: bool) -> Option<&(Peak, f64)> {
        let set = if in_place && set.intersects(KernelSet::DIGITS) && !set.contains(KernelSet::SCALAR_INT8) {
            KernelSet::AVX2
        } else {
            set.difference(KernelSet::ONE_DIGIT)
        };
        self.tops.iter().find(|(peak, _)| peak.sets.contains(set))
    }

    /// Strips that lie in memory, one after another, into the same place.
    pub fn decode(&self, backend: &Backend, name: &'static str, format: Format) -> Row {
        let products = backend.serving(&[format]);
        let layout = format.strip(K);
        let bytes = strips(format, LARGE / 4 / layout.bytes);
        let mut words = vec![0.0; K / 32 * products.packing(&[format]).tile / 4];
        let rate = rate(|| {
            for bytes in bytes.chunks_exact(layout.bytes) {
                products.decode(Strip { format, k: K, bytes }, 0..K / 32, &mut words);
            }
            black_box(&mut words);
            bytes.len() as u64
        });
        Row { format: Some(name), ..self.by_memory("decode", rate) }
    }

    /// Rows by a decoded strip.
    pub fn multiply(
        &self,
        backend: &Backend,
        products: &dyn Products,
        name: &'static str,
        format: Format,
    ) -> Row {
        let packing = products.packing(&[format]);
        let stride = K / 32 * packing.block / 4;
        let (x, mut rows, mut out) = (numbers(ROWS * K), vec![0.0; ROWS * stride], vec![0.0; ROWS * COLUMNS]);
        for (x, row) in x.chunks(K).zip(rows.chunks_mut(stride)) {
            products.pack(x, row);
        }
        let mut words = vec![0.0; K / 32 * packing.tile / 4];
        products.decode(Strip { format, k: K, bytes: &strips(format, 1) }, 0..K / 32, &mut words);
        let top = self.top(backend.set, products.in_place());
        let one_digit = backend.set.contains(KernelSet::ONE_DIGIT);
        let operations = top.map_or(1, |(peak, _)| peak.operations[usize::from(one_digit)]);
        let per_second = rate(|| {
            let weights = Decoded { format, k: K, words: &words, ahead: &[] };
            products.multiply(
                Rows::new(black_box(&rows), stride).into(),
                weights,
                Block::new(&mut out, COLUMNS),
                Chain::Start,
            );
            (ROWS * K * COLUMNS) as u64 * u64::from(operations)
        });
        Row {
            kernel: "multiply",
            format: Some(name),
            activations: Some(if products.in_place() { "f32" } else { backend.set.activations() }),
            unit: top.map_or("multiply-adds", |(peak, _)| peak.unit),
            per_second,
            bound: top.map(|(peak, _)| peak.name),
            share: top.map(|(_, most)| per_second / most),
        }
    }

    /// Rows to digits.
    pub fn pack(&self, backend: &Backend, products: &dyn Products, memory: &[f32]) -> Row {
        let stride = K / 32 * products.packing(&[]).block / 4;
        let x = &memory[..LARGE / 16];
        let mut rows = vec![0.0; x.len() / K * stride];
        let bytes = (size_of_val(x) + size_of_val(&rows[..])) as u64;
        let rate = rate(|| {
            for (x, row) in x.chunks_exact(K).zip(rows.chunks_exact_mut(stride)) {
                products.pack(x, row);
            }
            black_box(&mut rows);
            bytes
        });
        Row { activations: Some(backend.set.activations()), ..self.by_memory("digits", rate) }
    }

    /// Functions of rows.
    pub fn vectors(&self, backend: &Backend, mut memory: Vec<f32>) -> [Row; 4] {
        let kernels = backend.kernels;
        let weight = numbers(K);
        let (x, rest) = memory.split_at_mut(LARGE / 12);
        let (y, out) = rest.split_at_mut(LARGE / 12);
        let bytes = |streams: usize| (streams * size_of_val(&x[..])) as u64;
        let (one, two, three) = (bytes(1), bytes(2), bytes(3));
        let norm = rate(|| {
            for (x, out) in x.chunks_exact(K).zip(out.chunks_exact_mut(K)) {
                kernels.rms_norm(x, &weight, 1e-5, out);
            }
            two
        });
        let swiglu = rate(|| {
            for ((x, y), out) in x.chunks_exact(K).zip(y.chunks_exact(K)).zip(out.chunks_exact_mut(K)) {
                kernels.swiglu(x, y, out);
            }
            three
        });
        let scatter = rate(|| {
            for (x, y) in x.chunks_exact(K).zip(y.chunks_exact_mut(K)) {
                kernels.add_scaled(0.5, x, y);
            }
            two
        });
        let rotate = rate(|| {
            for head in x.chunks_exact_mut(HEAD) {
                kernels.rotate(RopePairs::Halves, head, &weight[..HEAD / 2], &weight[HEAD / 2..HEAD]);
            }
            one
        });
        let rows = [("norm", norm), ("SwiGLU", swiglu), ("scatter", scatter), ("rotate", rotate)];
        rows.map(|(kernel, rate)| self.by_memory(kernel, rate))
    }

    /// One head over a prompt: both products and the softmax between them.
    pub fn attention(&self, backend: &Backend) -> Option<Row> {
        let rope =
            Rope { pairs: RopePairs::Halves, width: HEAD as u32, base: 1e4, scaling: RopeScaling::None };
        let (head, scale) = (HEAD as u32, 1.0 / (HEAD as f32).sqrt());
        let attention = Attention {
            heads: 1,
            kv_heads: 1,
            key_width: head,
            value_width: head,
            scale,
            norm: QkNorm::None,
            rope,
        };
        let span = RequestSpan { tokens: TOKENS as u32, ..RequestSpan::default() };
        let pool = Pool::new(1).ok()?;
        let pass = Pass {
            kernels: backend.kernels,
            pool: &pool,
            attention: &attention,
            epsilon: 0.0,
            angles: &[],
            spans: &[span],
        };
        let rows = numbers(TOKENS * HEAD);
        let mut keys = vec![0.0; key_elements(&attention, TOKENS, 1)];
        let (mut out, mut scratch) = (vec![0.0; TOKENS * HEAD], vec![0.0; SCRATCH]);
        pass.transpose_keys(&rows, &mut keys);
        let seen = (TOKENS * (TOKENS + 1) / 2) as u64;
        let per_second = rate(|| {
            pass.attend(
                Rows::new(&rows, HEAD),
                &keys,
                &rows,
                TOKENS,
                Grid::new(&mut out, HEAD),
                &mut scratch,
            );
            2 * seen * HEAD as u64
        });
        let top = self.top(backend.set, true);
        Some(Row {
            kernel: "attention",
            format: None,
            activations: Some("f32"),
            unit: "multiply-adds",
            per_second,
            bound: top.map(|(peak, _)| peak.name),
            share: top.map(|(_, most)| per_second / most),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estream_dsp::kernels::choose;
    use estream_dsp::kernels::peak::peaks;

    #[test]
    fn every_instruction_set_that_runs_here_has_its_peak() {
        let tops: Vec<_> = peaks().map(|peak| (peak, 1.0)).collect();
        let bounds = Bounds { tops: &tops, read: 1.0 };
        for set in [KernelSet::AVX2, KernelSet::AVX2_INT8, KernelSet::AVX_VNNI, KernelSet::AVX512_VNNI] {
            let Some(backend) = choose(set) else { continue };
            let (peak, _) = bounds.top(backend.set, false).expect("a peak for its products");
            assert_eq!(peak.sets, set);
            let (fused, _) = bounds.top(backend.set, true).expect("a peak for its f32 products");
            assert_eq!(fused.sets, KernelSet::AVX2);
        }
        assert!(bounds.top(KernelSet::SCALAR_INT8, true).is_none());
    }

    #[test]
    fn digits_count_as_what_they_are() {
        for peak in peaks().filter(|peak| peak.unit == "byte products") {
            assert_eq!(peak.operations, [2, 1], "{peak:?}");
        }
        let done = peaks().map(|peak| (peak.run)(10)).all(|done| done > 0 && done.is_multiple_of(120));
        assert!(done, "ten steps of twelve chains");
    }
}
