//! Gated units and single matrices on the matrix unit: gather, the step table, scatter.
//!
//! A gated unit runs its whole table, gate and up strips, then down strips, into weighted sums of routes. A single matrix
//! is the table's second half alone: its rows are gathered where activated products would be, its strips are the down
//! strips, and what is scattered is written or added row by row. So there is one pipeline.
//!
//! A chunk of rows is gathered by all threads (a barrier), then the executor runs: the calling thread owns the units,
//! the pool's others help with vector work. A row's numbers depend on that row alone: its exponent on its elements, a
//! product's chain on k. No cut by rows, parts, threads or budget changes a bit (law 1).

use super::Machine;
pub(super) use super::gather::gather;
use super::gather::vector;
use super::layout::{Layout, TILE_BYTES, chains};
use super::pad::Pad;
use crate::executor::{Run, Work, share};
use crate::kernels::Chain;
use crate::kernels::hexagon::activate::{activate_tiles, gate_offsets};
use crate::kernels::hexagon::decode::{OVERFLOW, PAIRS, Planes, Tile};
use crate::kernels::hexagon::hvx::{self, FLOATS, V, add_qv, first_q, lift, splat_f, zero};
use crate::kernels::hexagon::scatter::{Aim, scatter, weighted};
use crate::kernels::hexagon::tiles::{self, ACTIVATION_ROOM, Exponent};
use crate::linear::Weights;
use crate::pipeline::{Activate, CHAIN_TILES, Decode, Fetch, Matrix, Multiply, Piece, Scatter, Table};
use crate::platform::{Patience, thread_working_for, wait};
use crate::pool::Pool;
use crate::routes::Route;
use crate::view::{Grid, Rows};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use estream_idl::address::TILE;
use estream_idl::format::StripLayout;
use estream_idl::operator::Operator;

/// Bytes of a vector.
const VECTOR: usize = size_of::<V>();

/// How long a thread naps that has spun in vain, in nanoseconds: work is there within a share of a piece, or a core is short.
const NAP_NS: u64 = 20_000;
/// What such a nap waits for: nobody wakes it.
static NOTHING: AtomicU32 = AtomicU32::new(0);

/// Where products go.
#[derive(Clone, Copy, Debug)]
pub enum Sink<'a> {
    /// Row i, times its route's weight, is added to the token's row.
    Routes(&'a [Route], &'a Grid<'a>),
    /// Row i goes to row `first` + i, which is begun or carried on.
    Rows {
        /// The output.
        out: &'a Rowed<'a>,
        /// Rows of the input.
        all: usize,
        /// The output's row of the chunk's row 0.
        first: usize,
        /// Whether to write or add.
        chain: Chain,
    },
}

/// The output of a single matrix.
#[derive(Debug)]
pub enum Rowed<'a> {
    /// Rows of all columns.
    Whole(Grid<'a>),
    /// Rows of 32 columns: all rows of a strip, then those of the next.
    Strips(Grid<'a>),
}

impl Rowed<'_> {
    /// Rows of one strip, and strips, for `rows` rows of input.
    const fn strips(&self, rows: usize) -> usize {
        match self {
            Self::Whole(grid) => grid.columns().div_ceil(TILE),
            Self::Strips(grid) => grid.rows() / rows,
        }
    }

    /// The grid, and the first row and the columns of a strip in it.
    fn place(&self, strip: usize, rows: usize) -> (&Grid<'_>, usize, Range<usize>) {
        match self {
            Self::Whole(grid) => (grid, 0, strip_columns(grid, strip)),
            Self::Strips(grid) => (grid, strip * rows, 0..TILE),
        }
    }
}

fn strip_columns(grid: &Grid<'_>, strip: usize) -> Range<usize> {
    strip * TILE..(strip * TILE + TILE).min(grid.columns())
}

/// What operators need besides their weights.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The units and the counters of what went wrong.
    pub machine: &'a Machine,
    /// The scratchpad.
    pub pad: Pad<'a>,
    /// Workers.
    pub pool: &'a Pool<'a>,
}

/// Adds `expert(x[token]) · weight` to `y[token]` for all routes; gate, up, down. A token comes once in `routes`.
pub fn gated(
    context: Context<'_>,
    layout: &Layout,
    [gate, up, down]: [Weights<'_>; 3],
    x: Rows<'_>,
    routes: &[Route],
    y: &Grid<'_>,
    inner: usize,
) {
    let table =
        Table::new(0..inner.div_ceil(TILE), layout.inward, 0..y.columns().div_ceil(TILE), layout.outward);
    for routes in routes.chunks(layout.rows) {
        let row = |row: usize| routes.get(row).map(|route| &x.row(route.token as usize)[..gate.k]);
        gather(context, layout.exponents, layout.z, routes.len(), &row);
        let job = Job {
            context,
            layout,
            table: &table,
            weights: [gate, up, down],
            first_strip: 0,
            rows: routes.len(),
            sink: Sink::Routes(routes, y),
        };
        job.run();
    }
}

/// `out = x · weights` (or `out += …`), for all strips of `out` from the matrix's strip `first_strip` on.
pub fn product(
    context: Context<'_>,
    layout: &Layout,
    weights: Weights<'_>,
    first_strip: usize,
    x: Rows<'_>,
    out: &Rowed<'_>,
    chain: Chain,
) {
    let table = Table::new(0..0, layout.inward, 0..out.strips(x.rows.max(1)), layout.outward);
    for first in (0..x.rows).step_by(layout.rows) {
        let rows = layout.rows.min(x.rows - first);
        let row = |row: usize| (row < rows).then(|| &x.row(first + row)[..weights.k]);
        gather(context, layout.exponents, layout.h, rows, &row);
        let job = Job {
            context,
            layout,
            table: &table,
            weights: [weights; 3],
            first_strip,
            rows,
            sink: Sink::Rows { out, all: x.rows, first, chain },
        };
        job.run();
    }
}

/// One chunk of rows through the table.
struct Job<'a> {
    context: Context<'a>,
    layout: &'a Layout,
    table: &'a Table,
    /// Gate, up, down.
    weights: [Weights<'a>; 3],
    first_strip: usize,
    rows: usize,
    sink: Sink<'a>,
}

impl Job<'_> {
    /// Notes where the chunk's rows go, once for all strips, and what their gates are offset by, a word a row pair, where
    /// their exponents stood, which nobody reads after this.
    fn aim(&self) {
        let Self { context: Context { pad, .. }, layout, .. } = *self;
        // SAFETY: the run has not begun: nobody else is at work on the pad.
        let aims = unsafe { pad.slice_mut::<Aim>(layout.targets, self.rows.div_ceil(2)) };
        // SAFETY: as above; `gather`, which has ended, wrote those of whole tiles.
        let held = unsafe { pad.slice_mut::<i32>(layout.exponents, self.row_tiles() * TILE) };
        let stride = self.columns(0).0.stride() * size_of::<f32>();
        aims.fill(Aim::default());
        for (row, &held) in held[..self.rows].iter().enumerate() {
            let (place, factor) = match self.sink {
                Sink::Routes(routes, _) => (
                    routes[row].token as usize,
                    routes[row].weight * Exponent(held).power(-2, -ACTIVATION_ROOM),
                ),
                Sink::Rows { first, .. } => (first + row, Exponent(held).power(-1, 0)),
            };
            assert!(place < self.places(), "a row of the output");
            let aim = &mut aims[row / 2];
            aim.rows[row % 2] = place * stride;
            aim.factors[row % 2] = first_q(lift(splat_f(factor)));
        }
        for pair in 0..held.len() / 2 {
            let exponents = [Exponent(held[2 * pair]), Exponent(held[2 * pair + 1])];
            held[pair] = gate_offsets(exponents).cast_signed();
        }
    }

    /// Rows of one strip of the output.
    fn places(&self) -> usize {
        match self.sink {
            Sink::Routes(_, grid) => grid.rows(),
            Sink::Rows { all, .. } => all,
        }
    }

    fn run(&self) {
        self.aim();
        let (run, pool) = (Run::new(self.table), self.context.pool);
        let owned = AtomicBool::new(false);
        pool.run(pool.threads(), &|worker, _| {
            let mut patience = Patience::new();
            let idle = || {
                if !patience.spin() {
                    wait(&NOTHING, 0, Some(NAP_NS));
                    patience = Patience::new();
                }
            };
            if worker > 0 {
                run.help(self, idle);
            } else if !owned.swap(true, Ordering::Relaxed) {
                run.own(self, idle);
            }
        });
    }

    fn row_tiles(&self) -> usize {
        self.rows.div_ceil(TILE)
    }

    /// A piece's matrix, and the number of its strip in it.
    fn weights(&self, piece: &Piece) -> (Weights<'_>, usize) {
        match piece.matrix {
            Matrix::Gate => (self.weights[0], piece.strip),
            Matrix::Up => (self.weights[1], piece.strip),
            Matrix::Down => (self.weights[2], self.first_strip + piece.strip),
        }
    }

    /// Counts the halves of `vectors` that left the range.
    #[cold]
    #[inline(never)]
    fn count(&self, vectors: &[V]) {
        Machine::add(&self.context.machine.saturated, tiles::count_saturated(vectors));
    }

    /// Where a strip's columns go: the grid, the row that the chunk's places count from, the columns, and whether they are
    /// added to what is there.
    fn columns(&self, strip: usize) -> (&Grid<'_>, usize, Range<usize>, bool) {
        match self.sink {
            Sink::Routes(_, grid) => (grid, 0, strip_columns(grid, strip), true),
            Sink::Rows { out, all, chain, .. } => {
                let (grid, base, columns) = out.place(strip, all);
                (grid, base, columns, chain == Chain::Continue)
            }
        }
    }

    /// Scatters pairs from `first` on whose columns are not whole vectors, or the last, which has one row, of `rows` rows.
    /// Returns what [`tiles::watch`] says of them and `seen`.
    #[cold]
    #[inline(never)]
    fn scatter_loose(
        &self,
        halves: &[V],
        aims: &[Aim],
        first: usize,
        rows: usize,
        strip: usize,
        mut seen: V,
    ) -> V {
        let (grid, base, columns, add) = self.columns(strip);
        for (pair, (&halves, aim)) in halves.iter().zip(aims).enumerate().skip(first) {
            seen = tiles::watch(seen, halves);
            let products = weighted(halves, aim.factors);
            for (bytes, product) in aim.rows.into_iter().zip(products).take(rows - 2 * pair) {
                let place = base + bytes / size_of::<f32>() / grid.stride();
                // SAFETY: a row of the output is met once in a chunk, and its columns by one strip: no other share has them.
                let mut block = unsafe { grid.block(place..place + 1, columns.clone()) };
                let row = block.row(0);
                let done = hvx::float(if add { add_qv(product, vector(row, 0)) } else { product });
                let mut full = [0.0; FLOATS];
                hvx::store(done, &mut full);
                row.copy_from_slice(&full[..row.len()]);
            }
        }
        seen
    }
}

/// Where the planes of a strip begin, and its end.
const fn planes(layout: StripLayout) -> [usize; 6] {
    [0, layout.extra, layout.super_, layout.scales, layout.mins, layout.bytes]
}

/// Each piece of work, told to a simulator for what it is.
impl Work for Job<'_> {
    fn fetch(&self, fetch: &Fetch, turn: u32) {
        thread_working_for(Operator::Fetch, || self.begin_fetch(fetch, turn));
    }

    fn arrived(&self, turn: u32) -> bool {
        thread_working_for(Operator::Fetch, || self.context.machine.units.lock().arrived(turn))
    }

    fn multiply(&self, multiply: &Multiply) {
        thread_working_for(Operator::Multiply, || self.multiply_piece(multiply));
    }

    fn decode(&self, decode: &Decode, number: u32) {
        thread_working_for(Operator::Decode, || self.decode_share(decode, number));
    }

    fn activate(&self, activate: &Activate, number: u32) {
        let tiles = share(number, self.row_tiles(), 1);
        if !tiles.is_empty() {
            thread_working_for(Operator::Activate, || self.activate_share(activate, tiles));
        }
    }

    fn scatter(&self, scatter: &Scatter, number: u32) {
        let tiles = share(number, self.row_tiles(), 1);
        if !tiles.is_empty() {
            thread_working_for(Operator::Scatter, || self.scatter_share(scatter, tiles));
        }
    }
}

impl Job<'_> {
    fn begin_fetch(&self, fetch: &Fetch, turn: u32) {
        let Context { machine, pad, .. } = self.context;
        let (weights, strip) = self.weights(&fetch.piece);
        let (format, bytes) = (weights.format, weights.strip(strip).bytes);
        let to = self.layout.c[fetch.c];
        let tiles = &fetch.piece.tiles;
        let mut units = machine.units.lock();
        if tiles.len() == weights.k.div_ceil(TILE) {
            return units.fetch(turn, core::iter::once((bytes, pad.address(to))));
        }
        // A part begins at a multiple of 1,024 inputs, where every plane has whole vectors.
        let [whole, before, part] =
            [weights.k, tiles.start * TILE, tiles.len() * TILE].map(|k| planes(format.strip(k)));
        let copies = (0..whole.len() - 1).filter_map(|plane| {
            let from = whole[plane] + before[plane + 1] - before[plane];
            let length = part[plane + 1] - part[plane];
            (length > 0).then(|| (&bytes[from..from + length], pad.address(to + part[plane])))
        });
        units.fetch(turn, copies);
    }

    fn multiply_piece(&self, multiply: &Multiply) {
        let Context { machine, pad, pool } = self.context;
        pool.beat();
        let piece = &multiply.piece;
        let (x, cut) = match piece.matrix {
            Matrix::Gate | Matrix::Up => (self.layout.z, self.layout.inward),
            Matrix::Down => (self.layout.h, self.layout.outward),
        };
        let mut units = machine.units.lock();
        for row_tile in 0..self.row_tiles() {
            match multiply.chain {
                Chain::Start => units.clear(),
                Chain::Continue => units.resume(),
            }
            let first = piece.tiles.start / CHAIN_TILES;
            for (chain, (tiles, range)) in chains(self.layout.d[multiply.d], piece.tiles.len()).enumerate() {
                let activation = pad.address(x.chain(row_tile, first + chain));
                units.multiply(activation, pad.address(range.start), tiles);
            }
            if piece.tiles.end == cut.tiles {
                units.store(pad.address(self.layout.o[multiply.o] + row_tile * TILE_BYTES));
            }
        }
    }

    fn decode_share(&self, decode: &Decode, number: u32) {
        let Context { machine, pad, .. } = self.context;
        let (weights, _) = self.weights(&decode.piece);
        let count = decode.piece.tiles.len();
        let k = count * TILE;
        let range = share(number, count, 2);
        // SAFETY: the part has come into C before this share began, and is not overwritten before all shares have ended.
        let bytes = unsafe { pad.slice::<u8>(self.layout.c[decode.c], weights.format.strip(k).bytes) };
        // SAFETY: shares have tiles of their own, and the unit has ended with this D.
        let out =
            unsafe { pad.slice_mut::<Tile>(self.layout.d[decode.d] + range.start * TILE_BYTES, range.len()) };
        let worst = Planes::new(weights.format, k, bytes).map_or(OVERFLOW, |planes| planes.tiles(range, out));
        Machine::add(&machine.weights, u32::from(worst >= OVERFLOW));
    }

    fn activate_share(&self, share_of: &Activate, tiles: Range<usize>) {
        let (layout, pad) = (self.layout, self.context.pad);
        let mut first = tiles.start;
        while first < tiles.end {
            // As many row tiles as stand at equal distances in H: all of them, but in the last chain.
            let (place, stride, count) = layout.h.column(first, share_of.pair);
            let count = count.min(tiles.end - first);
            let [gates, ups] = [share_of.gate, share_of.up].map(|o| {
                // SAFETY: the tiles were stored before the executor's number let this share begin, and are not begun anew
                // before the share has ended.
                unsafe { pad.slice::<Tile>(layout.o[o] + first * TILE_BYTES, count) }
            });
            let at = layout.exponents + first * PAIRS * size_of::<u32>();
            // SAFETY: written by `aim`, before the run began.
            let offsets = unsafe { pad.slice::<[u32; PAIRS]>(at, count) };
            let out = pad.tiles(place, stride, count);
            // SAFETY: the row tiles' vectors of H are this share's alone, and nobody reads H before all pairs are activated.
            let seen = unsafe { activate_tiles(gates, ups, offsets, out, stride) };
            if tiles::saturated(seen) {
                for tiles in [gates, ups] {
                    self.count(tiles.as_flattened());
                }
                for tile in 0..count {
                    // SAFETY: as above, and `activate_tiles` has ended.
                    self.count(unsafe { pad.slice::<V>(place + tile * stride, PAIRS) });
                }
            }
            first += count;
        }
    }

    fn scatter_share(&self, share_of: &Scatter, tiles: Range<usize>) {
        let pad = self.context.pad;
        let first = tiles.start * PAIRS;
        let rows = self.rows.min(tiles.end * TILE) - 2 * first;
        // SAFETY: written by `aim`, before the run began.
        let aims =
            unsafe { pad.slice::<Aim>(self.layout.targets + first * size_of::<Aim>(), rows.div_ceil(2)) };
        // SAFETY: as in `activate_share`: the tiles' vectors of row pairs follow each other.
        let halves = unsafe { pad.slice::<V>(self.layout.o[share_of.o] + first * VECTOR, aims.len()) };
        let (grid, base, columns, add) = self.columns(share_of.strip);
        assert!(base + self.places() <= grid.rows(), "a strip's rows of the output");
        let mut seen = zero();
        let mut done = 0;
        if columns.len() == TILE && grid.stride().is_multiple_of(TILE) && rows > 1 {
            let to = grid.pointer(base, columns.start).cast::<V>();
            if to.is_aligned() {
                done = rows / 2;
                // SAFETY: the places are rows of the strip by `aim`. A row of the output is met once in a chunk, and its
                // columns by one strip: no other share has these vectors, which are whole and at their borders.
                unsafe { scatter(&halves[..done], &aims[..done], to, add, &mut seen) };
            }
        }
        if done < aims.len() {
            seen = self.scatter_loose(halves, aims, done, rows, share_of.strip, seen);
        }
        if tiles::saturated(seen) {
            self.count(halves);
        }
    }
}
