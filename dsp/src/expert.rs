//! The fused expert operator: gather → gate and up → SwiGLU → down → weighted scatter-add, a chunk of rows at a time.
//!
//! A chunk holds as many routes of one expert as the scratchpad plan allows; exactly its routes are computed. Nothing
//! leaves the scratchpad between gather and scatter. Lanes share a chunk by output columns: each task runs the step table
//! over its own strips, first inward (all of H), then, when all lanes have met, outward. A column of Y belongs to one
//! task and a token comes once in a chunk, so that Y is added to in storage order and in no other (law 1d).
//!
//! Z, D and H are in the packing of the backend's [`Products`]; a 32-block of H is packed as soon as its pair is activated,
//! since it depends on nothing else (law 1e). Rows are packed once a layer, before they are gathered: a token goes to
//! several experts. Where a row is read a few times a strip and no more, as products in integers do, it is read where it
//! was packed, and Z stays empty; products in f32 read it for each vector of weights, and gather.
//!
//! Natively pieces are decoded where they lie: `fetch` names the bytes, and the product before asks the caches for them.

use crate::kernels::{Decoded, Input, Kernels, Products, Strip, WORD};
use crate::model;
use crate::pipeline::{Activate, Decode, Fetch, Matrix, Multiply, Piece, Scatter, Table, Units, run_serial};
use crate::pool::Pool;
use crate::routes::Route;
use crate::topology::Place;
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

    /// The bytes of a piece, but for the scales of a strip that is cut.
    fn bytes(&self, piece: &Piece) -> &'a [u8] {
        let strip = self.strip(piece.matrix, piece.strip);
        let tile = strip.format.code_bytes();
        if piece.tiles.len() == strip.k.div_ceil(TILE) {
            strip.bytes
        } else {
            &strip.bytes[piece.tiles.start * tile..piece.tiles.end * tile]
        }
    }

    /// The bytes that the task after this last piece begins with, as far as the expert goes: a lane's tasks are mostly
    /// neighbours.
    fn bytes_of_task(&self, piece: &Piece) -> &'a [u8] {
        let pairs = self.gate.0.n.div_ceil(TILE);
        let next = piece.strip + 1;
        let (matrix, strip, count) = match piece.matrix {
            Matrix::Gate | Matrix::Up if next < pairs => (Matrix::Gate, next, pairs),
            Matrix::Gate | Matrix::Up => (Matrix::Down, next - pairs, self.down.0.n.div_ceil(TILE)),
            Matrix::Down => (Matrix::Down, next, self.down.0.n.div_ceil(TILE)),
        };
        if strip < count { self.strip(matrix, strip).bytes } else { &[] }
    }
}

/// Where a task writes: its columns of H, or of Y reading H.
enum Stage<'a> {
    Inward { z: Input<'a>, hidden: Block<'a> },
    Outward { hidden: Input<'a>, y: Block<'a>, routes: &'a [Route] },
}

/// One lane at work on its strips: the units of the step table over its own D and O.
struct Lane<'a> {
    kernels: &'static dyn Kernels,
    products: &'static dyn Products,
    /// Words of a packed block.
    block: usize,
    expert: Expert<'a>,
    stage: Stage<'a>,
    /// Columns of the stage's block begin with this strip.
    first: usize,
    rows: usize,
    weights: [&'a mut [f32]; 2],
    outputs: [&'a mut [f32]; 4],
    /// What is decoded after the next product.
    ahead: Option<&'a [u8]>,
}

impl Units for Lane<'_> {
    fn fetch(&mut self, fetch: &Fetch) {
        self.ahead = Some(self.expert.bytes(&fetch.piece));
    }

    fn decode(&mut self, decode: &Decode) {
        let piece = &decode.piece;
        let strip = self.expert.strip(piece.matrix, piece.strip);
        let tile = self.products.packing(&[strip.format]).tile / WORD;
        let out = &mut self.weights[decode.d][..piece.tiles.len() * tile];
        self.products.decode(strip, piece.tiles.clone(), out);
    }

    fn multiply(&mut self, multiply: &Multiply) {
        let piece = &multiply.piece;
        // What is written next lies far apart or in another processor's cache: it is asked for before the product.
        let x = match &mut self.stage {
            Stage::Inward { z, hidden } => {
                let from = (piece.strip - self.first) * self.block;
                if piece.matrix == Matrix::Up {
                    for row in 0..self.rows {
                        self.kernels.near(&mut hidden.row(row)[from..from + self.block]);
                    }
                }
                *z
            }
            Stage::Outward { hidden, y, routes } => {
                let from = (piece.strip - self.first) * TILE;
                let to = (from + TILE).min(y.columns());
                for route in *routes {
                    self.kernels.near(&mut y.row(route.token as usize)[from..to]);
                }
                *hidden
            }
        };
        let Strip { format, k, .. } = self.expert.strip(piece.matrix, piece.strip);
        let tile = self.products.packing(&[format]).tile / WORD;
        let k = (piece.tiles.end * TILE).min(k) - piece.tiles.start * TILE;
        let ahead = self.ahead.take().unwrap_or_else(|| self.expert.bytes_of_task(piece));
        let weights =
            Decoded { format, k, words: &self.weights[multiply.d][..piece.tiles.len() * tile], ahead };
        let out = Block::new(&mut self.outputs[multiply.o][..self.rows * TILE], TILE);
        self.products.multiply(x.from_column(piece.tiles.start * self.block), weights, out, multiply.chain);
    }

    fn activate(&mut self, activate: &Activate) {
        let Stage::Inward { hidden, .. } = &mut self.stage else { return };
        let first = (activate.pair - self.first) * self.block;
        let mut hidden = hidden.part(0..self.rows, first..first + self.block);
        let (gate, up) = (&*self.outputs[activate.gate], &*self.outputs[activate.up]);
        let pairs = gate.as_chunks::<TILE>().0.iter().zip(up.as_chunks::<TILE>().0);
        let mut activated = [0.0; TILE];
        for (row, (gate, up)) in pairs.take(self.rows).enumerate() {
            self.kernels.swiglu(gate, up, &mut activated);
            self.products.pack(&activated, hidden.row(row));
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
    /// Functions of f32.
    pub kernels: &'static dyn Kernels,
    /// Products by the unit's weights.
    pub products: &'static dyn Products,
    /// Workers, at least as many as the plan has lanes.
    pub pool: &'a Pool<'a>,
    /// How the shape class's buffers stand in the scratchpad.
    pub place: &'a Place,
    /// Normed activations as the products read them, one row a token.
    pub x: Rows<'a>,
}

impl Operator<'_> {
    /// Adds the expert's output for `routes` to `y`, whose rows are as many inputs as the expert has, chunk by chunk.
    /// `scratch` holds the plan.
    pub fn run(&self, expert: Expert<'_>, routes: &[Route], y: &mut [f32], scratch: &mut [f32]) {
        let plan = match (self.place, self.pool.matrix()) {
            (Place::Tiles(layout), Some(machine)) => {
                return machine.gated(self.pool, scratch, layout, expert, self.x, routes, y);
            }
            // The planner gives lanes to every backend without a matrix unit.
            (Place::Tiles(_), None) => return,
            (Place::Lanes(plan), _) => plan,
        };
        let block = self.products.packing(&[]).block / WORD;
        let [stride, inner] = [plan.z_stride, plan.h_stride].map(|bytes| bytes / WORD);
        let width = expert.down.0.n;
        let (z, rest) = scratch.split_at_mut(plan.h.offset / WORD);
        let (hidden, lanes) = rest.split_at_mut(plan.h.bytes / WORD);
        for routes in routes.chunks(plan.rows) {
            let rows = routes.len();
            let hidden = &mut hidden[..rows * inner];
            let z = if self.products.in_place() {
                self.gather(routes, &mut z[..rows * stride], stride)
            } else {
                Input::routed(self.x, routes)
            };
            self.stage(
                plan,
                lanes,
                Grid::new(hidden, inner),
                block,
                &|first, strips, block, weights, outputs| {
                    let stage = Stage::Inward { z, hidden: block };
                    let mut lane = self.lane(expert, stage, first, rows, weights, outputs);
                    run_serial(
                        &Table::new(first..first + strips, plan.inward, 0..0, plan.outward),
                        &mut lane,
                    );
                },
            );
            let hidden = Input::from(Rows::new(hidden, inner));
            self.stage(plan, lanes, Grid::new(y, width), TILE, &|first, strips, block, weights, outputs| {
                let stage = Stage::Outward { hidden, y: block, routes };
                let mut lane = self.lane(expert, stage, first, rows, weights, outputs);
                run_serial(&Table::new(0..0, plan.inward, first..first + strips, plan.outward), &mut lane);
            });
        }
    }

    /// Copies the routes' rows into Z.
    fn gather<'z>(&self, routes: &[Route], z: &'z mut [f32], stride: usize) -> Input<'z> {
        self.pool.rows(Grid::new(z, stride), 16, &mut [], &|first, mut block, _| {
            for (row, route) in routes[first..].iter().take(block.rows()).enumerate() {
                block.row(row).copy_from_slice(&self.x.row(route.token as usize)[..stride]);
            }
        });
        Rows::new(z, stride).into()
    }

    fn lane<'a>(
        &self,
        expert: Expert<'a>,
        stage: Stage<'a>,
        first: usize,
        rows: usize,
        weights: [&'a mut [f32]; 2],
        outputs: [&'a mut [f32]; 4],
    ) -> Lane<'a> {
        let (kernels, products) = (self.kernels, self.products);
        let block = products.packing(&[]).block / WORD;
        Lane { kernels, products, block, expert, stage, first, rows, weights, outputs, ahead: None }
    }

    /// Runs `body(first strip, strips, block, D, O)` over all columns of `out`, `width` of them a strip: one lane takes all
    /// strips in one table, several take them one by one as they come free.
    fn stage(&self, plan: &Plan, lanes: &mut [f32], out: Grid<'_>, width: usize, body: &Body<'_>) {
        let pool = self.pool;
        let lane = plan.lane(0);
        let words = |span: Span| {
            let first = (span.offset - lane.c[0].offset) / WORD;
            first..first + span.bytes / WORD
        };
        let run = |first: usize, block: Block<'_>, scratch: &mut [f32]| {
            let [d0, d1] = lane.d.map(words);
            let [o0, o1, o2, o3] = lane.o.map(words);
            let count = block.columns().div_ceil(width);
            // Fails for no plan: a lane's buffers are disjoint and inside its share.
            if let Ok([d0, d1, o0, o1, o2, o3]) = scratch.get_disjoint_mut([d0, d1, o0, o1, o2, o3]) {
                body(first, count, block, [d0, d1], [o0, o1, o2, o3]);
            }
        };
        if plan.lanes == 1 || plan.lanes < pool.threads() {
            run(0, out.into_block(), lanes);
        } else {
            pool.columns(out, width, lanes, &|strip, block, scratch| run(strip, block, scratch));
        }
    }
}

/// The work of a lane on some strips: first strip, strips, their block of the output, D and O.
type Body<'a> = dyn Fn(usize, usize, Block<'_>, [&mut [f32]; 2], [&mut [f32]; 4]) + Sync + 'a;
