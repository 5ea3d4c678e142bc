//! The rules of the matrix unit, each with the numbers of its breach.

/// Which operand a violation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The activation tiles.
    Activation,
    /// The weight tiles.
    Weight,
    /// The output tile.
    Output,
    /// The bias block.
    Bias,
}

impl core::fmt::Display for Place {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Activation => "activation",
            Self::Weight => "weight",
            Self::Output => "output",
            Self::Bias => "bias block",
        })
    }
}

/// A rule of the unit that a kernel broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The operand is not in VTCM as a whole.
    #[error("HMX {place} at {address:#010x}, {length} bytes, is not in VTCM")]
    OutsideVtcm {
        /// Which operand.
        place: Place,
        /// Its first byte.
        address: u32,
        /// Its bytes.
        length: u32,
    },
    /// The address is no multiple of what the operand needs.
    #[error("HMX {place} at {address:#010x} is not aligned to {alignment} bytes")]
    Misaligned {
        /// Which operand.
        place: Place,
        /// Its address.
        address: u32,
        /// What it should be a multiple of.
        alignment: u32,
    },
    /// The operand crosses a multiple of 256 KiB, and VTCM is not one page.
    #[error("HMX {place} at {address:#010x}, {length} bytes, crosses a 256 KiB border")]
    CrossesPage {
        /// Which operand.
        place: Place,
        /// Its first byte.
        address: u32,
        /// Its bytes.
        length: u32,
    },
    /// Rt says a number of tiles that one multiply cannot take.
    #[error("HMX {place} of {tiles} tiles in one multiply, at most 32")]
    TooManyTiles {
        /// Which operand.
        place: Place,
        /// Tiles asked for.
        tiles: u32,
    },
    /// Rt is not the last byte of a whole number of tiles.
    #[error("HMX {place} with limit {limit:#x}, which is not 2048 n - 1")]
    PartialTile {
        /// Which operand.
        place: Place,
        /// The value of Rt.
        limit: u32,
    },
    /// Activation and weight have different lengths.
    #[error("HMX multiply of {activation} activation tiles and {weight} weight tiles")]
    UnequalTiles {
        /// Tiles of the activation.
        activation: u32,
        /// Tiles of the weight.
        weight: u32,
    },
    /// An activation word without its weight word in the same packet, or the other way round, or in the wrong order.
    #[error("HMX {0} without its partner in the same packet")]
    SplitPair(Place),
    /// Words in one packet that must each be alone.
    #[error("HMX packet with {0} words that must be alone")]
    CrowdedPacket(usize),
    /// A product added to an accumulator that `mxclracc.hf` has not cleared since the last store.
    #[error("HMX multiply into an accumulator that was not cleared")]
    AccumulatorNotCleared,
    /// A store from an accumulator that holds nothing.
    #[error("HMX store to {address:#010x} from an accumulator that holds nothing")]
    NothingAccumulated {
        /// Where the store would have gone.
        address: u32,
    },
    /// A store before a bias block was loaded since the unit was locked.
    #[error("HMX store to {address:#010x} without a bias block loaded")]
    NoBias {
        /// Where the store would have gone.
        address: u32,
    },
    /// Rt of a store is not 0.
    #[error("HMX store with Rt {0:#x}, not 0")]
    StoreOffset(u32),
    /// The unit was used by a thread that does not hold its lock.
    #[error("HMX used without its lock")]
    NotLocked,
    /// The unit was used without a power vote, which hangs the DSP.
    #[error("HMX used without a power vote")]
    NotPowered,
    /// A word that this model does not serve.
    #[error("HMX word without a model: {0}")]
    NotModelled(&'static str),
}
