//! Products in integers: bit for bit the formula written out here over stored numbers, and near the exact product.

use crate::stored::{Chance, Stored, formats};
use crate::{U, bits, close};
use estream_dsp::kernels::{Backend, Chain, Decoded, Input, Products, Strip, int8};
use estream_dsp::routes::Route;
use estream_dsp::view::{Block, Rows};
use estream_idl::call::KernelSet;
use estream_idl::format::Format;
use std::ops::Range;

/// The formats whose weights are codes.
fn served() -> Vec<Format> {
    let served: Vec<_> = formats().into_iter().filter(int8::serves).collect();
    assert!(served.len() > 30, "{} formats", served.len());
    served
}

/// The largest whole number that an activation becomes.
fn most(backend: &Backend) -> f32 {
    if backend.set.contains(KernelSet::ONE_DIGIT) { 127.0 } else { 32639.0 }
}

/// The whole number next to `x`, of two the even one.
fn nearest(x: f32) -> i64 {
    let (x, below) = (f64::from(x), f64::from(x).floor());
    let number = below as i64;
    let odd = i64::from(number % 2 != 0);
    if x - below > 0.5 {
        number + 1
    } else if x - below < 0.5 {
        number
    } else {
        number + odd
    }
}

/// A matrix and rows, `k` of its inputs.
struct Case {
    stored: Stored,
    bytes: Vec<u8>,
    k: usize,
    x: Vec<Vec<f32>>,
}

impl Case {
    fn random(format: Format, k: usize, rows: usize, seed: u64) -> Self {
        let mut chance = Chance(seed);
        let stored = Stored::random(format, k.next_multiple_of(32), &mut chance);
        let bytes = stored.strip();
        // Magnitudes that differ from block to block.
        let size = |chance: &mut Chance| f32::from_bits((110 + chance.below(30) as u32) << 23);
        let row = |chance: &mut Chance| {
            let mut row = chance.reals(k);
            for block in row.chunks_mut(32) {
                let size = size(chance);
                block.iter_mut().for_each(|x| *x *= size);
            }
            row
        };
        let x = (0..rows).map(|_| row(&mut chance)).collect();
        Self { stored, bytes, k, x }
    }

    /// Multiplies in cuts of `row_step` rows and `tile_steps` tiles, all in turn; `start` is what the output holds before.
    fn run(
        &self,
        backend: &Backend,
        row_step: usize,
        tile_steps: &[usize],
        start: Option<&[f32]>,
    ) -> Vec<f32> {
        let (format, rows) = (self.stored.format, self.x.len());
        let products = backend.serving(&[format]);
        assert!(!products.in_place());
        let packing = products.packing(&[format]);
        let [block, tile] = [packing.block / 4, packing.tile / 4];
        let (tiles, stride) = (self.k.div_ceil(32), self.k.div_ceil(32) * block);
        let mut packed = vec![f32::NAN; rows * stride];
        for (x, packed) in self.x.iter().zip(packed.chunks_mut(stride)) {
            products.pack(x, packed);
        }
        let mut out = start.map_or_else(|| vec![f32::NAN; rows * 32], <[f32]>::to_vec);
        let (mut first, mut steps) = (0, tile_steps.iter().cycle());
        while first < tiles {
            let range = first..tiles.min(first + steps.next().expect("steps"));
            let words = self.decode(products, range.clone(), tile);
            let k = (32 * range.end).min(self.k) - 32 * range.start;
            let weights = Decoded { format, k, words: &words, ahead: &self.bytes };
            let chain = if first == 0 && start.is_none() { Chain::Start } else { Chain::Continue };
            for row in (0..rows).step_by(row_step) {
                let rows = row..rows.min(row + row_step);
                let mut whole = Block::new(&mut out, 32);
                let x = Rows::new(&packed, stride).slice(rows.clone()).from_column(first * block);
                products.multiply(x.into(), weights, whole.part(rows, 0..32), chain);
            }
            first = range.end;
        }
        out
    }

    fn decode(&self, products: &dyn Products, tiles: Range<usize>, words: usize) -> Vec<f32> {
        let mut out = vec![f32::NAN; tiles.len() * words];
        let strip = Strip { format: self.stored.format, k: self.stored.k, bytes: &self.bytes };
        products.decode(strip, tiles, &mut out);
        out
    }

    /// One output by the formula: whole numbers in 64 bits, then f32 in the order that the design fixes.
    fn formula(&self, row: usize, column: usize, most: f32) -> f32 {
        let mut chain = 0.0f32;
        for (block, x) in self.x[row].chunks(32).enumerate() {
            let largest = x.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
            let inverse = most / largest;
            let sub_block = self.stored.format.sub_block;
            let (mut products, mut mins) = (None, None);
            for (sub, x) in x.chunks(sub_block).enumerate() {
                let first = 32 * block + sub * sub_block;
                let (mut dot, mut sum) = (0i64, 0i64);
                for (i, x) in x.iter().enumerate() {
                    let q = nearest(x * inverse);
                    dot += q * self.stored.code(first + i, column);
                    sum += q;
                }
                let (scale, min) = self.stored.factors(first, column);
                let product = scale as f32 * dot as f32;
                products = Some(products.map_or(product, |before: f32| before + product));
                let min = min as f32 * sum as f32;
                mins = Some(mins.map_or(min, |before: f32| before + min));
            }
            let value = products.unwrap_or(0.0) + mins.unwrap_or(0.0);
            chain += largest / most * value;
        }
        chain
    }
}

/// Equal, where a zero has no sign: a format without minima adds none, the formula adds zeros.
fn assert_same(got: &[f32], wanted: &[f32], what: impl std::fmt::Debug) {
    let same =
        |(got, wanted): (&f32, &f32)| got.to_bits() == wanted.to_bits() || (*got == 0.0 && *wanted == 0.0);
    if let Some(at) = got.iter().zip(wanted).position(|pair| !same(pair)) {
        panic!("{what:?}: output {at} is {:e}, not {:e}", got[at], wanted[at]);
    }
}

pub fn every_format_gives_the_bits_of_the_formula(backend: Backend) {
    for (seed, format) in served().into_iter().enumerate() {
        for (k, rows) in [(32, 1), (288, 7), (160, 13), (96 - 5, 3)] {
            let case = Case::random(format, k, rows, seed as u64);
            let got = case.run(&backend, rows, &[k.div_ceil(32)], None);
            let wanted: Vec<f32> =
                (0..rows * 32).map(|at| case.formula(at / 32, at % 32, most(&backend))).collect();
            assert_same(&got, &wanted, (format, k, rows));
        }
    }
}

/// Rows that routes name, out of order and more than once, are those rows.
pub fn routed_rows_are_the_rows_that_routes_name(backend: Backend) {
    let case = Case::random(Format::Q4_0, 64, 9, 11);
    let whole = case.run(&backend, 9, &[2], None);
    let products = backend.serving(&[Format::Q4_0]);
    let packing = products.packing(&[Format::Q4_0]);
    let stride = packing.block / 4 * 2;
    let mut packed = vec![f32::NAN; 9 * stride];
    for (x, packed) in case.x.iter().zip(packed.chunks_mut(stride)) {
        products.pack(x, packed);
    }
    let words = case.decode(products, 0..2, packing.tile / 4);
    let routes = [8, 0, 3, 3, 7, 1, 5].map(|token| Route { token, weight: 0.0 });
    let mut out = vec![f32::NAN; routes.len() * 32];
    let weights = Decoded { format: Format::Q4_0, k: 64, words: &words, ahead: &[] };
    let input = Input::routed(Rows::new(&packed, stride), &routes);
    products.multiply(input, weights, Block::new(&mut out, 32), Chain::Start);
    for (route, out) in routes.iter().zip(out.chunks(32)) {
        assert_eq!(bits(out), bits(&whole[route.token as usize * 32..][..32]), "{route:?}");
    }
}

pub fn products_are_within_the_bound(backend: Backend) {
    for (seed, format) in served().into_iter().enumerate() {
        let (k, rows) = (512, 5);
        let case = Case::random(format, k, rows, !(seed as u64));
        let got = case.run(&backend, rows, &[16], None);
        for (at, &got) in got.iter().enumerate() {
            let (row, column) = (at / 32, at % 32);
            let (mut exact, mut size, mut digits) = (0.0, 0.0, 0.0);
            for (block, x) in case.x[row].chunks(32).enumerate() {
                let largest = x.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
                // Half a unit of the last digit, and the rounding of scale and inverse.
                let off = f64::from(largest) * (0.501 / f64::from(most(&backend)) + 4.0 * U);
                for (i, &x) in x.iter().enumerate() {
                    let (product, min) = case.stored.terms(32 * block + i, column);
                    exact += f64::from(x) * (product + min);
                    size += f64::from(x).abs() * (product.abs() + min.abs());
                    digits += off * (product + min).abs();
                }
            }
            // A block's value takes at most eight roundings, and joins a chain of sixteen.
            close(got, exact, digits + 25.0 * U * size * 1.01, format_args!("{format:?} at {row},{column}"));
        }
    }
}

pub fn chains_are_cut_nowhere(backend: Backend) {
    for format in [Format::Q4_0, Format::Q4_K, Format::Q6_K, Format::Q2_K, Format::Q8_0] {
        let case = Case::random(format, 13 * 32, 15, 7);
        let whole = case.run(&backend, 15, &[13], None);
        for row_step in [1, 2, 3, 4, 5, 6, 7, 12] {
            assert_eq!(bits(&case.run(&backend, row_step, &[13], None)), bits(&whole), "rows by {row_step}");
        }
        for steps in [&[1][..], &[8], &[5, 1]] {
            assert_eq!(bits(&case.run(&backend, 4, steps, None)), bits(&whole), "tiles by {steps:?}");
        }
        let zeros = vec![0.0; whole.len()];
        assert_same(&case.run(&backend, 15, &[13], Some(&zeros)), &whole, "carried on from zero");
    }
}

pub fn blocks_that_are_no_numbers_show_and_tiny_ones_vanish(backend: Backend) {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut case = Case::random(Format::Q4_0, 64, 3, 9);
        case.x[1][40] = bad;
        let out = case.run(&backend, 3, &[2], None);
        for (row, out) in out.chunks(32).enumerate() {
            assert!(out.iter().all(|value| value.is_nan() == (row == 1)), "{bad} in row 1, {row}: {out:?}");
        }
    }
    for tiny in [0.0, f32::from_bits(1), f32::MIN_POSITIVE, f32::from_bits(26 << 23)] {
        let mut case = Case::random(Format::Q4_0, 64, 1, 10);
        case.x[0][..32].fill(tiny);
        let out = case.run(&backend, 1, &[2], None);
        case.x[0][..32].fill(0.0);
        assert_same(&out, &case.run(&backend, 1, &[2], None), tiny);
    }
}
