//! The short synchronous calls: `hello`, `plan`, `start`, `stop`, as postcard bytes over whatever carries a call.
//!
//! `plan` is a question without consequence: the sizes of every segment for a configuration, or a refusal with the bytes
//! needed. `start` takes the same question again, so that no state lies between the two.

use crate::address::SegmentPages;
use crate::status::{Refusal, Status};
use crate::streaming::Streaming;
use bitflags::bitflags;
use serde::{Deserialize, Serialize};

bitflags! {
    /// Sets of kernels.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct KernelSet: u32 {
        /// Portable scalar code: the reference of the firmware.
        const SCALAR = 1;
        /// x86-64 with AVX2 and FMA.
        const AVX2 = 2;
        /// Portable scalar code over activations in digits: the reference of the integer kernels.
        const SCALAR_INT8 = 4;
        /// x86-64 with AVX2, activations in digits.
        const AVX2_INT8 = 8;
        /// x86-64 with AVX2 and AVX-VNNI, activations in digits.
        const AVX_VNNI = 16;
        /// x86-64 with AVX-512 and its VNNI, activations in digits.
        const AVX512_VNNI = 32;
        /// Hexagon's kernels natively, over software models of its vector, matrix and DMA units.
        const HMX_MODEL = 64;
        /// Hexagon's vector and matrix units.
        const HEXAGON = 128;
        /// No set but a choice: activations in one int8 digit instead of two.
        const ONE_DIGIT = 1 << 16;
    }
}

impl KernelSet {
    /// The sets whose products run on a matrix unit or its model, on halves.
    pub const MATRIX: Self = Self::HMX_MODEL.union(Self::HEXAGON);
    /// The sets whose products take activations in digits: the only ones that [`Self::ONE_DIGIT`] goes with.
    pub const DIGITS: Self =
        Self::SCALAR_INT8.union(Self::AVX2_INT8).union(Self::AVX_VNNI).union(Self::AVX512_VNNI);

    /// The name of the single kernel set in `self`, as users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.difference(Self::ONE_DIGIT) {
            Self::SCALAR => "scalar",
            Self::AVX2 => "avx2",
            Self::SCALAR_INT8 => "scalar-int8",
            Self::AVX2_INT8 => "avx2-int8",
            Self::AVX_VNNI => "avx-vnni",
            Self::AVX512_VNNI => "avx512-vnni",
            Self::HMX_MODEL => "hmx-model",
            Self::HEXAGON => "hexagon",
            _ => "auto",
        }
    }

    /// How the products of the single kernel set in `self` take their activations, as reports name it.
    #[must_use]
    pub fn activations(self) -> &'static str {
        match (self.intersects(Self::DIGITS), self.contains(Self::ONE_DIGIT)) {
            (false, _) if self.intersects(Self::MATRIX) => "fp16",
            (false, _) => "f32",
            (true, false) => "int8x2",
            (true, true) => "int8",
        }
    }
}

/// Limits and choices that fix a session: memory is known from it and the pack's header alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Tokens of one pass, all requests together.
    pub max_tokens: u32,
    /// Requests of one pass.
    pub max_requests: u32,
    /// Positions of one pass whose results are asked for.
    pub max_outputs: u32,
    /// Candidates returned per output.
    pub top_k: u32,
    /// Whether passes may stream whole rows of logits through panels.
    pub rows: bool,
    /// Experts per group, G; clamped to the model's experts.
    pub group: u32,
    /// Banks, B; clamped to the groups of all layers.
    pub banks: u32,
    /// Reads in flight, Q; clamped to B.
    pub depth: u32,
    /// Threads that compute, the session's own among them.
    pub threads: u32,
    /// Kernels to use, any one of the set; empty = the device's best.
    pub kernels: KernelSet,
    /// Scratchpad (VTCM or cache) budget of the fused operator in bytes; 0 = the device's own.
    pub scratch: u32,
    /// Rows of a chunk, a multiple of 32; 0 = as many as the budget holds.
    pub row_chunk: u32,
    /// How weights are brought in.
    pub streaming: Streaming,
}

/// A configuration with the model that it is for; the host does not look into the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare<'a> {
    /// Limits and choices.
    pub config: Config,
    /// The pack's recipe extent, without padding.
    #[serde(borrow)]
    pub recipe: &'a [u8],
    /// The pack's directory extent, without padding.
    #[serde(borrow)]
    pub directory: &'a [u8],
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// Who are you, and what can you do?
    Hello {
        /// The host's [`crate::PROTOCOL`].
        protocol: u32,
    },
    /// What would this need?
    #[serde(borrow)]
    Plan(Prepare<'a>),
    /// Begin: tables are made, dense weights are asked for over the ring.
    Start(Prepare<'a>),
    /// End: the firmware drains its loads and frees its memory.
    Stop,
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The firmware's [`crate::PROTOCOL`].
    pub protocol: u32,
    /// Kernels that run here.
    pub kernels: KernelSet,
    /// Processors that compute.
    pub processors: u32,
    /// The scratchpad's size in bytes.
    pub scratch: u32,
}

/// What a session will be: sizes are bytes, choices are after clamping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Size of every segment.
    pub segments: SegmentPages,
    /// The firmware's private memory: tables, activations, K and V.
    pub private_bytes: u64,
    /// Stacks of the firmware's threads, as far as the platform commits them.
    pub stack_bytes: u64,
    /// G after clamping.
    pub group: u32,
    /// B after clamping.
    pub banks: u32,
    /// Q after clamping.
    pub depth: u32,
    /// Threads after clamping.
    pub threads: u32,
    /// The kernels chosen.
    pub kernels: KernelSet,
    /// Rows of a chunk.
    pub row_chunk: u32,
    /// Scratchpad bytes used.
    pub scratch_bytes: u32,
}

/// What a firmware answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To `hello`.
    Hello(Hello),
    /// To `plan` and `start`.
    Plan(Plan),
    /// To `stop`: how the session ended.
    Stopped(Status),
    /// No, with numbers.
    Refused(Refusal),
}

/// Bytes that hold any reply.
pub const REPLY_BYTES: usize = 256;
