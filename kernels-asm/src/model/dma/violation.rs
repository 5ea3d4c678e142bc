//! The rules of the DMA engine, each with the numbers of its breach.

/// A side of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where bytes come from.
    Source,
    /// Where they go.
    Destination,
}

impl core::fmt::Display for Side {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Destination => "destination",
        })
    }
}

/// A rule of the engine that a kernel broke. `descriptor` is always the address of the descriptor at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// `dmstart` while the engine runs or is paused.
    #[error("dmstart({descriptor:#010x}) while the engine runs")]
    StartWhileRunning {
        /// The descriptor that was to start.
        descriptor: u32,
    },
    /// A start on address 0.
    #[error("DMA started on a null descriptor")]
    NullDescriptor,
    /// `dmlink` behind a descriptor that is not the last of the running chain.
    #[error("dmlink behind {tail:#010x}, but the running chain ends with {last:#010x}")]
    NotTheTail {
        /// Rs.
        tail: u32,
        /// The last descriptor of the chain.
        last: u32,
    },
    /// `dmresume` of something that is not paused.
    #[error("dmresume({descriptor:#010x}), which is not what dmpause returned")]
    NotPaused {
        /// Rs.
        descriptor: u32,
    },
    /// A descriptor that is not aligned to its size.
    #[error("DMA descriptor at {descriptor:#010x} is not aligned to {alignment} bytes")]
    Misaligned {
        /// Its address.
        descriptor: u32,
        /// Its size.
        alignment: u32,
    },
    /// A descriptor in memory that nothing maps.
    #[error("DMA descriptor at {descriptor:#010x} is not mapped")]
    Unmapped {
        /// Its address.
        descriptor: u32,
    },
    /// The done bit is set before the transfer.
    #[error("DMA descriptor at {descriptor:#010x} is started with its done bit set")]
    AlreadyDone {
        /// Its address.
        descriptor: u32,
    },
    /// A type or sub-type that is not served.
    #[error("DMA descriptor at {descriptor:#010x} of type {kind}, sub-type {sub_type}")]
    UnknownType {
        /// Its address.
        descriptor: u32,
        /// Bits 25:24 of word 1.
        kind: u32,
        /// Bits 7:0 of word 4; 0 for a linear descriptor.
        sub_type: u32,
    },
    /// A field is set that must be 0: compression, order, allocation hints, transform, width offsets.
    #[error("DMA descriptor at {descriptor:#010x} has {bits:#010x} in word {word}, which must be 0")]
    Reserved {
        /// Its address.
        descriptor: u32,
        /// Which word.
        word: u32,
        /// The offending bits.
        bits: u32,
    },
    /// No bytes to copy.
    #[error("DMA descriptor at {descriptor:#010x} copies nothing")]
    Empty {
        /// Its address.
        descriptor: u32,
    },
    /// Rows of a two-dimensional transfer overlap, or their stride is 0.
    #[error("DMA descriptor at {descriptor:#010x}: {side} stride {stride} for rows of {width} bytes")]
    Stride {
        /// Its address.
        descriptor: u32,
        /// Which side.
        side: Side,
        /// Bytes from row to row.
        stride: u32,
        /// Bytes of a row.
        width: u32,
    },
    /// Bypass is off on the VTCM side or on where the other side is memory.
    #[error("DMA descriptor at {descriptor:#010x}: bypass is {bypass} on its {side} at {address:#010x}")]
    Bypass {
        /// Its address.
        descriptor: u32,
        /// Which side.
        side: Side,
        /// Where that side is.
        address: u32,
        /// The bit.
        bypass: bool,
    },
    /// Bytes to copy that nothing maps, or that are only partly in VTCM.
    #[error(
        "DMA descriptor at {descriptor:#010x}: {length} bytes of its {side} at {address:#010x} are not mapped"
    )]
    OutsideMemory {
        /// Its address.
        descriptor: u32,
        /// Which side.
        side: Side,
        /// The first byte.
        address: u32,
        /// Bytes.
        length: u32,
    },
}
