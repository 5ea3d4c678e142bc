//! Gated units on rows of any size, and with a channel that dwarfs the others: nothing leaves a half's range, and each row
//! is as near to f64 as rows of ordinary size are.
//!
//! A row's power of two is its own and the activation's is fixed in advance from it, so a row scaled by 2^20 gives other
//! numbers than 2^20 times the row's (the gate is not linear), and must be near those all the same.

use estream_dsp::expert::Expert;
use estream_dsp::kernels::scalar::Scalar;
use estream_dsp::kernels::{Kernels, Strip};
use estream_dsp::matrix::Machine;
use estream_dsp::matrix::layout::{Layout, Shape};
use estream_dsp::model::Matrix;
use estream_dsp::pool::Pool;
use estream_dsp::routes::Route;
use estream_dsp::view::Rows;
use estream_idl::format::Format;
use estream_tests::random::Random;
use half::f16;

const FORMAT: Format = Format::Q4_0;
const WIDTH: usize = 256;
const INNER: usize = 96;
const TILE: usize = 32;
const VECTOR: usize = 128;
const VTCM: usize = 2 << 20;
/// Of a row's largest output: a few standard deviations of the independent roundings of halves on the way.
const NEAR: f64 = 4e-3;

fn unit(random: &mut Random) -> f32 {
    random.bits() as u32 as f32 / 2f32.powi(31) - 1.0
}

/// A matrix of random codes: its strips at a vector's border, and its values, `[k][column]`.
struct Stored {
    memory: Vec<u8>,
    bytes: usize,
    values: Vec<f64>,
}

impl Stored {
    fn new(k: usize, columns: usize, random: &mut Random) -> Self {
        let strip = FORMAT.strip(k);
        let bytes = strip.bytes * columns / TILE;
        let mut memory = vec![0; bytes + VECTOR];
        let from = memory.as_ptr().align_offset(VECTOR);
        let mut values = vec![0.0; k * columns];
        for (number, to) in memory[from..from + bytes].chunks_exact_mut(strip.bytes).enumerate() {
            to.iter_mut().for_each(|byte| *byte = random.bits() as u8);
            for scale in to[strip.scales..strip.mins].chunks_exact_mut(2) {
                scale.copy_from_slice(&f16::from_f32(unit(random) / 64.0).to_le_bytes());
            }
            let mut rows = vec![0.0; k * TILE];
            Scalar.decode(Strip { format: FORMAT, k, bytes: to }, 0..k / TILE, &mut rows);
            for (at, &value) in rows.iter().enumerate() {
                values[at / TILE * columns + number * TILE + at % TILE] = value.into();
            }
        }
        Self { memory, bytes, values }
    }

    fn bytes(&self) -> &[u8] {
        let from = self.memory.as_ptr().align_offset(VECTOR);
        &self.memory[from..from + self.bytes]
    }

    fn times(&self, x: &[f64]) -> Vec<f64> {
        let columns = self.values.len() / x.len();
        let column =
            |c| x.iter().zip(self.values.chunks_exact(columns)).map(|(x, row): (_, &[f64])| x * row[c]).sum();
        (0..columns).map(column).collect()
    }
}

/// Runs an expert over all rows with weight 1 and holds each row to f64.
fn check(scales: &[f32], large: Option<(usize, f32)>) {
    let mut random = Random::new(20);
    let mut x: Vec<f32> = (0..scales.len() * WIDTH).map(|_| unit(&mut random) * 2.0).collect();
    for (row, scale) in x.chunks_exact_mut(WIDTH).zip(scales) {
        row.iter_mut().for_each(|x| *x *= scale);
        if let Some((channel, factor)) = large {
            row[channel] *= factor;
        }
    }
    let [gate, up] = [(); 2].map(|()| Stored::new(WIDTH, INNER, &mut random));
    let down = Stored::new(INNER, WIDTH, &mut random);
    let shape = Shape {
        inward: Some((WIDTH, [FORMAT; 2])),
        inputs: INNER,
        formats: &[FORMAT],
        max_rows: scales.len(),
    };
    let layout = Layout::new(&shape, VTCM, 0).expect("a layout");
    let pool = Pool::new(1).expect("this thread").with_matrix(Machine::new(VTCM).expect("the models"));
    let machine = pool.matrix().expect("a machine");
    let bound = |k, n| move |stored| (Matrix { format: FORMAT, k, n, at: 0 }, Stored::bytes(stored));
    let expert = Expert {
        gate: bound(WIDTH, INNER)(&gate),
        up: bound(WIDTH, INNER)(&up),
        down: bound(INNER, WIDTH)(&down),
    };
    let routes: Vec<Route> = (0..scales.len() as u32).map(|token| Route { token, weight: 1.0 }).collect();
    let mut y = vec![0.0; x.len()];
    let mut scratch = vec![f32::NAN; VTCM / 4 + VECTOR / 4];
    let from = scratch.as_ptr().align_offset(VECTOR);
    let pad = &mut scratch[from..from + VTCM / 4];
    machine.gated(&pool, pad, &layout, expert, Rows::new(&x, WIDTH), &routes, &mut y);
    assert_eq!(machine.broken(), None);
    machine.check().expect("nothing leaves the range");
    for (row, (x, y)) in x.chunks_exact(WIDTH).zip(y.chunks_exact(WIDTH)).enumerate() {
        let x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
        let silu = |(g, u): (f64, f64)| g / (1.0 + (-g).exp()) * u;
        let h: Vec<f64> = gate.times(&x).into_iter().zip(up.times(&x)).map(silu).collect();
        let exact = down.times(&h);
        let size = exact.iter().fold(0f64, |size, y| size.max(y.abs()));
        for (column, (y, exact)) in y.iter().zip(exact).enumerate() {
            let error = (f64::from(*y) - exact).abs();
            assert!(error <= NEAR * size, "row {row} column {column}: {y} for {exact}, size {size}");
        }
    }
}

#[test]
fn rows_scaled_by_two_to_the_twenty_stay_in_range_and_near() {
    let scale = |power| 2f32.powi(power);
    check(&[1.0, scale(20), scale(-20), 1.0, scale(10), scale(-10), scale(19), scale(-19)], None);
}

#[test]
fn a_channel_a_thousand_times_as_large_stays_in_range_and_near() {
    for channel in [0, 17, 255] {
        check(&[1.0, 1.0, 1.0, 0.25], Some((channel, 1000.0)));
    }
}
