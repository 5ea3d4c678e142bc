//! The kernel suite: every function of every backend of this processor, on ragged shapes, against f64.
//!
//! Bounds stand beside the checks and are derived, not tuned: U is the unit round-off of f32. What the laws ask to be the
//! same bits is compared as bits.

mod integers;
mod stored;
mod strips;
mod vectors;

use estream_dsp::kernels::{Backend, Kernels, available, choose};
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
fn backend(set: KernelSet) -> Option<Backend> {
    let backend = choose(set);
    match backend {
        Some(backend) => assert_eq!(backend.set, set),
        None => eprintln!("skipped: no {} kernels on this processor", set.name()),
    }
    backend
}

/// The functions of f32 of one set.
fn kernels(set: KernelSet) -> Option<&'static dyn Kernels> {
    backend(set).map(|backend| backend.kernels)
}

macro_rules! suite {
    ($find:ident, $name:ident, $set:expr; $($module:ident :: $check:ident),* $(,)?) => {
        mod $name {
            $(#[test]
            fn $check() {
                if let Some(kernels) = crate::$find($set) {
                    crate::$module::$check(kernels);
                }
            })*
        }
    };
}

macro_rules! for_backends {
    ($($checks:tt)*) => {
        suite!(kernels, scalar, estream_idl::call::KernelSet::SCALAR; $($checks)*);
        suite!(kernels, avx2, estream_idl::call::KernelSet::AVX2; $($checks)*);
        suite!(kernels, avx512, estream_idl::call::KernelSet::AVX512_VNNI; $($checks)*);
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

/// The suite of integer products, with two digits and with one.
macro_rules! for_integer_backends {
    ($($name:ident, $one:ident, $set:ident;)*) => {$(
        integer_suite!($name, estream_idl::call::KernelSet::$set);
        integer_suite!(
            $one,
            estream_idl::call::KernelSet::$set.union(estream_idl::call::KernelSet::ONE_DIGIT)
        );
    )*};
}

macro_rules! integer_suite {
    ($name:ident, $set:expr) => {
        suite! { backend, $name, $set;
            integers::every_format_gives_the_bits_of_the_formula,
            integers::routed_rows_are_the_rows_that_routes_name,
            integers::products_are_within_the_bound,
            integers::chains_are_cut_nowhere,
            integers::blocks_that_are_no_numbers_show_and_tiny_ones_vanish,
        }
    };
}

for_integer_backends! {
    scalar_int8, scalar_int8_one_digit, SCALAR_INT8;
    avx2_int8, avx2_int8_one_digit, AVX2_INT8;
    avx_vnni, avx_vnni_one_digit, AVX_VNNI;
    avx512_vnni, avx512_vnni_one_digit, AVX512_VNNI;
}

#[test]
fn the_best_backend_is_chosen_and_absent_ones_are_not() {
    assert!(available().contains(KernelSet::SCALAR));
    let best = choose(KernelSet::empty()).expect("the portable kernels run everywhere");
    assert!(available().contains(best.set));
    let ranked = [
        KernelSet::HEXAGON,
        KernelSet::AVX512_VNNI,
        KernelSet::AVX_VNNI,
        KernelSet::AVX2_INT8,
        KernelSet::AVX2,
        KernelSet::SCALAR,
        KernelSet::SCALAR_INT8,
    ];
    let first = ranked.into_iter().find(|&set| available().contains(set));
    assert_eq!(Some(best.set), first);
    assert!(choose(KernelSet::from_bits_retain(1 << 31)).is_none());
    let one = choose(KernelSet::ONE_DIGIT);
    // The DSP has none of the integer kernels.
    assert_eq!(one.is_some(), available().intersects(KernelSet::DIGITS));
    assert!(
        one.is_none_or(|one| one.set.contains(KernelSet::ONE_DIGIT) && one.set.intersects(KernelSet::DIGITS))
    );
    assert!(choose(KernelSet::SCALAR | KernelSet::ONE_DIGIT).is_none(), "f32 has no digits");
}
