//! Every codec to fp16 tiles and to f32 rows, against the portable decoder (which the suite holds against the oracle's).

use crate::stored::{small, stored};
use estream_dsp::kernels::hexagon::decode::{OVERFLOW, PAIRS, Planes, Tile};
use estream_dsp::kernels::hexagon::hvx;
use estream_dsp::kernels::scalar::Scalar;
use estream_dsp::kernels::{Kernels, Strip};
use estream_idl::format::{Format, Min};
use half::f16;

const FORMATS: [Format; 15] = [
    Format::F32,
    Format::F16,
    Format::BF16,
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::Q2_K,
    Format::Q3_K,
    Format::Q4_K,
    Format::Q5_K,
    Format::Q6_K,
    Format::IQ4_NL,
    Format::MXFP4,
];

fn weight(tile: &Tile, k: usize, column: usize) -> f16 {
    let word = hvx::to_words(tile[k / 2])[column];
    f16::from_bits((word >> (16 * (k % 2))) as u16)
}

/// Half a unit in the last place of a half, and a few of a float as large as the terms that make a weight up.
fn bound(exact: f64, terms: f64) -> f64 {
    let unit = (exact.abs().log2().floor().max(-14.0) - 10.0).exp2();
    unit * 0.5 + terms * 8.0 * f64::from(f32::EPSILON)
}

/// The largest term of any weight: scales are below 1/64, sub-scales and codes below 2^8 together 2^14.
fn terms(format: Format, exact: &[f32]) -> f64 {
    let largest = exact.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    f64::from(if format.min == Min::None { largest } else { 2.0 * largest.max(1.0 / 64.0) })
}

#[test]
fn every_format_is_within_half_a_unit_in_tiles() {
    for (index, format) in FORMATS.into_iter().enumerate() {
        for k in [32, 96, 256, 544] {
            let stored = stored(format, k, 1, 77 + index as u64, small);
            let tiles = k / 32;
            let strip = Strip { format, k, bytes: stored.bytes() };
            let mut exact = vec![0.0; k * 32];
            Scalar.decode(strip, 0..tiles, &mut exact);
            let planes = Planes::new(format, k, stored.bytes()).expect("planes");
            let mut out = vec![[hvx::zero(); PAIRS]; tiles];
            let worst = planes.tiles(0..tiles, &mut out);
            assert!(worst < OVERFLOW, "{format:?}");
            let terms = terms(format, &exact);
            let mut largest = 0f64;
            for (at, &exact) in exact.iter().enumerate() {
                let (k, column) = (at / 32, at % 32);
                let weight = f64::from(weight(&out[k / 32], k % 32, column).to_f32());
                let exact = f64::from(exact);
                assert!(
                    (weight - exact).abs() <= bound(exact, terms),
                    "{format:?} k {k} column {column}: {weight} for {exact}"
                );
                largest = largest.max(weight.abs());
            }
            assert!(
                f64::from(f16::from_bits(worst).to_f32()) >= largest * 0.999,
                "{format:?}: {worst:#x} for {largest}"
            );
        }
    }
}

#[test]
fn a_part_decodes_as_in_the_whole() {
    for (index, format) in FORMATS.into_iter().enumerate() {
        let stored = stored(format, 640, 1, 5 + index as u64, small);
        let planes = Planes::new(format, 640, stored.bytes()).expect("planes");
        let mut whole = vec![[hvx::zero(); PAIRS]; 20];
        let _ = planes.tiles(0..20, &mut whole);
        for part in [0..1, 1..4, 3..9, 18..20] {
            let mut out = vec![[hvx::zero(); PAIRS]; part.len()];
            let _ = planes.tiles(part.clone(), &mut out);
            let bits =
                |tiles: &[Tile]| tiles.as_flattened().iter().map(|&v| hvx::to_words(v)).collect::<Vec<_>>();
            assert_eq!(bits(&out), bits(&whole[part.clone()]), "{format:?} {part:?}");
        }
    }
}

#[test]
fn rows_are_floats_within_a_few_units_and_plain_elements_exact() {
    for (index, format) in FORMATS.into_iter().enumerate() {
        let k = 288;
        let stored = stored(format, k, 1, 31 + index as u64, small);
        let strip = Strip { format, k, bytes: stored.bytes() };
        let mut exact = vec![0.0; k * 32];
        Scalar.decode(strip, 0..9, &mut exact);
        let mut out = vec![[0.0; 32]; k];
        Planes::new(format, k, stored.bytes()).expect("planes").rows(0..9, &mut out);
        let terms = terms(format, &exact);
        for (value, &exact) in out.as_flattened().iter().zip(&exact) {
            let near = f64::from((value - exact).abs()) <= terms * 8.0 * f64::from(f32::EPSILON);
            let plain = matches!(format, Format::F32 | Format::BF16);
            assert!(if plain { value == &exact } else { near }, "{format:?}: {value} for {exact}");
        }
    }
}

#[test]
fn what_no_half_can_hold_is_reported() {
    let mut count = 0;
    let mut every = |n: u32, rare: f32| {
        count += 1;
        f16::from_f32(if count % n == 0 { rare } else { 1.0 })
    };
    for format in [Format::Q4_0, Format::Q4_1, Format::Q8_0, Format::Q6_K] {
        let stored = stored(format, 256, 1, 3, |_| every(23, 60_000.0));
        let planes = Planes::new(format, 256, stored.bytes()).expect("planes");
        let mut out = vec![[hvx::zero(); PAIRS]; 8];
        assert!(planes.tiles(0..8, &mut out) >= OVERFLOW, "{format:?}");
    }
    for format in [Format::F16, Format::Q4_0, Format::Q3_K] {
        let stored = stored(format, 256, 1, 9, |_| every(23, f32::NAN));
        let planes = Planes::new(format, 256, stored.bytes()).expect("planes");
        let mut out = vec![[hvx::zero(); PAIRS]; 8];
        assert!(planes.tiles(0..8, &mut out) >= OVERFLOW, "{format:?}");
    }
}
