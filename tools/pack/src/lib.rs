//! GGUF to pack, and what goes with it: `inspect`, `verify`, token texts and synthetic models.
//!
//! The way of a model is `model_files` (which files), `source` (bytes at offsets: a file, or a seed) → [`gguf`] (checked metadata) → [`model`] (recipe
//! and matrices) → `layout` (where everything stands) → `encode` (strips and rows) → `output` (a file that appears whole
//! or not at all). Nothing else in the project reads GGUF; architectures have names here and nowhere else.
//!
//! What a file claims is checked before it is believed, allocated for or computed with; an [`Error`] says which file,
//! tensor and byte is to blame.
#![forbid(unsafe_code)]

mod convert;
mod encode;
mod error;
pub mod gguf;
mod inspect;
mod layout;
mod mapping;
pub mod model;
mod model_files;
mod order;
mod output;
mod pack_file;
mod source;
mod synth;
mod verify;
mod vocabulary;
mod write_behind;

pub use convert::{Options, Progress, Report, convert};
pub use error::{Error, Result};
pub use inspect::{Component, Duplicate, Group, Inspection, Records, Sizes, TypeShare, inspect};
pub use mapping::Mapping;
pub use model_files::ModelFiles;
pub use output::{Output, interrupt};
pub use source::{FileRange, Source};
pub use synth::{Family, Shape, Share, SynthFormat, SynthOptions, SynthReport, synth};
pub use verify::{Verified, verify};
pub use vocabulary::{Vocabulary, character_of, tokenizer_source};
