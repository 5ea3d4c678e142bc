//! Instruction words that a simulator must serve itself: which one a word is, and where its operands stand.
//!
//! Hexagon words are 32 bits wide; bits 15:14 place a word in its packet ([`Parse`]) and belong to no instruction. Three
//! families need a model: HMX (no assembler in the open knows it, no emulator runs it), user DMA, and HVX floating point
//! (the emulator runs none of it, and ten forms silently wrong). Everything else is the emulator's. A duplex (parse bits 00)
//! holds two 13-bit scalar instructions and is never one of ours, whatever its other bits look like.
//!
//! No form has a new-value operand of its own: in a packet with a `.cur` or `.tmp` load the register number is the same and
//! the packet decides what is read, so that is the reader's business, as is a `.new` store fed by a form's result.

mod dma;
mod float;
mod hmx;

pub use dma::Dma;
pub use float::Float;
pub use hmx::{Block, Hmx, Reach};

/// What bits 15:14 say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parse {
    /// Two 13-bit instructions, the last of their packet.
    Duplex,
    /// More words follow.
    More,
    /// More words follow, and in the first or second word of a packet: a hardware loop ends here.
    MoreLoopEnd,
    /// The last word of its packet.
    Last,
}

/// Reads bits 15:14.
#[must_use]
pub const fn parse(word: u32) -> Parse {
    match word >> 14 & 3 {
        0 => Parse::Duplex,
        1 => Parse::More,
        2 => Parse::MoreLoopEnd,
        _ => Parse::Last,
    }
}

/// The same word with other parse bits.
#[must_use]
pub const fn with_parse(word: u32, parse: Parse) -> u32 {
    let bits = match parse {
        Parse::Duplex => 0,
        Parse::More => 1,
        Parse::MoreLoopEnd => 2,
        Parse::Last => 3,
    };
    word & !(3 << 14) | bits << 14
}

/// A register that a form reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// r0 to r31.
    Scalar(u8),
    /// v0 to v31.
    Vector(u8),
    /// Two vectors, by the number as encoded: even for v1:0, odd for the reversed pair v0:1. See [`Register::low`].
    Pair(u8),
    /// q0 to q3.
    Predicate(u8),
}

impl Register {
    /// The number of the register, of a pair that of its low half.
    #[must_use]
    pub const fn low(self) -> u8 {
        match self {
            Self::Scalar(n) | Self::Vector(n) | Self::Pair(n) | Self::Predicate(n) => n,
        }
    }

    /// The number of a pair's high half; the register's own number for all others.
    #[must_use]
    pub const fn high(self) -> u8 {
        match self {
            Self::Pair(n) => n ^ 1,
            other => other.low(),
        }
    }
}

/// Which instruction a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The matrix unit.
    Hmx(Hmx),
    /// The user-DMA engine.
    Dma(Dma),
    /// HVX floating point.
    Float(Float),
}

/// A word that a simulator must serve, with its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Which instruction.
    pub operation: Operation,
    /// Registers read, in the order of the mnemonic (Vu, Vv or Rs, Rt). The old value of [`Form::destination`] is read too
    /// where the form [accumulates](Form::accumulates).
    pub sources: [Option<Register>; 2],
    /// The register written.
    pub destination: Option<Register>,
    /// Whether the destination's old value is an operand (`+=`, `&=`, `|=`, `^=`).
    pub accumulates: bool,
}

impl Form {
    /// The instruction as the manuals spell it, for messages.
    #[must_use]
    pub fn mnemonic(&self) -> &'static str {
        match self.operation {
            Operation::Hmx(hmx) => hmx.mnemonic(),
            Operation::Dma(dma) => dma.mnemonic(),
            Operation::Float(float) => float.mnemonic(),
        }
    }

    /// Whether [`model`](crate::model) can serve it. A loader refuses the rest by name: words that no kernel of ours emits
    /// and no public source defines well enough.
    #[must_use]
    pub fn is_modelled(&self) -> bool {
        match self.operation {
            Operation::Hmx(hmx) => hmx.is_modelled(),
            Operation::Dma(_) => true,
            Operation::Float(float) => float.is_modelled(),
        }
    }
}

/// The form of a word that a simulator must serve; none for words that are somebody else's.
#[must_use]
pub fn identify(word: u32) -> Option<Form> {
    if parse(word) == Parse::Duplex {
        return None;
    }
    hmx::identify(word).or_else(|| dma::identify(word)).or_else(|| float::identify(word))
}

/// A five-bit field.
const fn field(word: u32, low_bit: u32) -> u8 {
    (word >> low_bit & 31) as u8
}
