//! EStream: prefill of Mixture-of-Experts models whose experts stay in flash.
//!
//! This is the library face of the product and the base of its command line. It is the one place, with the tests, where
//! host and firmware are joined; neither knows the other. [`Engine::open`] reads what a pack is, cuts the arena
//! ([`arena`]), verifies the pack and starts the firmware; [`Engine::prefill`] runs requests in one pass.
//!
//! ```no_run
//! use estream::{Arena, Engine, Options, Request};
//!
//! # fn main() -> estream::Result<()> {
//! let options = Options::new().arena(Arena::Bytes(512 << 20)).max_tokens(128).top_k(3);
//! let mut engine = Engine::open("olmoe.estream", options)?;
//! let responses = engine.prefill(&[Request::next_token([510, 5347, 273, 6181, 310])])?;
//! for candidate in &responses[0].outputs[0].top {
//!     println!("{:6} {:8.3} {:8.3}", candidate.id, candidate.logit, candidate.logprob);
//! }
//! println!("{} bytes at the most", engine.memory().peak_bytes);
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here reads the environment: choices come in as [`Options`].
#![forbid(unsafe_code)]

pub mod arena;
mod engine;
mod errors;
mod logits;
pub mod memory;
mod model;
mod observe;
mod options;
pub mod profiler;
mod request;
pub mod size;
pub mod tuned;

pub use arena::{Arena, Banks};
pub use engine::{Asked, Engine, NoRows, Pass, Prepared};
pub use errors::{EXIT_CODES, Error, Exit, Result};
pub use estream_host::transport::{Simulator, SkelReport};
pub use estream_host::{
    Canceller, IoMode, IoReport, Output, PageKind, ReadSpan, Report, RowSink, Top, Verify, VerifyReport,
};
pub use estream_idl::call::KernelSet;
pub use estream_idl::message::{Event, EventKind, Rows};
pub use estream_idl::streaming::{DenseWeights, Planning, Schedule, Streaming, WHOLE_GROUPS};
pub use logits::LogitsFile;
pub use model::{Model, bad_token, empty, too_many};
pub use options::{Device, MAX_OUTPUTS, MAX_REQUESTS, MAX_TOKENS, Options, TOP_K};
pub use request::{Answer, Request, Response};
