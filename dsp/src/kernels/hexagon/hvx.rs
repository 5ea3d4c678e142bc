//! The vector unit's face: vectors of 128 bytes and one function an instruction, for kernels that are written once.
//!
//! On Hexagon the functions are the instructions; natively they are their software models, so that what runs under
//! `hmx-model` is the algorithm of the device, bit for bit as v73 computes it. A kernel sees slices of [`V`], values of
//! [`V`] and values of [`Q`] (a float in the unit's own format, which can be computed with but not looked at), and is safe
//! code; what is unsafe about vectors stands here and in `words`.

#[cfg(not(target_arch = "hexagon"))]
mod model;
#[cfg(target_arch = "hexagon")]
mod words;

#[cfg(not(target_arch = "hexagon"))]
pub use model::*;
#[cfg(target_arch = "hexagon")]
pub use words::*;

/// Bytes of a vector.
pub const BYTES: usize = size_of::<V>();
/// Floats of a vector.
pub const FLOATS: usize = BYTES / 4;

static_assertions::const_assert!(size_of::<V>() == 128 && align_of::<V>() == 128);

/// The vectors that `bytes` are, where they begin at a vector's border; bytes past the last whole vector are left out.
#[must_use]
pub fn vectors(bytes: &[u8]) -> Option<&[V]> {
    // SAFETY: a vector is 128 plain bytes, and every pattern of them is one.
    let (before, vectors, _) = unsafe { bytes.align_to::<V>() };
    before.is_empty().then_some(vectors)
}

/// The vectors that a row of floats is, where it begins at a vector's border; floats past the last whole vector are left
/// out.
#[must_use]
pub fn row(floats: &[f32]) -> Option<&[V]> {
    // SAFETY: as in `vectors`.
    let (before, vectors, _) = unsafe { floats.align_to::<V>() };
    before.is_empty().then_some(vectors)
}

/// As [`row`], to write.
#[must_use]
pub fn row_mut(floats: &mut [f32]) -> Option<&mut [V]> {
    // SAFETY: as in `vectors`.
    let (before, vectors, _) = unsafe { floats.align_to_mut::<V>() };
    before.is_empty().then_some(vectors)
}

/// A float in all lanes.
#[must_use]
#[inline(always)]
pub fn splat_f(float: f32) -> V {
    splat(float.to_bits())
}

/// The even and the odd halves as floats.
#[must_use]
#[inline(always)]
pub fn widen(v: V) -> (Q, Q) {
    mul_hf(v, splat_h(0x3c00))
}

/// A plain float in the unit's format, which below v79 has odd significands only: within a unit in the last place.
#[must_use]
#[inline(always)]
pub fn lift(v: V) -> Q {
    add(v, zero())
}

/// Entry b mod 16 of the table in the low halves of `table`'s first sixteen words: even bytes, odd bytes.
#[must_use]
#[inline(always)]
pub fn lookup(codes: V, table: V) -> (V, V) {
    lookup_in(codes, table, 0)
}

/// The largest unsigned halfword of all lanes.
#[must_use]
#[inline(always)]
pub fn largest_uh(v: V) -> u16 {
    to_words(most_uh(v))[0] as u16
}

/// As [`largest_uh`], in all lanes.
#[must_use]
#[inline(always)]
pub fn most_uh(v: V) -> V {
    let mut v = v;
    for bytes in [64, 32, 16, 8, 4, 2] {
        v = max_uh(v, rotate(v, bytes));
    }
    v
}

/// The largest signed word of all lanes.
#[must_use]
#[inline(always)]
pub fn largest_w(v: V) -> u32 {
    let mut v = v;
    for bytes in [64, 32, 16, 8, 4] {
        v = max_w(v, rotate(v, bytes));
    }
    to_words(v)[0]
}

/// The sum of all lanes, halves on halves: the one reduction tree of this backend.
#[must_use]
#[inline(always)]
pub fn sum(v: V) -> f32 {
    let mut v = v;
    for bytes in [64, 32, 16, 8, 4] {
        v = float(add(v, rotate(v, bytes)));
    }
    f32::from_bits(to_words(v)[0])
}

/// The largest float of all lanes.
#[must_use]
#[inline(always)]
pub fn largest_sf(v: V) -> f32 {
    let mut v = v;
    for bytes in [64, 32, 16, 8, 4] {
        v = max_sf(v, rotate(v, bytes));
    }
    f32::from_bits(to_words(v)[0])
}
