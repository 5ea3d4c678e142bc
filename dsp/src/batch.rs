//! The batch of a pass: what the io segment asks for, copied to private memory and checked while it is copied.
//!
//! The host's words are read once, into tables that it cannot reach; everything after works on the copy.

use estream_idl::call::Config;
use estream_idl::io::{FLAG_ROWS, IoLayout, NO_TARGET, REQUEST_WORDS};
use estream_idl::recipe::Recipe;
use estream_idl::status::{Refusal, Status};
use estream_idl::sync::{AtomicU32, Ordering};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One request: a range of the pass's tokens and of its outputs.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RequestSpan {
    /// First token in the pass.
    pub first: u32,
    /// Tokens.
    pub tokens: u32,
    /// First output in the pass.
    pub first_output: u32,
    /// Outputs.
    pub outputs: u32,
    /// Nonzero: stream all rows of logits.
    pub rows: u32,
    /// First key block of this request among the pass's blocks of 64.
    pub first_block: u32,
}

/// One output: a position of the pass whose distribution is asked for.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OutputSpan {
    /// Token in the pass.
    pub token: u32,
    /// Target id or [`NO_TARGET`].
    pub target: u32,
}

/// The tables that a batch is read into.
pub struct Batch<'a> {
    /// `[max_requests]`.
    pub requests: &'a mut [RequestSpan],
    /// `[max_tokens]` token ids.
    pub ids: &'a mut [u32],
    /// `[max_outputs]`.
    pub outputs: &'a mut [OutputSpan],
    /// Requests of this pass.
    pub request_count: usize,
    /// Tokens of this pass.
    pub tokens: usize,
    /// Outputs of this pass.
    pub output_count: usize,
}

/// Keys of one attention block (law 1c).
pub const KEY_BLOCK: usize = 64;

impl Batch<'_> {
    /// Reads and checks the batch of `requests` requests.
    ///
    /// # Errors
    /// The refusal that names the offending item: too many of something, an empty request, a token outside the
    /// vocabulary (detail = its index in the pass), a position outside its request.
    pub fn read(
        &mut self,
        io: &[AtomicU32],
        layout: &IoLayout,
        config: &Config,
        recipe: &Recipe,
        requests: u32,
    ) -> Result<(), Refusal> {
        let word = |at: usize| io.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
        let limit = |status, needed: u64, limit: u32| Refusal {
            needed,
            limit: limit.into(),
            ..Refusal::from(status)
        };
        if requests == 0 || requests > config.max_requests {
            return Err(limit(Status::TooManyRequests, requests.into(), config.max_requests));
        }
        let (mut tokens, mut outputs, mut blocks) = (0u32, 0u32, 0u32);
        for index in 0..requests as usize {
            let at = layout.requests + index * REQUEST_WORDS;
            let [count, asked, flags] = [word(at), word(at + 1), word(at + 2)];
            if count == 0 {
                return Err(Refusal { detail: index as u32, ..Status::EmptyRequest.into() });
            }
            if count > recipe.context {
                return Err(limit(Status::TooManyTokens, count.into(), recipe.context));
            }
            let span = RequestSpan {
                first: tokens,
                tokens: count,
                first_output: outputs,
                outputs: asked,
                rows: flags & FLAG_ROWS,
                first_block: blocks,
            };
            if span.rows != 0 && !config.rows {
                return Err(limit(Status::BadConfig, 1, 0));
            }
            tokens = tokens.saturating_add(count);
            outputs = outputs.saturating_add(asked);
            if tokens > config.max_tokens {
                return Err(limit(Status::TooManyTokens, tokens.into(), config.max_tokens));
            }
            if outputs > config.max_outputs {
                return Err(limit(Status::TooManyOutputs, outputs.into(), config.max_outputs));
            }
            blocks += count.div_ceil(KEY_BLOCK as u32);
            self.requests[index] = span;
            for output in span.first_output..outputs {
                let position = word(layout.positions + output as usize);
                if position >= count {
                    return Err(Refusal {
                        detail: output,
                        ..limit(Status::BadPosition, position.into(), count)
                    });
                }
                let target = word(layout.targets + output as usize);
                if target != NO_TARGET && target >= recipe.vocab {
                    return Err(Refusal {
                        detail: output,
                        ..limit(Status::BadToken, target.into(), recipe.vocab)
                    });
                }
                self.outputs[output as usize] = OutputSpan { token: span.first + position, target };
            }
        }
        for (index, id) in self.ids[..tokens as usize].iter_mut().enumerate() {
            *id = word(layout.ids + index);
            if *id >= recipe.vocab {
                let refusal = limit(Status::BadToken, u64::from(*id), recipe.vocab);
                return Err(Refusal { detail: index as u32, ..refusal });
            }
        }
        self.request_count = requests as usize;
        self.tokens = tokens as usize;
        self.output_count = outputs as usize;
        Ok(())
    }

    /// The requests of this pass.
    #[must_use]
    pub fn spans(&self) -> &[RequestSpan] {
        &self.requests[..self.request_count]
    }

    /// The token ids of this pass.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.ids[..self.tokens]
    }
}
