//! The fused expert operator: gather → gate and up → SwiGLU → down → weighted scatter-add, a chunk of rows at a time.
//!
//! A chunk holds as many routes of one expert as the scratchpad plan allows; exactly its routes are computed. Nothing
//! leaves the scratchpad between gather and scatter. Lanes share a chunk by output columns: each task runs the step table
//! over its own strips, first inward (all of H), then, when all lanes have met, outward. A column of Y belongs to one
//! task and a token comes once in a chunk, so that Y is added to in storage order and in no other (law 1d).
//!
//! Natively the arena is as near as any buffer: `fetch` has nothing to bring, and pieces are decoded where they lie.

use crate::kernels::{Kernels, Strip};
use crate::model;
use crate::pipeline::{Activate, Decode, Fetch, Matrix, Multiply, Scatter, Table, Units, run_serial};
use crate::pool::Pool;
use crate::routes::Route;
use crate::view::{Block, Grid, Rows};
use crate::vtcm::{Plan, Span};
use estream_idl::address::TILE;

/// A gated unit's three matrices, bound to bytes: an expert in its slot, or a resident unit.
#[derive(Clone, Copy, Debug)]
pub struct Expert<'a> {
    /// Gate, width → inner.
    pub gate: (model::Matrix, &'a [u8]),
    /// Up, width → inner.
    pub up: (model::Matrix, &'a [u8]),
    /// Down, inner → width.
    pub down: (model::Matrix, &'a [u8]),
}

impl<'a> Expert<'a> {
    fn strip(&self, matrix: Matrix, index: usize) -> Strip<'a> {
        let (matrix, bytes) = match matrix {
            Matrix::Gate => self.gate,
            Matrix::Up => self.up,
            Matrix::Down => self.down,
        };
        crate::shared::strip(matrix.format, matrix.k, bytes, index)
    }
}

/// Where a task writes: its columns of H, or of Y reading H.
enum Stage<'a> {
    Inward { z: Rows<'a>, hidden: Block<'a> },
    Outward { hidden: Rows<'a>, y: Block<'a>, routes: &'a [Route] },
}

/// One lane at work on its strips: the units of the step table over its own D and O.
struct Lane<'a> {
    kernels: &'static dyn Kernels,
    expert: Expert<'a>,
    stage: Stage<'a>,
    /// Columns of the stage's block begin with this strip.
    first: usize,
    rows: usize,
    weights: [&'a mut [f32]; 2],
    outputs: [&'a mut [f32]; 4],
}

impl Units for Lane<'_> {
    fn fetch(&mut self, _: &Fetch) {}

    fn decode(&mut self, decode: &Decode) {
        let piece = &decode.piece;
        let strip = self.expert.strip(piece.matrix, piece.strip);
        let out = &mut self.weights[decode.d][..piece.tiles.len() * TILE * TILE];
        self.kernels.decode(strip, piece.tiles.clone(), out);
    }

    fn multiply(&mut self, multiply: &Multiply) {
        let piece = &multiply.piece;
        let x = match &self.stage {
            Stage::Inward { z, .. } => *z,
            Stage::Outward { hidden, .. } => *hidden,
        };
        let k = self.expert.strip(piece.matrix, piece.strip).k;
        let from = piece.tiles.start * TILE;
        let count = (piece.tiles.end * TILE).min(k) - from;
        let weights = &self.weights[multiply.d][..count * TILE];
        let out = Block::new(&mut self.outputs[multiply.o][..self.rows * TILE], TILE);
        self.kernels.multiply(x.from_column(from), weights, out, multiply.chain);
    }

    fn activate(&mut self, activate: &Activate) {
        let Stage::Inward { hidden, .. } = &mut self.stage else { return };
        let columns = (activate.pair - self.first) * TILE..(activate.pair - self.first + 1) * TILE;
        let mut hidden = hidden.part(0..self.rows, columns);
        let (gate, up) = (&*self.outputs[activate.gate], &*self.outputs[activate.up]);
        for (row, (gate, up)) in
            gate.chunks_exact(TILE).zip(up.chunks_exact(TILE)).take(self.rows).enumerate()
        {
            self.kernels.swiglu(gate, up, hidden.row(row));
        }
    }

    fn scatter(&mut self, scatter: &Scatter) {
        let Stage::Outward { y, routes, .. } = &mut self.stage else { return };
        let from = (scatter.strip - self.first) * TILE;
        let to = (from + TILE).min(y.columns());
        for (route, output) in routes.iter().zip(self.outputs[scatter.o].chunks_exact(TILE)) {
            let row = &mut y.row(route.token as usize)[from..to];
            self.kernels.add_scaled(route.weight, &output[..to - from], row);
        }
    }
}

/// What every expert of a pass is computed with.
pub struct Operator<'a> {
    /// Backend.
    pub kernels: &'static dyn Kernels,
    /// Workers, at least as many as the plan has lanes.
    pub pool: &'a Pool<'a>,
    /// The shape class's plan.
    pub plan: &'a Plan,
    /// Normed activations, one row a token.
    pub x: Rows<'a>,
}

impl Operator<'_> {
    /// Adds the expert's output for `routes` to `y` (rows of the plan's inputs), chunk by chunk. `scratch` holds the plan.
    pub fn run(&self, expert: Expert<'_>, routes: &[Route], y: &mut [f32], scratch: &mut [f32]) {
        let plan = self.plan;
        let (stride, inner) = (plan.z_stride, plan.h_stride);
        let (z, rest) = scratch.split_at_mut(plan.h.offset / ELEMENT);
        let (hidden, lanes) = rest.split_at_mut(plan.h.bytes / ELEMENT);
        for routes in routes.chunks(plan.rows) {
            let rows = routes.len();
            let (z, hidden) = (&mut z[..rows * stride], &mut hidden[..rows * inner]);
            self.pool.rows(Grid::new(z, stride), 16, &mut [], &|first, mut block, _| {
                for (row, route) in routes[first..].iter().take(block.rows()).enumerate() {
                    block.row(row).copy_from_slice(&self.x.row(route.token as usize)[..stride]);
                }
            });
            let z = Rows::new(z, stride);
            self.stage(lanes, Grid::new(hidden, inner), &|first, strips, block, weights, outputs| {
                let stage = Stage::Inward { z, hidden: block };
                let mut lane = Lane { kernels: self.kernels, expert, stage, first, rows, weights, outputs };
                run_serial(&Table::new(first..first + strips, plan.inward, 0..0, plan.outward), &mut lane);
            });
            let hidden = Rows::new(hidden, inner);
            self.stage(lanes, Grid::new(y, stride), &|first, strips, block, weights, outputs| {
                let stage = Stage::Outward { hidden, y: block, routes };
                let mut lane = Lane { kernels: self.kernels, expert, stage, first, rows, weights, outputs };
                run_serial(&Table::new(0..0, plan.inward, first..first + strips, plan.outward), &mut lane);
            });
        }
    }

    /// Runs `body(first strip, strips, block, D, O)` over all columns of `out`: one lane takes all strips in one table,
    /// several take them one by one as they come free.
    fn stage(&self, lanes: &mut [f32], out: Grid<'_>, body: &Body<'_>) {
        let (plan, pool) = (self.plan, self.pool);
        let lane = plan.lane(0);
        let elements = |span: Span| {
            let first = (span.offset - lane.c[0].offset) / ELEMENT;
            first..first + span.bytes / ELEMENT
        };
        let run = |first: usize, block: Block<'_>, scratch: &mut [f32]| {
            let [d0, d1] = lane.d.map(elements);
            let [o0, o1, o2, o3] = lane.o.map(elements);
            let count = block.columns().div_ceil(TILE);
            // Fails for no plan: a lane's buffers are disjoint and inside its share.
            if let Ok([d0, d1, o0, o1, o2, o3]) = scratch.get_disjoint_mut([d0, d1, o0, o1, o2, o3]) {
                body(first, count, block, [d0, d1], [o0, o1, o2, o3]);
            }
        };
        if plan.lanes == 1 || plan.lanes < pool.threads() {
            run(0, out.into_block(), lanes);
        } else {
            pool.columns(out, TILE, lanes, &|strip, block, scratch| run(strip, block, scratch));
        }
    }
}

/// The work of a lane on some strips: first strip, strips, their block of the output, D and O.
type Body<'a> = dyn Fn(usize, usize, Block<'_>, [&mut [f32]; 2], [&mut [f32]; 4]) + Sync + 'a;

/// Bytes of an element of every buffer natively.
const ELEMENT: usize = size_of::<f32>();
