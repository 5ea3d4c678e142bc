//! A sink for rows of logits that keeps them whole, and refuses a row that comes twice or not at all.

use estream::{RowSink, Rows};
use ndarray::Array2;
use std::io;

/// Logits of the requests of a pass, as they come in.
#[derive(Debug)]
pub struct Collector {
    requests: Vec<Array2<f32>>,
    missing: usize,
}

impl Collector {
    /// Room for requests of these lengths over a vocabulary.
    #[must_use]
    pub fn new(lengths: &[usize], vocabulary: usize) -> Self {
        let requests =
            lengths.iter().map(|&tokens| Array2::from_elem((tokens, vocabulary), f32::NAN)).collect();
        Self { requests, missing: lengths.iter().sum::<usize>() * vocabulary }
    }

    /// The logits, `[tokens, vocabulary]` for each request.
    ///
    /// # Panics
    /// When some were never handed over.
    #[must_use]
    pub fn finish(self) -> Vec<Array2<f32>> {
        assert_eq!(self.missing, 0, "logits were not handed over");
        self.requests
    }
}

impl RowSink for Collector {
    fn rows(&mut self, rows: &Rows, panel: &[f32]) -> io::Result<()> {
        let logits = &mut self.requests[rows.request as usize];
        let columns = rows.columns as usize;
        assert_eq!(panel.len(), rows.rows as usize * columns, "a panel has another size than its rows");
        for (row, values) in panel.chunks_exact(columns).enumerate() {
            for (column, &value) in values.iter().enumerate() {
                let place = &mut logits[(rows.first_row as usize + row, rows.first_column as usize + column)];
                assert!(place.is_nan() && !value.is_nan(), "a logit comes twice, or is not a number");
                *place = value;
                self.missing -= 1;
            }
        }
        Ok(())
    }
}
