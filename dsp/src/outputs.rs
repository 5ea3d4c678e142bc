//! The end of a pass: final norm and head at the asked positions, results and rows to the host.

use crate::engine::{Engine, Fault};
use crate::head::{Candidate, Summary};
use crate::kernels::Chain;
use crate::linear::{Activations, product};
use crate::mixer::some_strips;
use crate::platform;
use crate::pool::Pool;
use crate::view::{Grid, Rows};
use estream_idl::address::{PAGE, TILE};
use estream_idl::io::{IoLayout, NO_TARGET, TOP_WORDS};
use estream_idl::message::{self, EventKind};
use estream_idl::operator::Operator;
use estream_idl::status::Status;
use estream_idl::sync::Ordering;

impl Engine<'_> {
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
            let columns = panel_columns(&self.io, outputs.len());
            let x = Rows::new(gathered, width);
            let (backend, packed) = (&self.backend, &mut *self.work.packed);
            let x = Activations::pack(backend, &self.pool, x, width, &[self.model.head.format], packed);
            let mut column = 0;
            while column < vocab {
                let part = self.traffic.head_strips(&self.model, &mut self.shared, column / TILE)?;
                let matrix = some_strips(&self.shared, &self.model.head, &part)?;
                let columns = columns.min(part.end * TILE - column).min(vocab - column);
                let panel = self.panels.panel(self.io.panel_page, self.io.panel_pages)?;
                let panel = &mut panel[..outputs.len() * columns];
                let out = Grid::new(panel, columns);
                let strip = column / TILE - part.start;
                product(backend, &self.pool, self.work.scratch, x, matrix, strip, out, Chain::Start);
                let (kernels, pool, rows) = (backend.kernels, &self.pool, outputs.len());
                let all = (panel, &mut *summaries, &mut self.work.candidates[..rows * top_k]);
                platform::working_for(Operator::Head, || {
                    pool.tables(rows, 1, all, &|row, logits, summary, best| {
                        summary[0].fold(kernels, logits, column as u32, outputs[row].target, best);
                    });
                });
                self.traffic.mailbox.beat(self.model.layers(), 0);
                column += columns;
            }
            self.pool.check()?;
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
        let columns = panel_columns(&self.io, rows);
        let x = Rows::new(&self.work.side[first * width..(first + rows) * width], width);
        let (backend, packed) = (&self.backend, &mut *self.work.packed);
        let x = Activations::pack(backend, &self.pool, x, width, &[self.model.head.format], packed);
        let (mut panel, mut column) = (0, 0);
        while column < vocab {
            let part = self.traffic.head_strips(&self.model, &mut self.shared, column / TILE)?;
            let columns = columns.min(part.end * TILE - column).min(vocab - column);
            while !self.traffic.panel_free[panel] {
                self.traffic.sleep()?;
            }
            self.traffic.pump()?;
            let page = self.io.panel_page + panel * self.io.panel_pages;
            let logits = &mut self.panels.panel(page, self.io.panel_pages)?[..rows * columns];
            let matrix = some_strips(&self.shared, &self.model.head, &part)?;
            let (strip, out) = (column / TILE - part.start, Grid::new(logits, columns));
            product(backend, &self.pool, self.work.scratch, x, matrix, strip, out, Chain::Start);
            self.pool.check()?;
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
            column += columns;
        }
        Ok(())
    }
}

/// Columns of a panel for `rows` rows, whole strips.
fn panel_columns(io: &IoLayout, rows: usize) -> usize {
    (io.panel_pages * PAGE / 4 / rows.max(1) / TILE * TILE).max(TILE)
}

/// Whether no value is infinite or not a number.
fn all_finite(pool: &Pool<'_>, values: &mut [f32]) -> bool {
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
