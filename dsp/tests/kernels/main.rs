//! The kernel suite: every function of every backend of this processor, on ragged shapes, against f64.
//!
//! Bounds stand beside the checks and are derived, not tuned: U is the unit round-off of f32. What the laws ask to be the
//! same bits is compared as bits.

mod stored;
mod strips;
mod vectors;

use estream_dsp::kernels::{Kernels, available, choose};
use estream_idl::call::KernelSet;

/// Half a unit in the last place, relative: 2^−24.
const U: f64 = 1.0 / (1u64 << 24) as f64;

/// Lengths around the lanes' width, and a model's.
const LENGTHS: [usize; 12] = [1, 2, 7, 8, 9, 15, 16, 17, 63, 100, 1024, 2053];

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[track_caller]
fn close(got: f32, want: f64, bound: f64, what: impl std::fmt::Display) {
    let off = (f64::from(got) - want).abs();
    assert!(off <= bound, "{what}: got {got:e}, want {want:e}, off by {off:e} with {bound:e} allowed");
}

/// The kernels of one set, or a loud note that this processor lacks them.
fn backend(set: KernelSet) -> Option<&'static dyn Kernels> {
    let kernels = choose(set);
    match kernels {
        Some(kernels) => assert_eq!(kernels.set(), set),
        None => eprintln!("skipped: no {} kernels on this processor", set.name()),
    }
    kernels
}

macro_rules! suite {
    ($name:ident, $set:expr; $($module:ident :: $check:ident),* $(,)?) => {
        mod $name {
            $(#[test]
            fn $check() {
                if let Some(kernels) = crate::backend($set) {
                    crate::$module::$check(kernels);
                }
            })*
        }
    };
}

macro_rules! for_backends {
    ($($checks:tt)*) => {
        suite!(scalar, estream_idl::call::KernelSet::SCALAR; $($checks)*);
        suite!(avx2, estream_idl::call::KernelSet::AVX2; $($checks)*);
    };
}

for_backends! {
    strips::decodes_every_format,
    strips::decodes_tile_ranges_to_the_same_bits,
    strips::multiplies_within_the_bound,
    strips::chains_are_cut_nowhere,
    strips::an_empty_product_is_zero_or_nothing,
    vectors::rms_norm,
    vectors::swiglu,
    vectors::silu_is_stable,
    vectors::add_scaled_and_scale,
    vectors::rotate,
    vectors::max,
    vectors::exp_is_accurate,
    vectors::exp_at_the_ends,
    vectors::exp_sums,
    vectors::an_element_does_not_depend_on_its_place,
}

#[test]
fn the_best_backend_is_chosen_and_absent_ones_are_not() {
    assert!(available().contains(KernelSet::SCALAR));
    let best = choose(KernelSet::empty()).expect("the portable kernels run everywhere");
    assert!(!best.set().is_empty());
    assert!(available().contains(best.set()));
    assert_eq!(best.set() == KernelSet::AVX2, available().contains(KernelSet::AVX2));
    assert!(choose(KernelSet::from_bits_retain(1 << 31)).is_none());
}
