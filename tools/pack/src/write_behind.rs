//! Writing behind: a thread that writes while the next piece is read and encoded.
//!
//! Pieces go to the thread in buffers that come back empty, so memory is a few of the largest pieces, and no page is
//! faulted in twice. One thread to make and one to write keep two processors busy; more of them would wait for the disk.

use crate::error::{Error, Result};
use crate::output::Output;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

/// Pieces that wait for the disk.
const WAITING: usize = 2;

/// The making end.
pub(crate) struct WriteBehind {
    full: SyncSender<(u64, Vec<u8>)>,
    empty: Receiver<Vec<u8>>,
}

impl WriteBehind {
    /// Runs `body`, whose pieces have all been written when this returns.
    ///
    /// # Errors
    /// The disk's, else those of `body`.
    pub(crate) fn run<T>(output: &Output, body: impl FnOnce(Self) -> Result<T>) -> Result<T> {
        let (full, pieces) = sync_channel::<(u64, Vec<u8>)>(WAITING);
        let (written, empty) = channel();
        thread::scope(|scope| {
            let writer = scope.spawn(move || {
                pieces.into_iter().try_for_each(|(at, piece)| {
                    output.write_at(at, &piece)?;
                    // After the last piece nobody takes buffers back.
                    let _ = written.send(piece);
                    Ok(())
                })
            });
            let made = body(Self { full, empty });
            let wrote = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            wrote.and(made)
        })
    }

    /// An empty buffer.
    pub(crate) fn buffer(&self) -> Vec<u8> {
        let mut buffer = self.empty.try_recv().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Has `piece` written at byte `at`.
    ///
    /// # Errors
    /// When the thread has ended, which only a failed write makes it do; [`Self::run`] returns that one.
    pub(crate) fn write(&self, at: u64, piece: Vec<u8>) -> Result<()> {
        let ended = |_| Error::runtime("write", "an earlier write failed");
        self.full.send((at, piece)).map_err(ended)
    }
}
