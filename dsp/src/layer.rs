//! One layer of a pass, and the head after the last: the engine's operators in their order.

use crate::attention::Pass;
use crate::engine::{Engine, Fault};
use crate::expert::{Expert, Operator};
use crate::head::{Candidate, Summary};
use crate::kernels::Chain;
use crate::linear::{Weights, product};
use crate::model::{ExpertMatrix, LayerWeights, Matrix, Vector};
use crate::platform;
use crate::pool::Pool;
use crate::residency::{Next, Ready};
use crate::router;
use crate::shared::Shared;
use crate::view::{Grid, Rows};
use estream_idl::address::{PAGE, TILE};
use estream_idl::io::{NO_TARGET, TOP_WORDS};
use estream_idl::message::{self, EventKind};
use estream_idl::status::Status;
use estream_idl::sync::Ordering;

fn weights<'a>(shared: &Shared<'a>, matrix: &Matrix) -> Result<Weights<'a>, Status> {
    Ok(Weights { format: matrix.format, k: matrix.k, bytes: shared.matrix(matrix)? })
}

impl Engine<'_> {
    /// Runs layer `index`: mixer, router, experts.
    pub(crate) fn layer(&mut self, index: usize) -> Result<(), Fault> {
        let weights = self.layers[index].ok_or(Status::BadDirectory)?;
        let began = platform::now_ns();
        self.traffic.mailbox.event(EventKind::Layer, index, 0, 0);
        self.traffic.mailbox.beat(index, 0);
        self.traffic.pump()?;
        self.mixer(index, &weights)?;
        self.route(index, &weights)?;
        let routed = platform::now_ns();
        self.report.mixer_ns += routed - began;
        self.experts(index, &weights)?;
        self.report.expert_ns += platform::now_ns() - routed;
        Ok(())
    }

    /// Norms all rows of the residual stream into the side buffer, rows of `width`.
    fn norm(&mut self, weight: &Vector) -> Result<(), Fault> {
        let (width, tokens) = (self.model.recipe.width as usize, self.batch.tokens);
        let (kernels, epsilon) = (self.kernels, self.model.recipe.epsilon);
        let weight = self.shared.vector(weight)?;
        let x = Rows::new(&self.work.x[..tokens * width], width);
        let out = Grid::new(&mut self.work.side[..tokens * width], width);
        self.pool.rows(out, 8, &mut [], &|first, mut block, _| {
            for row in 0..block.rows() {
                kernels.rms_norm(x.row(first + row), weight, epsilon, block.row(row));
            }
        });
        Ok(())
    }

    /// Attention, added to the residual stream.
    fn mixer(&mut self, index: usize, layer: &LayerWeights) -> Result<(), Fault> {
        self.norm(&layer.mixer_norm)?;
        let recipe = &self.model.recipe;
        let (attention, _) = self.model.parts(index);
        let (width, tokens, kernels) = (recipe.width as usize, self.batch.tokens, self.kernels);
        let [heads, kv_heads] = [attention.heads as usize, attention.kv_heads as usize];
        let [key, value] = [attention.key_width as usize, attention.value_width as usize];
        let kind = usize::from(recipe.layers[index]);
        let norms = match &layer.attention.norms {
            None => None,
            Some((query, key)) => Some((self.shared.vector(query)?, self.shared.vector(key)?)),
        };
        let pass = Pass {
            kernels,
            pool: &self.pool,
            attention,
            epsilon: recipe.epsilon,
            angles: &self.work.angles[kind * self.angle_elements..],
            spans: self.batch.spans(),
        };
        let scratch = &mut *self.work.scratch;
        let side = Rows::new(&self.work.side[..tokens * width], width);

        let rows = &mut self.work.query[..tokens * kv_heads * key];
        let matrix = weights(&self.shared, &layer.attention.key)?;
        product(kernels, &self.pool, scratch, side, matrix, 0, Grid::new(rows, kv_heads * key), Chain::Start);
        pass.position(rows, kv_heads * key, norms.map(|(_, key)| key), scratch);
        pass.transpose_keys(rows, self.work.keys);

        let strips = kv_heads * value / TILE;
        let values = &mut self.work.values[..strips * tokens * TILE];
        let matrix = weights(&self.shared, &layer.attention.value)?;
        self.pool.rows(Grid::new(values, TILE), tokens, scratch, &|first, block, scratch| {
            let strip = matrix.strip(first / tokens);
            crate::linear::strip_product(kernels, side, strip, block, Chain::Start, scratch);
        });

        let rows = &mut self.work.query[..tokens * heads * key];
        let matrix = weights(&self.shared, &layer.attention.query)?;
        product(kernels, &self.pool, scratch, side, matrix, 0, Grid::new(rows, heads * key), Chain::Start);
        pass.position(rows, heads * key, norms.map(|(query, _)| query), scratch);
        self.traffic.pump()?;

        let attended = &mut self.work.side[..tokens * heads * value];
        let queries = Rows::new(rows, heads * key);
        let out = Grid::new(attended, heads * value);
        pass.attend(queries, self.work.keys, self.work.values, tokens, out, scratch);
        let attended = Rows::new(attended, heads * value);
        let matrix = weights(&self.shared, &layer.attention.output)?;
        let x = Grid::new(&mut self.work.x[..tokens * width], width);
        product(kernels, &self.pool, scratch, attended, matrix, 0, x, Chain::Continue);
        self.traffic.pump()
    }

    /// Router logits, the choice of each token, and the route map of the layer.
    fn route(&mut self, index: usize, layer: &LayerWeights) -> Result<(), Fault> {
        self.norm(&layer.feed_norm)?;
        let (_, experts) = self.model.parts(index);
        let [count, chosen] = [experts.experts as usize, experts.chosen as usize];
        let (width, tokens) = (self.model.recipe.width as usize, self.batch.tokens);
        let work = &mut self.work;
        let side = Rows::new(&work.side[..tokens * width], width);
        let logits = &mut work.logits[..tokens * count];
        let matrix = weights(&self.shared, &layer.router)?;
        product(
            self.kernels,
            &self.pool,
            work.scratch,
            side,
            matrix,
            0,
            Grid::new(logits, count),
            Chain::Start,
        );
        let choices = &mut work.chosen[..tokens * chosen];
        let alphas = &mut work.weights[..tokens * chosen];
        let rows = logits.chunks_exact_mut(count);
        for ((logits, choices), alphas) in
            rows.zip(choices.chunks_exact_mut(chosen)).zip(alphas.chunks_exact_mut(chosen))
        {
            router::choose(self.kernels, experts, logits, choices, alphas);
        }
        let positions = &mut work.positions[..count];
        for (expert, position) in positions.iter_mut().enumerate() {
            *position = self.model.position(&layer.store, expert) as u16;
        }
        // What the router chose is in range by construction; a refusal here is a fault of this program.
        self.routes
            .build(choices, alphas, chosen, positions)
            .map_err(|_| Fault::Session(Status::Protocol))?;
        self.report.spread.add(&self.routes);
        let (routes, group) = (&self.routes, self.config.group as usize);
        self.traffic.residency.routed(|number| routes.group_len(number as usize, group) > 0)?;
        self.traffic.mailbox.event(EventKind::Routed, index, 0, 0);
        self.traffic.pump()
    }

    /// All groups of the layer with routes, in storage order, as they are published.
    fn experts(&mut self, index: usize, layer: &LayerWeights) -> Result<(), Fault> {
        loop {
            match self.traffic.residency.next()? {
                Next::Run(ready) => {
                    let [bank, group] = [ready.bank() as usize, ready.group() as usize];
                    self.traffic.mailbox.beat(index, bank);
                    self.traffic.mailbox.event(EventKind::BankBegin, index, bank, group);
                    let ran = self.group(index, layer, &ready);
                    self.traffic.residency.release(ready);
                    self.traffic.mailbox.event(EventKind::BankEnd, index, bank, group);
                    ran?;
                }
                Next::Wait => {
                    self.traffic.mailbox.event(EventKind::WaitBegin, index, 0, 0);
                    self.traffic.sleep()?;
                    self.traffic.mailbox.event(EventKind::WaitEnd, index, 0, 0);
                }
                Next::LayerDone => return Ok(self.traffic.residency.end_layer()?),
            }
            self.traffic.pump()?;
        }
    }

    /// The experts of one published bank.
    fn group(&mut self, index: usize, layer: &LayerWeights, ready: &Ready) -> Result<(), Fault> {
        let (width, tokens) = (self.model.recipe.width as usize, self.batch.tokens);
        let (store, group) = (&layer.store, self.config.group as usize);
        let topology = self.topologies[self.class[index] as usize].as_ref().ok_or(Status::BadDirectory)?;
        let first = ready.group() as usize * group;
        let routes = self.routes.group(ready.group() as usize, group);
        for place in 0..routes.places() {
            let rows = routes.place(place);
            if rows.is_empty() {
                continue;
            }
            let slot = self.traffic.residency.slot((first + place) as u32).ok_or(Status::Protocol)? as usize;
            let record = slot / group * self.traffic.bank_bytes + slot % group * store.record_bytes;
            let shared = &self.shared;
            let bind = |matrix: &ExpertMatrix| {
                let bytes = matrix.format.matrix_bytes(matrix.k, matrix.n);
                Ok::<_, Status>((*matrix, shared.record(ready, record + matrix.at, bytes)?))
            };
            let expert = Expert { gate: bind(&store.gate)?, up: bind(&store.up)?, down: bind(&store.down)? };
            let operator = Operator {
                kernels: self.kernels,
                pool: &self.pool,
                plan: &topology.plan,
                x: Rows::new(&self.work.side[..tokens * width], width),
            };
            operator.run(expert, rows, &mut self.work.x[..tokens * width], self.work.scratch);
            self.traffic.pump()?;
        }
        Ok(())
    }

    /// Final norm and head at the asked positions.
    pub(crate) fn head(&mut self) -> Result<(), Fault> {
        self.traffic.mailbox.event(EventKind::Head, self.model.layers(), 0, 0);
        let norm = self.model.final_norm;
        self.norm(&norm)?;
        self.outputs()?;
        for request in 0..self.batch.request_count {
            if self.batch.requests[request].rows != 0 {
                self.rows(request)?;
            }
        }
        while self.traffic.panel_free.contains(&false) {
            self.traffic.sleep()?;
        }
        self.traffic.pump()
    }

    /// Columns of a panel for `rows` rows, whole strips.
    fn panel_columns(&self, rows: usize) -> usize {
        (self.io.panel_pages * PAGE / 4 / rows.max(1) / TILE * TILE).max(TILE)
    }

    /// Candidates, log-probabilities and targets of the batch's outputs.
    fn outputs(&mut self) -> Result<(), Fault> {
        let (width, vocab) = (self.model.recipe.width as usize, self.model.recipe.vocab as usize);
        let (count, top_k) = (self.batch.output_count, self.config.top_k as usize);
        if count == 0 {
            return Ok(());
        }
        // Outputs are gathered to the front of the query buffer, which no layer needs any more. It holds at least one
        // row; as many outputs are taken at once as fit.
        let most = (self.work.query.len() / width).min(count).max(1);
        for first in (0..count).step_by(most) {
            let outputs = &self.batch.outputs[first..count.min(first + most)];
            let gathered = &mut self.work.query[..outputs.len() * width];
            for (row, output) in gathered.chunks_exact_mut(width).zip(outputs) {
                row.copy_from_slice(&self.work.side[output.token as usize * width..][..width]);
            }
            let summaries = &mut self.work.summaries[..outputs.len()];
            summaries.fill(Summary::new());
            let columns = (self.io.panel_pages * PAGE / 4 / outputs.len() / TILE * TILE).max(TILE);
            let matrix = weights(&self.shared, &self.model.head)?;
            for column in (0..vocab).step_by(columns) {
                let columns = columns.min(vocab - column);
                let panel = self.shared.panel(self.io.panel_page, self.io.panel_pages)?;
                let panel = &mut panel[..outputs.len() * columns];
                let x = Rows::new(gathered, width);
                let out = Grid::new(panel, columns);
                let strip = column / TILE;
                product(self.kernels, &self.pool, self.work.scratch, x, matrix, strip, out, Chain::Start);
                for (row, logits) in panel.chunks_exact(columns).enumerate() {
                    let best = &mut self.work.candidates[row * top_k..(row + 1) * top_k];
                    let target = outputs[row].target;
                    summaries[row].fold(self.kernels, logits, column as u32, target, best);
                }
                self.traffic.mailbox.beat(self.model.layers(), 0);
            }
            if summaries.iter().any(|summary| !summary.is_finite()) {
                return Err(Status::NotFinite.into());
            }
            let io = self.shared.io();
            for (row, summary) in summaries.iter().enumerate() {
                let put = |at: usize, value: u32| io[at].store(value, Ordering::Relaxed);
                let output = first + row;
                let logprob = summary.target_log_prob(&outputs[row]);
                if outputs[row].target != NO_TARGET {
                    put(self.io.target_logprobs + output, logprob.to_bits());
                }
                let best = &self.work.candidates[row * top_k..(row + 1) * top_k];
                for (rank, Candidate { id, logit }) in best.iter().enumerate() {
                    let at = self.io.tops + (output * top_k + rank) * TOP_WORDS;
                    put(at, if rank < summary.kept() { *id } else { NO_TARGET });
                    put(at + 1, logit.to_bits());
                    put(at + 2, summary.log_prob(*logit).to_bits());
                }
            }
        }
        Ok(())
    }

    /// All rows of one request, panel by panel through the host.
    fn rows(&mut self, request: usize) -> Result<(), Fault> {
        let (width, vocab) = (self.model.recipe.width as usize, self.model.recipe.vocab as usize);
        let span = self.batch.requests[request];
        let (first, rows) = (span.first as usize, span.tokens as usize);
        let columns = self.panel_columns(rows);
        let matrix = weights(&self.shared, &self.model.head)?;
        let mut panel = 0;
        for column in (0..vocab).step_by(columns) {
            let columns = columns.min(vocab - column);
            while !self.traffic.panel_free[panel] {
                self.traffic.sleep()?;
            }
            self.traffic.pump()?;
            let page = self.io.panel_page + panel * self.io.panel_pages;
            let logits = &mut self.shared.panel(page, self.io.panel_pages)?[..rows * columns];
            let x = Rows::new(&self.work.side[first * width..(first + rows) * width], width);
            let (strip, out) = (column / TILE, Grid::new(logits, columns));
            product(self.kernels, &self.pool, self.work.scratch, x, matrix, strip, out, Chain::Start);
            if !all_finite(&self.pool, logits) {
                return Err(Status::NotFinite.into());
            }
            self.traffic.panel_free[panel] = false;
            let message = message::Rows {
                ticket: 0,
                request: request as u32,
                first_row: 0,
                rows: rows as u32,
                first_column: column as u32,
                columns: columns as u32,
                page: page as u32,
            };
            self.traffic.mailbox.lend(panel as u32, message)?;
            self.traffic.mailbox.beat(self.model.layers(), 0);
            panel = (panel + 1) % self.traffic.panel_free.len();
        }
        Ok(())
    }
}

/// Whether no value is infinite or not a number.
fn all_finite(pool: &Pool, values: &mut [f32]) -> bool {
    use core::sync::atomic::AtomicBool;
    let sound = AtomicBool::new(true);
    pool.rows(Grid::new(values, 1), 1 << 16, &mut [], &|_, mut block, _| {
        let all = (0..block.rows()).all(|row| block.row(row)[0].is_finite());
        if !all {
            sound.store(false, Ordering::Relaxed);
        }
    });
    sound.load(Ordering::Relaxed)
}
