//! The start-up self-test: a backend that computes a small known case wrongly is refused, with the numbers.
//!
//! The case is built so that its result is exact in any order of summation, in f32 and in one or two digits alike: small
//! multiples of 257, the largest of each 32-block being 127 of them (a scale of 1 or 257), times powers of two. Whatever is
//! wrong (a table, a nibble order, a lane, a digit), some element differs.

use crate::kernels::{Chain, Decoded, Products, Strip, WORD};
use crate::view::{Block, Rows};
use estream_idl::address::TILE;
use estream_idl::format::Format;
use estream_idl::status::{Refusal, Status};
use estream_idl::tile;

/// Tiles of the case: two, so that chains continue.
const TILES: usize = 2;
const K: usize = TILES * TILE;
const ROWS: usize = 5;
const STRIP_BYTES: usize = Format::Q4_0.strip(K).bytes;

const fn code(k: usize, column: usize) -> u8 {
    ((k * 7 + column * 3) % 16) as u8
}

/// Most f32-sized words of a packed block and of a decoded tile.
const WORDS: [usize; 2] = [2 * TILE, 2 * TILE * TILE];

/// An activation, in units of 257.
const fn activation(row: usize, k: usize) -> i32 {
    if k % TILE == 3 * row { 127 } else { ((row * 5 + k * 11) % 15) as i32 - 7 }
}

/// Checks a backend's products.
///
/// # Errors
/// `SelfTest`, with the bits of the value that came out (`needed`), those expected (`limit`), and the element (`detail`).
pub fn check(products: &dyn Products) -> Result<(), Refusal> {
    let layout = Format::Q4_0.strip(K);
    let mut bytes = [0u8; STRIP_BYTES];
    for k in 0..K {
        for column in 0..TILE {
            let place = tile::nibble(k % TILE, column);
            let at = k / TILE * tile::NIBBLE_BYTES + place.byte;
            bytes[at] |= code(k, column) << if place.high { 4 } else { 0 };
        }
    }
    // Scales 1/2 and 2, as halves, tile by tile.
    for (index, half) in bytes[layout.scales..].chunks_exact_mut(2).take(TILES * TILE).enumerate() {
        let bits: u16 = if index < TILE { 0x3800 } else { 0x4000 };
        half.copy_from_slice(&bits.to_le_bytes());
    }
    let strip = Strip { format: Format::Q4_0, k: K, bytes: &bytes };
    let packing = products.packing(&[strip.format]);
    let [block, tile] = [packing.block, packing.tile].map(|bytes| bytes / WORD);
    let mut x = [0f32; ROWS * TILES * WORDS[0]];
    let stride = TILES * block;
    for (row, packed) in x.chunks_exact_mut(stride).take(ROWS).enumerate() {
        let row: [f32; K] = core::array::from_fn(|k| (257 * activation(row, k)) as f32);
        products.pack(&row, packed);
    }
    let x = Rows::new(&x[..ROWS * stride], stride);
    let mut out = [0f32; ROWS * TILE];
    let mut words = [0f32; WORDS[1]];
    for part in 0..TILES {
        let words = &mut words[..tile];
        products.decode(strip, part..part + 1, words);
        let weights = Decoded { format: strip.format, k: TILE, words, ahead: &[] };
        let chain = if part == 0 { Chain::Start } else { Chain::Continue };
        products.multiply(x.from_column(part * block).into(), weights, Block::new(&mut out, TILE), chain);
    }
    for (index, &value) in out.iter().enumerate() {
        let (row, column) = (index / TILE, index % TILE);
        let term = |k: usize| {
            let quarters = if k < TILE { 2 } else { 8 };
            257 * quarters * (i32::from(code(k, column)) - 8) * activation(row, k)
        };
        let expected = (0..K).map(term).sum::<i32>() as f32 / 4.0;
        if value != expected {
            return Err(Refusal {
                status: Status::SelfTest,
                needed: u64::from(value.to_bits()),
                limit: u64::from(expected.to_bits()),
                detail: index as u32,
            });
        }
    }
    Ok(())
}
