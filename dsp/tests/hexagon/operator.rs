//! Single matrices and gated units on the matrix unit's model: near f64, counted, and the same bits whatever the cut.

use crate::Random;
use crate::stored::{Stored, small, stored};
use estream_dsp::expert::Expert;
use estream_dsp::kernels::scalar::Scalar;
use estream_dsp::kernels::{Chain, Kernels, Strip};
use estream_dsp::linear::Weights;
use estream_dsp::matrix::Machine;
use estream_dsp::matrix::layout::{Layout, Shape};
use estream_dsp::matrix::operator::Rowed;
use estream_dsp::matrix::units::Counters;
use estream_dsp::model::Matrix;
use estream_dsp::pool::Pool;
use estream_dsp::routes::Route;
use estream_dsp::view::{Grid, Rows};
use estream_idl::format::Format;
use estream_idl::status::{Refusal, Status};
use half::f16;

/// Scratch at a vector's border.
fn with_scratch<T>(bytes: usize, body: impl FnOnce(&mut [f32]) -> T) -> T {
    let mut words = vec![f32::NAN; bytes / 4 + 32];
    let from = words.as_ptr().align_offset(128);
    body(&mut words[from..from + bytes / 4])
}

fn pool(threads: usize, bytes: usize) -> Pool<'static> {
    Pool::new(threads).expect("threads").with_matrix(Machine::new(bytes).expect("models"))
}

/// One matrix and rows for it.
struct Case {
    format: Format,
    k: usize,
    columns: usize,
    weights: Stored,
    x: Vec<f32>,
}

impl Case {
    fn new(
        format: Format,
        k: usize,
        columns: usize,
        rows: usize,
        half: impl FnMut(&mut Random) -> f16,
    ) -> Self {
        let mut random = Random::new(k as u64);
        let x = (0..rows * k).map(|_| random.unit() * 3.0).collect();
        Self { format, k, columns, weights: stored(format, k, columns.div_ceil(32), 5, half), x }
    }

    fn rows(&self) -> usize {
        self.x.len() / self.k
    }

    /// The product on the unit's model, and what it did.
    fn run(&self, threads: usize, bytes: usize) -> (Vec<f32>, Counters, Result<(), Refusal>) {
        let pool = pool(threads, bytes);
        let machine = pool.matrix().expect("a machine");
        let mut out = vec![0.0; self.rows() * self.columns];
        let weights = Weights { format: self.format, k: self.k, bytes: self.weights.bytes() };
        let grid = Rowed::Whole(Grid::new(&mut out, self.columns));
        let x = Rows::new(&self.x, self.k);
        with_scratch(bytes, |scratch| machine.product(&pool, scratch, x, weights, 0, grid, Chain::Start));
        assert_eq!(machine.broken(), None);
        (out, machine.counters(), machine.check())
    }

    fn decoded(&self) -> Vec<f64> {
        let strips = self.columns.div_ceil(32);
        let (tiles, bytes) = (self.k.div_ceil(32), self.format.strip(self.k).bytes);
        let mut all = vec![0.0; self.k * self.columns];
        for strip in 0..strips {
            let bytes = &self.weights.bytes()[strip * bytes..(strip + 1) * bytes];
            let mut rows = vec![0.0; tiles * 1024];
            Scalar.decode(Strip { format: self.format, k: self.k, bytes }, 0..tiles, &mut rows);
            for k in 0..self.k {
                for column in 0..32.min(self.columns - 32 * strip) {
                    all[k * self.columns + 32 * strip + column] = f64::from(rows[k * 32 + column]);
                }
            }
        }
        all
    }

    /// Each output against f64: operands are within half a unit of a half, the result within another.
    fn check(&self, out: &[f32]) {
        let weights = self.decoded();
        for row in 0..self.rows() {
            let x = &self.x[row * self.k..(row + 1) * self.k];
            let largest = x.iter().fold(0f32, |largest, x| largest.max(x.abs()));
            for column in 0..self.columns {
                let terms =
                    x.iter().enumerate().map(|(k, x)| f64::from(*x) * weights[k * self.columns + column]);
                let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                let unit = 2f64.powi(-11);
                // Halves of a row raised into 1..2 are subnormal below 2^-14 of its largest element.
                let floor = f64::from(largest) * 2f64.powi(-24) * self.k as f64;
                let bound = size * 2.1 * unit + sum.abs() * 1.1 * unit + floor;
                let value = f64::from(out[row * self.columns + column]);
                assert!(
                    (value - sum).abs() <= bound,
                    "row {row} column {column}: {value} for {sum} within {bound}"
                );
            }
        }
    }
}

#[test]
fn products_are_near_and_every_tile_is_the_units() {
    for (format, k, columns, rows) in [
        (Format::Q4_0, 96, 40, 5),
        (Format::Q4_0, 1100, 33, 37),
        (Format::Q6_K, 512, 64, 33),
        (Format::F32, 80, 32, 1),
        (Format::MXFP4, 64, 32, 64),
    ] {
        let case = Case::new(format, k, columns, rows, small);
        let (out, counters, sound) = case.run(2, 4 << 20);
        sound.expect("nothing leaves the range");
        case.check(&out);
        let (strips, row_tiles) = (columns.div_ceil(32), rows.div_ceil(32));
        let tiles = strips * row_tiles * k.div_ceil(32);
        assert_eq!(counters.tiles, tiles as u64, "{format:?}");
        assert_eq!(counters.stores, (strips * row_tiles) as u64);
        assert_eq!(counters.pairs, (strips * row_tiles * k.div_ceil(32).div_ceil(32)) as u64);
        assert!(counters.copies >= strips as u64);
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn no_cut_by_threads_or_budget_changes_a_bit() {
    let case = Case::new(Format::Q4_0, 1056, 64, 70, small);
    let reference = bits(&case.run(1, 8 << 20).0);
    let shape = Shape { inward: None, inputs: case.k, formats: &[case.format], max_rows: 70 };
    let least = Layout::new(&shape, 0, 0).expect_err("no bytes are too few");
    for (threads, bytes) in [(2, 8 << 20), (3, 512 << 10), (1, least), (2, least)] {
        assert_eq!(bits(&case.run(threads, bytes).0), reference, "{threads} threads, {bytes} bytes");
    }
    assert!(Layout::new(&shape, least, 0).expect("the least").outward.parts() > 1, "the least is in parts");
}

#[test]
fn rows_of_any_size_are_computed_alike_and_a_large_channel_is_held() {
    let mut case = Case::new(Format::Q4_0, 256, 32, 4, small);
    let plain = case.run(1, 2 << 20).0;
    let scales = [1.0, 2f32.powi(20), 2f32.powi(-20), 1.0];
    for (row, scale) in case.x.chunks_exact_mut(256).zip(scales) {
        row.iter_mut().for_each(|x| *x *= scale);
    }
    let (scaled, _, sound) = case.run(1, 2 << 20);
    sound.expect("nothing leaves the range");
    for (at, (scaled, plain)) in scaled.iter().zip(&plain).enumerate() {
        assert_eq!(scaled.to_bits(), (plain * scales[at / 32]).to_bits(), "element {at}");
    }
    let mut case = Case::new(Format::Q4_0, 256, 32, 4, small);
    case.x.iter_mut().skip(17).step_by(256).for_each(|x| *x *= 1000.0);
    let (out, _, sound) = case.run(1, 2 << 20);
    sound.expect("nothing leaves the range");
    case.check(&out);
}

#[test]
fn saturation_is_counted_and_fails() {
    let case = Case::new(Format::Q4_0, 256, 32, 3, |_| f16::from_f32(4096.0));
    let (.., sound) = case.run(2, 2 << 20);
    let refusal = sound.expect_err("sums of 256 products of 2^15");
    assert_eq!((refusal.status, refusal.detail), (Status::Saturated, 0));
    assert!((1..=3 * 32).contains(&refusal.needed), "{refusal:?}");

    let case = Case::new(Format::Q4_0, 64, 32, 1, |_| f16::INFINITY);
    let refusal = case.run(1, 2 << 20).2.expect_err("weights that no half holds");
    assert_eq!((refusal.status, refusal.detail), (Status::Saturated, 1));

    for bad in [f32::NAN, f32::INFINITY] {
        let mut case = Case::new(Format::Q4_0, 64, 32, 3, small);
        case.x[70] = bad;
        let refusal = case.run(1, 2 << 20).2.expect_err("a row that is not finite");
        assert_eq!((refusal.status, refusal.needed), (Status::NotFinite, 1));
    }
}

/// A gated unit, its rows and routes.
struct Gated {
    width: usize,
    inner: usize,
    formats: [Format; 3],
    weights: [Stored; 3],
    x: Vec<f32>,
    routes: Vec<Route>,
}

impl Gated {
    fn new(width: usize, inner: usize, tokens: usize, formats: [Format; 3]) -> Self {
        let mut random = Random::new(inner as u64);
        let x = (0..tokens * width).map(|_| random.unit() * 2.0).collect();
        let shapes = [(width, inner), (width, inner), (inner, width)];
        // Under super-scales a weight is up to 2^12 times its half.
        let half = |format: Format| {
            move |random: &mut Random| {
                small(random)
                    * f16::from_f32(if format == Format::Q4_0 || format == Format::Q8_0 {
                        1.0
                    } else {
                        1.0 / 256.0
                    })
            }
        };
        let weights = [0, 1, 2].map(|i| {
            stored(formats[i], shapes[i].0, shapes[i].1.div_ceil(32), i as u64 + 9, half(formats[i]))
        });
        let token = |token: u32| Route { token, weight: 0.25 + token as f32 / 64.0 };
        let routes = (0..tokens as u32).rev().filter(|token| token % 5 != 3).map(token).collect();
        Self { width, inner, formats, weights, x, routes }
    }

    fn run(&self, threads: usize, bytes: usize, rows: usize) -> (Vec<f32>, Counters, Layout) {
        let shape = Shape {
            inward: Some((self.width, [self.formats[0], self.formats[1]])),
            inputs: self.inner,
            formats: &[self.formats[2]],
            max_rows: self.routes.len(),
        };
        let layout = Layout::new(&shape, bytes, rows).expect("a layout");
        let pool = pool(threads, bytes);
        let machine = pool.matrix().expect("a machine");
        let matrix = |i: usize, k: usize, n: usize| {
            (Matrix { format: self.formats[i], k, n, at: 0 }, self.weights[i].bytes())
        };
        let expert = Expert {
            gate: matrix(0, self.width, self.inner),
            up: matrix(1, self.width, self.inner),
            down: matrix(2, self.inner, self.width),
        };
        let mut y = vec![1.0; self.x.len()];
        let x = Rows::new(&self.x, self.width);
        with_scratch(bytes, |scratch| {
            machine.gated(&pool, scratch, &layout, expert, x, &self.routes, &mut y);
        });
        assert_eq!(machine.broken(), None);
        machine.check().expect("nothing leaves the range");
        (y, machine.counters(), layout)
    }

    fn exact(&self) -> Vec<f64> {
        let [gate, up, down] = [0, 1, 2].map(|i| {
            let (k, n) = if i < 2 { (self.width, self.inner) } else { (self.inner, self.width) };
            let bytes = self.formats[i].strip(k).bytes;
            let mut all = vec![0.0; k * n];
            for strip in 0..n.div_ceil(32) {
                let mut rows = vec![0.0; k.div_ceil(32) * 1024];
                let bytes = &self.weights[i].bytes()[strip * bytes..(strip + 1) * bytes];
                Scalar.decode(Strip { format: self.formats[i], k, bytes }, 0..k.div_ceil(32), &mut rows);
                for k in 0..k {
                    for column in 0..32.min(n - 32 * strip) {
                        all[k * n + 32 * strip + column] = f64::from(rows[k * 32 + column]);
                    }
                }
            }
            all
        });
        let product = |x: &[f64], w: &[f64], n: usize| -> Vec<f64> {
            (0..n).map(|c| x.iter().enumerate().map(|(k, x)| x * w[k * n + c]).sum()).collect()
        };
        let mut y = vec![1.0; self.x.len()];
        for route in &self.routes {
            let token = route.token as usize;
            let x: Vec<f64> =
                self.x[token * self.width..(token + 1) * self.width].iter().map(|&x| x.into()).collect();
            let (g, u) = (product(&x, &gate, self.inner), product(&x, &up, self.inner));
            let h: Vec<f64> = g.iter().zip(&u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            for (column, out) in product(&h, &down, self.width).iter().enumerate() {
                y[token * self.width + column] += f64::from(route.weight) * out;
            }
        }
        y
    }
}

#[test]
fn gated_units_are_near_and_no_cut_changes_a_bit() {
    for (width, inner, formats) in [
        (96, 64, [Format::Q4_0; 3]),
        (64, 96, [Format::Q4_K, Format::Q4_K, Format::Q6_K]),
        (256, 1120, [Format::Q4_0, Format::Q4_0, Format::Q8_0]),
    ] {
        let case = Gated::new(width, inner, 50, formats);
        let (y, counters, layout) = case.run(2, 8 << 20, 0);
        let exact = case.exact();
        let size = exact.iter().map(|y| (y - 1.0).abs()).fold(0.0, f64::max);
        for (at, (y, exact)) in y.iter().zip(&exact).enumerate() {
            // Statistical: a few standard deviations of independent roundings of halves, of the largest output.
            assert!((f64::from(*y) - exact).abs() <= size * 4e-3, "{formats:?} {at}: {y} for {exact}");
        }
        let row_tiles = case.routes.len().div_ceil(32) as u64;
        let tiles = |k: usize, n: usize| (k.div_ceil(32) * n.div_ceil(32)) as u64 * row_tiles;
        assert_eq!(counters.tiles, 2 * tiles(width, inner) + tiles(inner, width));
        assert_eq!(layout.rows, 64);
        for (threads, bytes, rows) in [(1, 8 << 20, 32), (3, 2 << 20, 0), (2, 700 << 10, 0)] {
            let (other, ..) = case.run(threads, bytes, rows);
            assert_eq!(bits(&other), bits(&y), "{threads} threads, {bytes} bytes, {rows} rows");
        }
    }
}
