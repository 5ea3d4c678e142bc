//! The engine's feed-forward parts: router, routed experts bank by bank, and units that all tokens pass.

use crate::engine::{Engine, Fault};
use crate::expert::{Expert, Operator};
use crate::kernels::Chain;
use crate::linear::{Activations, product};
use crate::mixer::weights;
use crate::model::{FeedWeights, Matrix, SparseWeights, Unit};
use crate::platform;
use crate::residency::{Next, Ready};
use crate::router;
use crate::topology;
use crate::view::{Grid, Rows};
use estream_idl::format::Format;
use estream_idl::message::EventKind;
use estream_idl::operator;
use estream_idl::recipe::FeedForward;
use estream_idl::status::Status;

/// Tokens whose experts are chosen by one task.
const ROUTED_ROWS: usize = 16;

impl Engine<'_> {
    /// Runs layer `index`: mixer, then feed-forward part.
    pub(crate) fn layer(&mut self, index: usize) -> Result<(), Fault> {
        let layer = self.layers[index].ok_or(Status::BadDirectory)?;
        let began = platform::now_ns();
        self.traffic.mailbox.event(EventKind::Layer, index, 0, 0);
        self.traffic.mailbox.beat(index, 0);
        self.traffic.pump()?;
        self.mixer(index, &layer.mixer_norm, &layer.mixer)?;
        self.norm(&layer.feed_norm)?;
        self.pack(&layer.feed);
        if let FeedWeights::Sparse(sparse) = &layer.feed {
            self.route(index, sparse)?;
        }
        let mixed = platform::now_ns();
        self.report.mixer_ns += mixed - began;
        match &layer.feed {
            FeedWeights::Dense(unit) => self.unit(index, unit)?,
            FeedWeights::Sparse(sparse) => {
                // What all tokens pass comes first: it hides loads.
                if let Some(unit) = &sparse.shared {
                    self.unit(index, unit)?;
                }
                self.experts(index, sparse)?;
            }
        }
        self.report.expert_ns += platform::now_ns() - mixed;
        Ok(self.pool.check()?)
    }

    /// Packs the normed rows of the side buffer for all that reads them in this layer: router and gated units.
    fn pack(&mut self, feed: &FeedWeights) {
        let (width, tokens) = (self.model.recipe.width as usize, self.batch.tokens);
        let side = Rows::new(&self.work.side[..tokens * width], width);
        let router = match feed {
            FeedWeights::Sparse(sparse) => Some(sparse.router.format),
            FeedWeights::Dense(_) => None,
        };
        let mut formats = heapless::Vec::<Format, 7>::new();
        formats.extend(router);
        formats.extend(topology::units(feed).iter().flatten().flat_map(Unit::formats));
        Activations::pack(&self.backend, &self.pool, side, width, &formats, self.work.packed);
    }

    /// Router logits, the choice of each token, and the route map of the layer.
    fn route(&mut self, index: usize, layer: &SparseWeights) -> Result<(), Fault> {
        let FeedForward::Experts(experts) = self.model.recipe.layer(index).feed_forward else {
            return Err(Fault::Pass(Status::BadDirectory.into()));
        };
        let [count, chosen] = [experts.experts as usize, experts.chosen as usize];
        let (width, tokens) = (self.model.recipe.width as usize, self.batch.tokens);
        let work = &mut self.work;
        let side = Rows::new(&work.side[..tokens * width], width);
        let side = Activations::packed(&self.backend, side, width, work.packed);
        let logits = &mut work.logits[..tokens * count];
        let matrix = weights(&self.shared, &layer.router)?;
        // The choice of experts hangs on small differences: its logits stay in f32.
        let (backend, out) = (self.backend.on_vectors(), Grid::new(logits, count));
        platform::working_for(operator::Operator::Router, || {
            product(&backend, &self.pool, work.scratch, side, matrix, 0, out, Chain::Start);
        });
        let bias = layer.bias.as_ref().map_or(Ok(&[][..]), |bias| self.shared.vector(bias))?;
        let choices = &mut work.chosen[..tokens * chosen];
        let alphas = &mut work.weights[..tokens * chosen];
        let kernels = self.backend.kernels;
        let (all, pool) = ((logits, &mut *choices, &mut *alphas), &self.pool);
        platform::working_for(operator::Operator::Router, || {
            pool.tables(tokens, ROUTED_ROWS, all, &|_, logits, choices, alphas| {
                let rows = choices.chunks_exact_mut(chosen).zip(alphas.chunks_exact_mut(chosen));
                for (logits, (choices, alphas)) in logits.chunks_exact_mut(count).zip(rows) {
                    router::choose(kernels, &experts, logits, bias, choices, alphas);
                }
            });
        });
        let positions = &mut work.positions[..count];
        for (expert, position) in positions.iter_mut().enumerate() {
            *position = self.model.position(&layer.store, expert) as u16;
        }
        // What the router chose is in range by construction; a refusal here is a fault of this program.
        self.routes
            .build(choices, alphas, chosen, positions)
            .map_err(|_| Fault::Session(Status::Protocol))?;
        self.report.spread.add(&self.routes);
        self.traffic.routed(&self.routes)?;
        self.traffic.mailbox.event(EventKind::Routed, index, 0, 0);
        self.traffic.pump()
    }

    /// All groups of the layer with routes, in storage order, as they are published.
    fn experts(&mut self, index: usize, layer: &SparseWeights) -> Result<(), Fault> {
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
    fn group(&mut self, index: usize, layer: &SparseWeights, ready: &Ready) -> Result<(), Fault> {
        let (width, tokens) = (self.model.recipe.width as usize, self.batch.tokens);
        let (store, group) = (&layer.store, self.config.group as usize);
        let first = ready.group() as usize * group;
        let routes = self.routes.group(ready.group() as usize, group);
        for place in 0..routes.places() {
            let rows = routes.place(place);
            if rows.is_empty() {
                continue;
            }
            let slot = self.traffic.residency.slot((first + place) as u32).ok_or(Status::Protocol)? as usize;
            let record = slot % group * store.record_bytes;
            let topology = self.topology(2 * index, &store.unit)?;
            let shared = &self.shared;
            let bind = |matrix: &Matrix| {
                Ok::<_, Status>((*matrix, shared.record(ready, record + matrix.at, matrix.bytes())?))
            };
            let Unit { gate, up, down } = &store.unit;
            let expert = Expert { gate: bind(gate)?, up: bind(up)?, down: bind(down)? };
            let products = self.backend.serving(&store.unit.formats());
            let side = Rows::new(&self.work.side[..tokens * width], width);
            let operator = Operator {
                kernels: self.backend.kernels,
                products,
                pool: &self.pool,
                place: &topology.place,
                x: Activations::packed(&self.backend, side, width, self.work.packed).of(products),
            };
            operator.run(expert, rows, &mut self.work.x[..tokens * width], self.work.scratch);
            self.traffic.pump()?;
        }
        Ok(())
    }

    /// A resident unit over all tokens, a chunk of rows at a time so that banks keep filling meanwhile.
    fn unit(&mut self, index: usize, unit: &Unit) -> Result<(), Fault> {
        let (width, tokens) = (self.model.recipe.width as usize, self.batch.tokens);
        let topology =
            self.topologies[self.class[2 * index + 1] as usize].as_ref().ok_or(Status::BadDirectory)?;
        let shared = &self.shared;
        let bind = |matrix: &Matrix| Ok::<_, Status>((*matrix, shared.matrix(matrix)?));
        let expert = Expert { gate: bind(&unit.gate)?, up: bind(&unit.up)?, down: bind(&unit.down)? };
        for routes in self.everyone[..tokens].chunks(topology.place.rows()) {
            let products = self.backend.serving(&unit.formats());
            let side = Rows::new(&self.work.side[..tokens * width], width);
            let operator = Operator {
                kernels: self.backend.kernels,
                products,
                pool: &self.pool,
                place: &topology.place,
                x: Activations::packed(&self.backend, side, width, self.work.packed).of(products),
            };
            operator.run(expert, routes, &mut self.work.x[..tokens * width], self.work.scratch);
            self.traffic.pump()?;
        }
        Ok(())
    }
}
