//! The step table of the fused expert operator: which unit works on what, step by step.
//!
//! Three units work side by side: DMA fetches compressed weights into C, HVX decodes them into D (and activates and
//! scatters outputs), HMX multiplies into O. The table says what each does in every step, and nothing else: it is
//! computed from four numbers, O(1) a step, holds no bytes and no state. Executors differ (units side by side, whole
//! steps on one thread, serial); the table is the same, hence so is the order of every sum.
//!
//! # The rule
//! Strips are counted singly, j = 0…2n−1 over the n pairs: gate strips even, up strips odd. A strip is cut into parts of
//! whole chains where it does not fit ([`Cut`]), and a **slot** is one part's turn on the matrix unit:
//!
//! ```text
//! slot of part i of strip j             fetch 2 slots before │ decode 1 slot before │ multiply into O[j mod 4]
//! first slot of an even j, and slot 2n  activate pair (j−2, j−1) from O[(j−2) mod 4] and O[(j−1) mod 4] into H
//! slot of part i of down strip c        fetch 2 slots before │ decode 1 slot before │ multiply into O[c mod 2]
//! first slot of down strip c            scatter strip c−1 from O[(c−1) mod 2]; the last one a slot after the end
//! ```
//! One slot lies empty between the last up part and the first down part: the last pair is activated there, since a down
//! product reads all of H. The matrix unit alone idles in it. Step t of the table is slot t − 2: the first two steps fill
//! the pipeline and the last drains it.
//!
//! # Why the buffers suffice
//! C and D alternate by part: the part fetched in a step is two after the one multiplied, so it takes the C that was
//! decoded a step ago while the other C is decoded. O goes by strip: a pair is activated while the next gate strip
//! fills a third O, hence four; a down strip is scattered while the next one fills the other, hence two. All work of one
//! step may run at once and in any order: within a step no unit touches what another writes (tests replay this).
//!
//! Running the decode and fetch of the first down parts through the empty slot would save nothing: both would only wait
//! for the matrix unit one slot later.
#![forbid(unsafe_code)]

use crate::kernels::Chain;
use core::ops::Range;

/// Tiles of a chain: parts begin at multiples of it, so that a cut never changes how a sum is formed (law 1 a).
pub const CHAIN_TILES: usize = 32;

/// One of an expert's three matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Matrix {
    /// Width → inner, goes through the activation.
    Gate,
    /// Width → inner, multiplies the activated gate.
    Up,
    /// Inner → width.
    Down,
}

/// How the strips of a matrix are cut along k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// k-tiles of a strip.
    pub tiles: usize,
    /// k-tiles of every part but the last, which may be shorter: a multiple of [`CHAIN_TILES`], or the whole strip.
    pub part: usize,
}

impl Cut {
    /// The cut of a strip of `tiles` into as few parts of at most `limit` tiles as possible, as equal as chains allow:
    /// units that work on neighbouring parts side by side wait for the longer one.
    ///
    /// `limit` counts whole chains; a part is never shorter than one of them (or the strip).
    #[must_use]
    pub const fn balanced(tiles: usize, limit: usize) -> Self {
        let limit = if limit < CHAIN_TILES { CHAIN_TILES } else { limit - limit % CHAIN_TILES };
        if tiles <= limit {
            return Self { tiles, part: tiles };
        }
        let parts = tiles.div_ceil(limit);
        Self { tiles, part: tiles.div_ceil(parts).next_multiple_of(CHAIN_TILES) }
    }

    /// Parts of a strip.
    #[must_use]
    pub const fn parts(&self) -> usize {
        if self.part == 0 { 0 } else { self.tiles.div_ceil(self.part) }
    }

    /// The k-tiles of part `part`.
    const fn range(&self, part: usize) -> Range<usize> {
        let first = part * self.part;
        let end = first + self.part;
        first..if end < self.tiles { end } else { self.tiles }
    }
}

/// A part of a strip: what one fetch, decode or product is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The matrix.
    pub matrix: Matrix,
    /// The strip in it: output columns `32·strip..32·strip + 32`.
    pub strip: usize,
    /// The part of the strip.
    pub part: usize,
    /// The k-tiles of the part.
    pub tiles: Range<usize>,
}

/// DMA: compressed bytes of a piece into `C[c]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// What is fetched.
    pub piece: Piece,
    /// Which C it goes to.
    pub c: usize,
}

/// HVX: `C[c]` decoded into `D[d]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decode {
    /// What is decoded.
    pub piece: Piece,
    /// Which C it is read from.
    pub c: usize,
    /// Which D it goes to.
    pub d: usize,
}

/// HMX: Z (gate, up) or H (down) times `D[d]` into `O[o]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multiply {
    /// What is multiplied.
    pub piece: Piece,
    /// Which D it is read from.
    pub d: usize,
    /// Which O it goes to.
    pub o: usize,
    /// Whether `O[o]` is begun or carried on.
    pub chain: Chain,
}

/// HVX: `silu(O[gate])·O[up]` into columns `32·pair..32·pair + 32` of H.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activate {
    /// The gate and up strips' common number.
    pub pair: usize,
    /// Which O holds the gate's product.
    pub gate: usize,
    /// Which O holds the up's product.
    pub up: usize,
}

/// HVX: `O[o]`, weighted by route, added to columns `32·strip..32·strip + 32` of Y.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scatter {
    /// The down strip.
    pub strip: usize,
    /// Which O holds its product.
    pub o: usize,
}

/// What the units do in one step, all of it independent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// DMA.
    pub fetch: Option<Fetch>,
    /// HVX.
    pub decode: Option<Decode>,
    /// HMX.
    pub multiply: Option<Multiply>,
    /// HVX.
    pub activate: Option<Activate>,
    /// HVX.
    pub scatter: Option<Scatter>,
}

/// The step table of one chunk of rows, over a range of pairs and a range of down strips.
///
/// A whole expert is all pairs and all strips. Lanes that share an expert take ranges of columns: each runs its pairs
/// (no strips), all meet, each runs its strips (no pairs). Buffers are counted from the ranges' beginnings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pairs: Range<usize>,
    strips: Range<usize>,
    inward: Cut,
    outward: Cut,
}

impl Table {
    /// The table over `pairs` gate and up strips cut as `inward`, then `strips` down strips cut as `outward`.
    /// A range whose strips have no tiles counts as empty.
    #[must_use]
    pub const fn new(pairs: Range<usize>, inward: Cut, strips: Range<usize>, outward: Cut) -> Self {
        Self { pairs, strips, inward, outward }
    }

    /// Slots of the gate and up strips.
    fn inward_slots(&self) -> usize {
        2 * self.pairs.len() * self.inward.parts()
    }

    /// Slots of the down strips.
    fn outward_slots(&self) -> usize {
        self.strips.len() * self.outward.parts()
    }

    /// The slot of the first down part: past the empty slot, where there is a pair to activate.
    fn outward_first(&self) -> usize {
        let slots = self.inward_slots();
        slots + usize::from(slots > 0)
    }

    /// Pairs of the table.
    #[must_use]
    pub fn pairs(&self) -> u32 {
        self.pairs.len() as u32
    }

    /// The number of pair `pair` in the table.
    #[must_use]
    pub const fn pair_number(&self, pair: usize) -> u32 {
        (pair - self.pairs.start) as u32
    }

    /// The number of down strip `strip` in the table.
    #[must_use]
    pub const fn strip_number(&self, strip: usize) -> u32 {
        (strip - self.strips.start) as u32
    }

    /// The number of a piece in the order of all pieces: C and D alternate by it.
    #[must_use]
    pub fn turn(&self, piece: &Piece) -> u32 {
        let inward = |half: u32| (2 * self.pair_number(piece.strip) + half) * self.inward.parts() as u32;
        let first = match piece.matrix {
            Matrix::Gate => inward(0),
            Matrix::Up => inward(1),
            Matrix::Down => self.turns_of_strip(piece.strip) - self.outward.parts() as u32,
        };
        first + piece.part as u32
    }

    /// Pieces up to and with the last of pair `pair`.
    #[must_use]
    pub const fn turns_of_pair(&self, pair: usize) -> u32 {
        2 * (self.pair_number(pair) + 1) * self.inward.parts() as u32
    }

    /// Pieces up to and with the last of down strip `strip`.
    #[must_use]
    pub fn turns_of_strip(&self, strip: usize) -> u32 {
        self.inward_slots() as u32 + (self.strip_number(strip) + 1) * self.outward.parts() as u32
    }

    /// Steps of the table.
    #[must_use]
    pub fn len(&self) -> usize {
        match (self.inward_slots(), self.outward_slots()) {
            (0, 0) => 0,
            (inward, 0) => inward + 3,
            (_, outward) => self.outward_first() + outward + 3,
        }
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Step `step`, or `None` past the last.
    #[must_use]
    pub fn step(&self, step: usize) -> Option<Step> {
        if step >= self.len() {
            return None;
        }
        let fetch = self.piece(step).map(|(piece, turn)| Fetch { piece, c: turn % 2 });
        let decode = step.checked_sub(1).and_then(|slot| self.piece(slot));
        let decode = decode.map(|(piece, turn)| Decode { piece, c: turn % 2, d: turn % 2 });
        let Some(slot) = step.checked_sub(2) else {
            return Some(Step { fetch, decode, ..Step::default() });
        };
        let multiply = self.piece(slot).map(|(piece, turn)| {
            let o = match piece.matrix {
                Matrix::Gate => 2 * (piece.strip - self.pairs.start) % 4,
                Matrix::Up => (2 * (piece.strip - self.pairs.start) + 1) % 4,
                Matrix::Down => (piece.strip - self.strips.start) % 2,
            };
            let chain = if piece.part == 0 { Chain::Start } else { Chain::Continue };
            Multiply { piece, d: turn % 2, o, chain }
        });
        Some(Step {
            fetch,
            decode,
            multiply,
            activate: self.activation(slot),
            scatter: self.scattering(slot),
        })
    }

    /// All steps in order.
    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        (0..self.len()).filter_map(|step| self.step(step))
    }

    /// The piece whose turn on the matrix unit is `slot`, with its number in the order of all pieces.
    fn piece(&self, slot: usize) -> Option<(Piece, usize)> {
        let inward = self.inward_slots();
        if slot < inward {
            let (j, part) = (slot / self.inward.parts(), slot % self.inward.parts());
            let matrix = if j.is_multiple_of(2) { Matrix::Gate } else { Matrix::Up };
            let strip = self.pairs.start + j / 2;
            return Some((Piece { matrix, strip, part, tiles: self.inward.range(part) }, slot));
        }
        let at = slot.checked_sub(self.outward_first())?;
        if at >= self.outward_slots() {
            return None;
        }
        let (strip, part) = (self.strips.start + at / self.outward.parts(), at % self.outward.parts());
        let tiles = self.outward.range(part);
        Some((Piece { matrix: Matrix::Down, strip, part, tiles }, inward + at))
    }

    /// The pair that is complete when `slot` begins: on the first slot of every even j, and on the empty slot.
    fn activation(&self, slot: usize) -> Option<Activate> {
        let pair_slots = 2 * self.inward.parts();
        if slot == 0 || slot > self.inward_slots() || !slot.is_multiple_of(pair_slots) {
            return None;
        }
        let pair = slot / pair_slots - 1;
        Some(Activate { pair: self.pairs.start + pair, gate: 2 * pair % 4, up: (2 * pair + 1) % 4 })
    }

    /// The down strip that is complete when `slot` begins.
    fn scattering(&self, slot: usize) -> Option<Scatter> {
        let at = slot.checked_sub(self.outward_first())?;
        if at == 0 || at > self.outward_slots() || !at.is_multiple_of(self.outward.parts()) {
            return None;
        }
        let strip = at / self.outward.parts() - 1;
        Some(Scatter { strip: self.strips.start + strip, o: strip % 2 })
    }
}

/// The units' work, as an executor calls it. One implementor binds the table to weights, rows and buffers; where a unit
/// can fail it remembers that until the table is through, so that pieces in flight are never abandoned.
pub trait Units {
    /// Brings compressed bytes near.
    fn fetch(&mut self, fetch: &Fetch);
    /// Decodes.
    fn decode(&mut self, decode: &Decode);
    /// Multiplies.
    fn multiply(&mut self, multiply: &Multiply);
    /// Activates a pair.
    fn activate(&mut self, activate: &Activate);
    /// Scatters a down strip.
    fn scatter(&mut self, scatter: &Scatter);
}

/// Runs a table on one thread, step by step. The order inside a step is the one with the least waiting data: products
/// first, while their D is warm.
pub fn run_serial(table: &Table, units: &mut impl Units) {
    for step in table.steps() {
        if let Some(multiply) = &step.multiply {
            units.multiply(multiply);
        }
        if let Some(activate) = &step.activate {
            units.activate(activate);
        }
        if let Some(scatter) = &step.scatter {
            units.scatter(scatter);
        }
        if let Some(fetch) = &step.fetch {
            units.fetch(fetch);
        }
        if let Some(decode) = &step.decode {
            units.decode(decode);
        }
    }
}
