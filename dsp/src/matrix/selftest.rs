//! The matrix backend's start-up self-test: one small product through every unit, on the thread that owns them.
//!
//! Activations of −1, 0 and 1, nibbles under scales of 1 and 2: sums below 1,024, which halves hold exactly, so that any
//! wrong table, order, tile, descriptor or exponent is off by a whole number. What is left is the vector unit's own
//! rounding, far below a half.

use crate::kernels::Chain;
use crate::linear::Weights;
use crate::matrix::operator::Rowed;
use crate::platform::working_for;
use crate::pool::Pool;
use crate::view::{Grid, Rows};
use estream_idl::address::TILE;
use estream_idl::format::Format;
use estream_idl::operator::Operator;
use estream_idl::status::{Refusal, Status};
use estream_idl::tile;

const TILES: usize = 2;
const K: usize = TILES * TILE;
const ROWS: usize = 5;
const STRIP_BYTES: usize = Format::Q4_0.strip(K).bytes;

/// Bytes at a vector's border, as weights stand in memory.
#[repr(C, align(128))]
struct Strip([u8; STRIP_BYTES]);

const fn code(k: usize, column: usize) -> u8 {
    ((k * 7 + column * 3) % 16) as u8
}

const fn activation(row: usize, k: usize) -> i32 {
    ((row * 5 + k * 11) % 3) as i32 - 1
}

/// Checks the units of `pool`; without any there is nothing to check.
///
/// # Errors
/// `SelfTest`, with the bits of the value that came out (`needed`), those expected (`limit`), and the element (`detail`);
/// or what the units themselves refuse.
pub fn check(pool: &Pool<'_>, scratch: &mut [f32]) -> Result<(), Refusal> {
    let Some(machine) = pool.matrix() else { return Ok(()) };
    let layout = Format::Q4_0.strip(K);
    let mut strip = Strip([0; STRIP_BYTES]);
    for k in 0..K {
        for column in 0..TILE {
            let place = tile::nibble(k % TILE, column);
            let at = k / TILE * tile::NIBBLE_BYTES + place.byte;
            strip.0[at] |= code(k, column) << if place.high { 4 } else { 0 };
        }
    }
    for (index, half) in strip.0[layout.scales..].chunks_exact_mut(2).take(TILES * TILE).enumerate() {
        let bits: u16 = if index < TILE { 0x3c00 } else { 0x4000 };
        half.copy_from_slice(&bits.to_le_bytes());
    }
    let x: [f32; ROWS * K] = core::array::from_fn(|index| activation(index / K, index % K) as f32);
    let mut out = [0f32; ROWS * TILE];
    let weights = Weights { format: Format::Q4_0, k: K, bytes: &strip.0 };
    let grid = Rowed::Whole(Grid::new(&mut out, TILE));
    working_for(Operator::SelfTest, || {
        machine.product(pool, scratch, Rows::new(&x, K), weights, 0, grid, Chain::Start);
    });
    machine.check()?;
    for (index, &value) in out.iter().enumerate() {
        let (row, column) = (index / TILE, index % TILE);
        let term = |k: usize| {
            let scale = if k < TILE { 1 } else { 2 };
            scale * (i32::from(code(k, column)) - 8) * activation(row, k)
        };
        let expected = (0..K).map(term).sum::<i32>() as f32;
        if (value - expected).abs() < 0.5 {
            continue;
        }
        return Err(Refusal {
            status: Status::SelfTest,
            needed: u64::from(value.to_bits()),
            limit: u64::from(expected.to_bits()),
            detail: index as u32,
        });
    }
    Ok(())
}
