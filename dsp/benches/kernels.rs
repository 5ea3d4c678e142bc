//! Speed of the kernels, beside peers written here.
//!
//! `multiply`: 96 rows by one strip of K = 2048, in multiply-adds a second. The peers are a plain loop blocked by 64, as
//! the crate is compiled and with AVX2 and FMA enabled (the compiler vectorises it), and the processor's peak: as many
//! independent fused multiply-adds in 256-bit registers as hide their latency. `decode`: weights a second of one strip.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use estream_dsp::kernels::{Chain, Kernels, Strip, choose};
use estream_dsp::view::{Block, Rows};
use estream_idl::call::KernelSet;
use estream_idl::format::{Element, Format};
use std::hint::black_box;
use std::time::Duration;

const K: usize = 2048;
const ROWS: usize = 96;
const COLUMNS: usize = 32;

fn backends() -> Vec<&'static dyn Kernels> {
    [KernelSet::SCALAR, KernelSet::AVX2].into_iter().filter_map(choose).collect()
}

/// Numbers of magnitude one without a pattern.
fn numbers(count: usize) -> Vec<f32> {
    (0..count as u32).map(|i| (i.wrapping_mul(2_654_435_769) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
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
mod avx2 {
    use core::arch::x86_64::*;

    /// Independent chains of the peak loop: latency 4 × two units, with room.
    pub const CHAINS: usize = 12;

    #[target_feature(enable = "avx2,fma")]
    pub fn blocked(x: &[f32], weights: &[f32], out: &mut [f32]) {
        super::blocked(x, weights, out, true);
    }

    #[target_feature(enable = "avx2,fma")]
    pub fn peak(steps: usize, factor: f32) -> f32 {
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
            b.iter(|| unsafe { avx2::blocked(black_box(&x), &weights, &mut out) });
        });
        group.bench_function("peer/peak-avx2", |b| {
            let steps = ROWS * K * COLUMNS / (8 * avx2::CHAINS);
            // SAFETY: the features were detected above.
            b.iter(|| unsafe { avx2::peak(steps, black_box(0.5)) });
        });
    }
    for kernels in backends() {
        group.bench_function(kernels.set().name(), |b| {
            b.iter(|| {
                let out = Block::new(&mut out, COLUMNS);
                kernels.multiply(Rows::new(black_box(&x), K), &weights, out, Chain::Start);
            });
        });
    }
    group.finish();
}

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements((K * COLUMNS) as u64));
    let mut out = vec![0.0; K * COLUMNS];
    let formats = [
        ("q4_0", Format::Q4_0),
        ("q8_0", Format::Q8_0),
        ("q6_k", Format::Q6_K),
        ("f16", Format::F16),
        ("bf16", Format { element: Element::BF16, ..Format::F16 }),
        ("f32", Format::F32),
    ];
    for (name, format) in formats {
        let bytes: Vec<u8> =
            (0..format.strip(K).bytes as u32).map(|i| (i.wrapping_mul(40_503) >> 9) as u8).collect();
        for kernels in backends() {
            group.bench_function(format!("{name}/{}", kernels.set().name()), |b| {
                let strip = Strip { format, k: K, bytes: &bytes };
                b.iter(|| kernels.decode(black_box(strip), 0..K / 32, &mut out));
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = kernels;
    config = Criterion::default().measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = multiply, decode
}
criterion_main!(kernels);
