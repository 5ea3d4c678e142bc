//! Speed of the kernels, beside peers written here and the processor's own peaks.
//!
//! `multiply`: 96 rows by one strip of K = 2048, in multiply-adds a second, from decoded weights. The f32 peers are a plain
//! loop blocked by 64, as the crate is compiled and with AVX2 and FMA enabled (the compiler vectorises it), and the peak: as
//! many independent fused multiply-adds in 256-bit registers as hide their latency. The integer kernels' peak is the same
//! of the dot product in 512-bit registers, in byte products: with two digits each multiply-add takes two of them.
//! `decode`: weights a second of one strip. `expert`: 64 rows through a strip, decoding and packing included.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use estream_dsp::kernels::{Backend, Chain, Decoded, Strip, choose};
use estream_dsp::view::{Block, Rows};
use estream_idl::call::KernelSet;
use estream_idl::format::{Element, Format};
use std::hint::black_box;
use std::time::Duration;

const K: usize = 2048;
const ROWS: usize = 96;
const COLUMNS: usize = 32;

/// Every set that runs here, integer ones with two digits and with one.
fn backends() -> Vec<Backend> {
    let two = [
        KernelSet::SCALAR,
        KernelSet::AVX2,
        KernelSet::AVX2_INT8,
        KernelSet::AVX_VNNI,
        KernelSet::AVX512_VNNI,
    ];
    let one = two.into_iter().filter(|set| KernelSet::DIGITS.contains(*set));
    let one = one.map(|set| set | KernelSet::ONE_DIGIT);
    two.into_iter().chain(one).filter_map(choose).collect()
}

fn name(backend: &Backend) -> String {
    format!("{}/{}", backend.set.name(), backend.set.activations())
}

/// Numbers of magnitude one without a pattern.
fn numbers(count: usize) -> Vec<f32> {
    (0..count as u32).map(|i| (i.wrapping_mul(2_654_435_769) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
}

/// A strip's bytes without a pattern, with scales that are small numbers.
fn strip_bytes(format: Format) -> Vec<u8> {
    let layout = format.strip(K);
    let mut bytes: Vec<u8> = (0..layout.bytes as u32).map(|i| (i.wrapping_mul(40_503) >> 9) as u8).collect();
    for half in bytes[layout.super_..].chunks_exact_mut(2) {
        half[1] = 0x2c | half[1] & 0x83;
    }
    bytes
}

/// The plain kernel: three loops, k and rows blocked by 64, the compiler's own vectors.
#[inline(always)]
fn blocked(x: &[f32], weights: &[f32], out: &mut [f32], fused: bool) {
    out.fill(0.0);
    for (part, weights) in weights.chunks(64 * COLUMNS).enumerate() {
        for (block, out) in out.chunks_mut(64 * COLUMNS).enumerate() {
            for (row, out) in out.chunks_exact_mut(COLUMNS).enumerate() {
                let x = &x[(block * 64 + row) * K + part * 64..][..64];
                for (&x, weights) in x.iter().zip(weights.chunks_exact(COLUMNS)) {
                    for (out, &weight) in out.iter_mut().zip(weights) {
                        *out = if fused { x.mul_add(weight, *out) } else { *out + x * weight };
                    }
                }
            }
        }
    }
}

fn blocked_plain(x: &[f32], weights: &[f32], out: &mut [f32]) {
    blocked(x, weights, out, false);
}

#[cfg(target_arch = "x86_64")]
mod peaks {
    use core::arch::x86_64::*;

    /// Independent chains of a peak loop: latency 4 × two units, with room.
    pub const CHAINS: usize = 12;

    #[target_feature(enable = "avx2,fma")]
    pub fn blocked(x: &[f32], weights: &[f32], out: &mut [f32]) {
        super::blocked(x, weights, out, true);
    }

    #[target_feature(enable = "avx2,fma")]
    pub fn fused(steps: usize, factor: f32) -> f32 {
        let factor = _mm256_set1_ps(factor);
        let mut chains = [_mm256_set1_ps(1.0); CHAINS];
        for _ in 0..steps {
            for chain in &mut chains {
                *chain = _mm256_fmadd_ps(factor, *chain, factor);
            }
        }
        let mut sum = chains[0];
        for chain in &chains[1..] {
            sum = _mm256_add_ps(sum, *chain);
        }
        _mm256_cvtss_f32(sum)
    }

    /// Each step's factors differ: nothing can be hoisted or summed ahead.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub fn dots(steps: usize, factor: i32) -> i32 {
        let mut chains = [_mm512_setzero_si512(); CHAINS];
        let codes = _mm512_set1_epi32(factor);
        for _ in 0..steps {
            for chain in &mut chains {
                *chain = _mm512_dpbusd_epi32(*chain, codes, *chain);
            }
        }
        let mut sum = chains[0];
        for chain in &chains[1..] {
            sum = _mm512_add_epi32(sum, *chain);
        }
        _mm512_reduce_add_epi32(sum)
    }
}

fn multiply(c: &mut Criterion) {
    let mut group = c.benchmark_group("multiply");
    group.throughput(Throughput::Elements((ROWS * K * COLUMNS) as u64));
    let (x, weights) = (numbers(ROWS * K), numbers(K * COLUMNS));
    let mut out = vec![0.0; ROWS * COLUMNS];
    group.bench_function("peer/blocked", |b| b.iter(|| blocked_plain(black_box(&x), &weights, &mut out)));
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        group.bench_function("peer/blocked-avx2", |b| {
            // SAFETY: the features were detected above.
            b.iter(|| unsafe { peaks::blocked(black_box(&x), &weights, &mut out) });
        });
        group.bench_function("peak/fma-256", |b| {
            let steps = ROWS * K * COLUMNS / (8 * peaks::CHAINS);
            // SAFETY: the features were detected above.
            b.iter(|| unsafe { peaks::fused(steps, black_box(0.5)) });
        });
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512vnni") {
        group.bench_function("peak/dot-512", |b| {
            let steps = ROWS * K * COLUMNS / (64 * peaks::CHAINS);
            // SAFETY: the feature was detected above.
            b.iter(|| unsafe { peaks::dots(steps, black_box(0x0102_0304)) });
        });
    }
    for backend in backends() {
        for (format_name, format) in [("q4_0", Format::Q4_0), ("q4_k", Format::Q4_K), ("q6_k", Format::Q6_K)]
        {
            let products = backend.serving(&[format]);
            if products.in_place() && format != Format::Q4_0 {
                continue;
            }
            let packing = products.packing(&[format]);
            let stride = K / 32 * packing.block / 4;
            let mut rows = vec![0.0; ROWS * stride];
            for (x, row) in x.chunks(K).zip(rows.chunks_mut(stride)) {
                products.pack(x, row);
            }
            let (bytes, mut words) = (strip_bytes(format), vec![0.0; K / 32 * packing.tile / 4]);
            products.decode(Strip { format, k: K, bytes: &bytes }, 0..K / 32, &mut words);
            group.bench_function(format!("{format_name}/{}", name(&backend)), |b| {
                b.iter(|| {
                    let out = Block::new(&mut out, COLUMNS);
                    let weights = Decoded { format, k: K, words: &words, ahead: &[] };
                    let rows = Rows::new(black_box(&rows), stride);
                    products.multiply(rows.into(), weights, out, Chain::Start);
                });
            });
        }
    }
    group.finish();
}

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements((K * COLUMNS) as u64));
    let mut out = vec![0.0; K * COLUMNS];
    let formats = [
        ("q4_0", Format::Q4_0),
        ("q4_k", Format::Q4_K),
        ("q8_0", Format::Q8_0),
        ("q6_k", Format::Q6_K),
        ("f16", Format::F16),
        ("bf16", Format { element: Element::BF16, ..Format::F16 }),
        ("f32", Format::F32),
    ];
    for (format_name, format) in formats {
        let bytes = strip_bytes(format);
        for backend in backends() {
            let products = backend.serving(&[format]);
            let out = &mut out[..K / 32 * products.packing(&[format]).tile / 4];
            group.bench_function(format!("{format_name}/{}", name(&backend)), |b| {
                let strip = Strip { format, k: K, bytes: &bytes };
                b.iter(|| products.decode(black_box(strip), 0..K / 32, out));
            });
        }
    }
    group.finish();
}

fn expert(c: &mut Criterion) {
    let mut group = c.benchmark_group("expert");
    const TAKEN: usize = 64;
    group.throughput(Throughput::Elements((TAKEN * K * COLUMNS) as u64));
    let x = numbers(TAKEN * K);
    let mut out = vec![0.0; TAKEN * COLUMNS];
    for backend in backends() {
        let format = Format::Q4_0;
        let products = backend.serving(&[format]);
        let packing = products.packing(&[format]);
        let (bytes, stride) = (strip_bytes(format), K / 32 * packing.block / 4);
        let (mut rows, mut words) = (vec![0.0; TAKEN * stride], vec![0.0; K / 32 * packing.tile / 4]);
        group.bench_function(name(&backend), |b| {
            b.iter(|| {
                // A row is packed once for all strips of a matrix: one row's share of 64 strips.
                products.pack(black_box(&x[..K]), &mut rows[..stride]);
                products.decode(Strip { format, k: K, bytes: &bytes }, 0..K / 32, &mut words);
                let weights = Decoded { format, k: K, words: &words, ahead: &[] };
                let out = Block::new(&mut out, COLUMNS);
                products.multiply(Rows::new(&rows, stride).into(), weights, out, Chain::Start);
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = kernels;
    config = Criterion::default().measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = multiply, decode, expert
}
criterion_main!(kernels);
