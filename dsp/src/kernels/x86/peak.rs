//! The peaks of this processor: one instruction, [`CHAINS`] chains side by side.

use super::super::peak::Peak;
use core::arch::x86_64::*;
use core::hint::black_box;
use estream_idl::call::KernelSet;

/// Independent chains: a latency of four or five by two units, with room.
const CHAINS: usize = 12;

/// A loop that does `$step` on every chain; factors are not known when it is compiled, so nothing is summed ahead.
macro_rules! peak {
    ($name:ident, $features:literal, $lanes:literal, $begin:expr, $step:expr) => {
        fn $name(steps: u32) -> u64 {
            #[target_feature(enable = $features)]
            fn enabled(steps: u32) {
                let factor = black_box($begin);
                let mut chains = [factor; CHAINS];
                for _ in 0..steps {
                    for chain in &mut chains {
                        *chain = $step(*chain, factor);
                    }
                }
                black_box(chains);
            }
            // SAFETY: `peaks` hands this function out where the features are there.
            unsafe { enabled(steps) };
            u64::from(steps) * (CHAINS * $lanes) as u64
        }
    };
}

peak!(fma, "avx2,fma", 8, _mm256_set1_ps(0.5), |chain, factor| _mm256_fmadd_ps(factor, chain, factor));
peak!(words, "avx2", 16, _mm256_set1_epi16(3), |chain, factor| {
    // Two units multiply, others add: the sum costs nothing.
    _mm256_add_epi32(_mm256_madd_epi16(chain, factor), factor)
});
peak!(dots, "avxvnni", 32, _mm256_set1_epi8(3), |chain, factor| _mm256_dpbusd_avx_epi32(
    chain, factor, chain
));
peak!(dots_512, "avx512f,avx512vnni", 64, _mm512_set1_epi32(0x0303_0303), |chain, factor| {
    _mm512_dpbusd_epi32(chain, factor, chain)
});

/// The peaks of the units that this processor has.
pub(in super::super) fn peaks() -> [Option<Peak>; 4] {
    use std::arch::is_x86_feature_detected as has;
    let avx2 = has!("avx2") && has!("fma");
    let peak = |name, unit, sets, operations, run| Peak { name, unit, sets, operations, run };
    let (bytes, adds) = ("byte products", "multiply-adds");
    [
        avx2.then(|| peak("vfmadd, 256 bits", adds, KernelSet::AVX2, [1, 1], fma as fn(u32) -> u64)),
        avx2.then(|| peak("vpmaddwd, 256 bits", "16-bit products", KernelSet::AVX2_INT8, [1, 1], words)),
        has!("avxvnni").then(|| peak("vpdpbusd, 256 bits", bytes, KernelSet::AVX_VNNI, [2, 1], dots)),
        (has!("avx512f") && has!("avx512vnni"))
            .then(|| peak("vpdpbusd, 512 bits", bytes, KernelSet::AVX512_VNNI, [2, 1], dots_512)),
    ]
}
