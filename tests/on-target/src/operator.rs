//! The fused operator and attention on the units, by the marks of their pieces.

use crate::memory::{Bytes, Floats};
use crate::{Line, marks};
use estream_dsp::attention::Pass;
use estream_dsp::batch::RequestSpan;
use estream_dsp::expert::Expert;
use estream_dsp::kernels::hexagon::Vector;
use estream_dsp::matrix::Machine;
use estream_dsp::matrix::layout::{Layout, Shape};
use estream_dsp::model::Matrix;
use estream_dsp::pool::Pool;
use estream_dsp::routes::Route;
use estream_dsp::view::{Grid, Rows};
use estream_idl::format::Format;
use estream_idl::operator::Operator;
use estream_idl::recipe::{Attention, QkNorm, Rope, RopePairs, RopeScaling};

const TILE: usize = 32;
const VTCM: usize = 4 << 20;

/// An expert: its width and inner width, and tokens that chose it.
#[derive(Clone, Copy)]
struct Sizes {
    width: usize,
    inner: usize,
    rows: usize,
}

/// A usual one, with the fewest rows that cost as much as 32.
const USUAL: Sizes = Sizes { width: 2048, inner: 1024, rows: 32 };
/// One of few weights with few rows and with many, whose difference is what a tile more of rows costs.
const FEW: Sizes = Sizes { width: 2048, inner: 64, rows: 128 };
const MANY: Sizes = Sizes { rows: 512, ..FEW };

fn pool() -> Pool<'static> {
    Pool::new(1).expect("this thread").with_matrix(Machine::new(VTCM).expect("the units"))
}

const fn tiles(a: usize, b: usize) -> u32 {
    (a / TILE * (b / TILE)) as u32
}

impl Sizes {
    /// Runs the expert with its weights in `format`.
    fn run(self, pool: &Pool<'_>, format: Format) -> marks::Spent {
        let Self { width, inner, rows } = self;
        let machine = pool.matrix().expect("the units");
        let x = Floats::all(0.5, rows * width);
        let mut y = Floats::all(0.0, rows * width);
        let routes: Vec<Route> = (0..rows as u32).map(|token| Route { token, weight: 0.5 }).collect();
        let inward = Some((width, [format; 2]));
        let shape = Shape { inward, inputs: inner, formats: &[format], max_rows: rows };
        let layout = Layout::new(&shape, VTCM, rows).expect("a layout");
        let bytes = [(width, inner), (width, inner), (inner, width)]
            .map(|(k, n)| Bytes::small(format.strip(k).bytes * n / TILE));
        let matrix = |place: usize, k, n| (Matrix { format, k, n, at: 0 }, bytes[place].get());
        let expert = Expert {
            gate: matrix(0, width, inner),
            up: matrix(1, width, inner),
            down: matrix(2, inner, width),
        };
        let mut run = |routes: &[Route]| {
            let x = Rows::new(x.get(), width);
            machine.gated(pool, &mut [], &layout, expert, x, routes, y.get_mut());
        };
        // The unit's scales are loaded by the first run, whatever it does.
        run(&[]);
        let spent = marks::of(|| run(&routes));
        machine.check().expect("nothing leaves the range");
        spent
    }

    /// Weight tiles, activation tiles, and tiles of activated products.
    const fn tiles(self) -> [u32; 3] {
        [tiles(self.width, 3 * self.inner), tiles(self.rows, self.width), tiles(self.rows, self.inner)]
    }
}

/// One expert over its rows, a format each: all of it, and its pieces for the first.
pub fn gated() {
    let pool = pool();
    let formats =
        [("expert Q4_0", Format::Q4_0), ("expert Q4_K", Format::Q4_K), ("expert Q8_0", Format::Q8_0)];
    let [weights, ..] = USUAL.tiles();
    for (index, (kernel, format)) in formats.into_iter().enumerate() {
        let spent = USUAL.run(&pool, format);
        Line { kernel, unit: "weight tile", packets: spent.all(), count: weights, loads: 0, stores: 0 }
            .print();
        if index == 0 {
            pieces(&spent);
        }
    }
    let [few, many] = [FEW, MANY].map(|sizes| sizes.run(&pool, Format::Q4_0));
    let [[_, few_rows, few_inner], [_, many_rows, many_inner]] = [FEW, MANY].map(Sizes::tiles);
    let (rows, inner) = (many_rows - few_rows, many_inner - few_inner);
    for (kernel, unit, operator, count, [loads, stores]) in [
        ("gather, more rows", "activation tile", Operator::Gather, rows, GATHER),
        ("activate, more rows", "inner tile", Operator::Activate, inner, ACTIVATE),
        ("scatter, more rows", "output tile", Operator::Scatter, rows, SCATTER),
    ] {
        let packets = many.on(operator) - few.on(operator);
        Line { kernel, unit, packets, count, loads, stores }.print();
    }
}

/// Loads and stores of a tile: rows are read twice, for their exponent first.
const GATHER: [u32; 2] = [64, 16];
/// Two products are read.
const ACTIVATE: [u32; 2] = [32, 16];
/// A product is read, and a row of f32 read and written for each of its 32 rows.
const SCATTER: [u32; 2] = [48, 32];

/// The pieces of the usual expert, with all that a piece of work costs.
fn pieces(spent: &marks::Spent) {
    let [weights, activations, inner] = USUAL.tiles();
    let strips = ((2 * USUAL.inner + USUAL.width) / TILE) as u32;
    let lines = [
        ("fetch", "strip", Operator::Fetch, strips, [0, 0]),
        ("decode in the operator", "weight tile", Operator::Decode, weights, [5, 16]),
        ("multiply", "product tile", Operator::Multiply, weights * tiles(USUAL.rows, TILE), [0, 0]),
        ("gather", "activation tile", Operator::Gather, activations, GATHER),
        ("activate", "inner tile", Operator::Activate, inner, ACTIVATE),
        ("scatter", "output tile", Operator::Scatter, activations, SCATTER),
    ];
    for (kernel, unit, operator, count, [loads, stores]) in lines {
        Line { kernel, unit, packets: spent.on(operator), count, loads, stores }.print();
    }
}

/// Attention of two heads that share keys over 128 positions: six visits of a block by a tile of query rows and head, the
/// first two tiles of positions seeing one block and the last two another as well.
pub fn attention() {
    const TOKENS: usize = 128;
    const HEADS: usize = 2;
    const KEY: usize = 64;
    let visits = (HEADS * (1 + 1 + 2 + 2)) as u32;
    let rope = Rope { pairs: RopePairs::Halves, width: KEY as u32, base: 1e4, scaling: RopeScaling::None };
    let width = KEY as u32;
    let attention = Attention {
        heads: HEADS as u32,
        kv_heads: 1,
        key_width: width,
        value_width: width,
        scale: 0.125,
        norm: QkNorm::None,
        rope,
    };
    let span =
        RequestSpan { first: 0, tokens: TOKENS as u32, first_output: 0, outputs: 0, rows: 0, first_block: 0 };
    let pool = pool();
    let machine = pool.matrix().expect("the units");
    let queries = Floats::all(0.5, TOKENS * HEADS * KEY);
    let [keys, values] = [(); 2].map(|()| Floats::all(0.25, TOKENS * KEY));
    let mut out = Floats::all(0.0, TOKENS * HEADS * KEY);
    let spans = [span];
    let pass = Pass {
        kernels: &Vector,
        pool: &pool,
        attention: &attention,
        epsilon: 1e-5,
        angles: &[],
        spans: &spans,
    };
    let mut run = || {
        let queries = Rows::new(queries.get(), HEADS * KEY);
        let grid = Grid::new(out.get_mut(), HEADS * KEY);
        machine.attend(&pass, &mut [], queries, keys.get(), values.get(), TOKENS, &grid);
    };
    run();
    let spent = marks::of(run);
    machine.check().expect("nothing leaves the range");
    // Scores, and maximum and sum of each row, are read; weights, and the row's new state, are written.
    let softmax = spent.on(Operator::Softmax);
    let unit = "tile and key block";
    Line { kernel: "attention: softmax", unit, packets: softmax, count: visits, loads: 96, stores: 128 }
        .print();
    let rest = spent.on(Operator::Attention);
    Line { kernel: "attention: the rest", unit, packets: rest, count: visits, loads: 0, stores: 0 }.print();
}
