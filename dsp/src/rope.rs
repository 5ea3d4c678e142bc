//! Rotary angles: one table of cosines and sines a position, computed once when the session starts.

use crate::kernels::math;
use estream_idl::recipe::Rope;

/// Elements of a table for `positions` positions: cosines of all pairs, then sines, a position after the other.
#[must_use]
pub const fn elements(rope: &Rope, positions: usize) -> usize {
    positions * rope.width as usize
}

/// Fills a table of [`elements`].
pub fn fill(rope: &Rope, table: &mut [f32]) {
    let width = rope.width as usize;
    if width == 0 {
        return;
    }
    for (position, row) in table.chunks_exact_mut(width).enumerate() {
        let (cos, sin) = row.split_at_mut(width / 2);
        math::rope_angles(rope.base, position as u32, cos, sin);
    }
}

/// Cosines and sines of one position.
#[must_use]
pub fn angles<'a>(rope: &Rope, table: &'a [f32], position: usize) -> (&'a [f32], &'a [f32]) {
    let width = rope.width as usize;
    table[position * width..(position + 1) * width].split_at(width / 2)
}
