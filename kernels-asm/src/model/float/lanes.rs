//! How the lanes of vectors meet: element by element, even and odd halves of a pair, four bytes of a word.

use super::{Pair, Predicate, Vector};

pub(super) fn halves(word: u32) -> [u16; 2] {
    [word as u16, (word >> 16) as u16]
}

pub(super) fn word([low, high]: [u16; 2]) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

/// Words of one vector.
pub(super) fn words(u: &Vector, f: impl Fn(u32) -> u32) -> Vector {
    u.map(f)
}

/// Words of two vectors.
pub(super) fn words2(u: &Vector, v: &Vector, f: impl Fn(u32, u32) -> u32) -> Vector {
    core::array::from_fn(|i| f(u[i], v[i]))
}

/// Halfwords of one vector.
pub(super) fn halfwords(u: &Vector, f: impl Fn(u16) -> u16) -> Vector {
    u.map(|u| word(halves(u).map(&f)))
}

/// Halfwords of two vectors.
pub(super) fn halfwords2(u: &Vector, v: &Vector, f: impl Fn(u16, u16) -> u16) -> Vector {
    words2(u, v, |u, v| {
        let ([u0, u1], [v0, v1]) = (halves(u), halves(v));
        word([f(u0, v0), f(u1, v1)])
    })
}

/// Bytes of two vectors.
pub(super) fn bytes2(u: &Vector, v: &Vector, f: impl Fn(u8, u8) -> u8) -> Vector {
    words2(u, v, |u, v| {
        let (u, v) = (u.to_le_bytes(), v.to_le_bytes());
        u32::from_le_bytes(core::array::from_fn(|i| f(u[i], v[i])))
    })
}

/// Halfwords to words: even halfwords into the low vector, odd ones into the high.
pub(super) fn widen(u: &Vector, f: impl Fn(u16) -> u32) -> Pair {
    [u.map(|u| f(halves(u)[0])), u.map(|u| f(halves(u)[1]))]
}

/// Halfwords of two vectors to words, likewise.
pub(super) fn widen2(u: &Vector, v: &Vector, f: impl Fn(u16, u16) -> u32) -> Pair {
    core::array::from_fn(|side| words2(u, v, |u, v| f(halves(u)[side], halves(v)[side])))
}

/// Words of two vectors to halfwords: `u` into the even ones, `v` into the odd ones.
pub(super) fn narrow2(u: &Vector, v: &Vector, f: impl Fn(u32) -> u16) -> Vector {
    words2(u, v, |u, v| word([f(u), f(v)]))
}

/// Which bytes of a word go where: the first two of each list to the low vector's halfwords, or come from there.
pub(super) type Deal = [[usize; 2]; 2];
/// `vcvt`: neighbours stay neighbours.
pub(super) const NEIGHBOURS: Deal = [[0, 1], [2, 3]];
/// `vcvt2` and fp8: even bytes low, odd bytes high.
pub(super) const EVEN_ODD: Deal = [[0, 2], [1, 3]];

/// Bytes to halfwords of a pair.
pub(super) fn widen_bytes(u: &Vector, deal: Deal, f: impl Fn(u8) -> u16) -> Pair {
    deal.map(|[low, high]| {
        u.map(|u| {
            let bytes = u.to_le_bytes();
            word([f(bytes[low]), f(bytes[high])])
        })
    })
}

/// Bytes of two vectors to halfwords of a pair, with what the pair held.
pub(super) fn widen_bytes2(x: &Pair, u: &Vector, v: &Vector, f: impl Fn(u16, u8, u8) -> u16) -> Pair {
    core::array::from_fn(|side| {
        core::array::from_fn(|i| {
            let (x, u, v) = (halves(x[side][i]), u[i].to_le_bytes(), v[i].to_le_bytes());
            let [low, high] = EVEN_ODD[side];
            word([f(x[0], u[low], v[low]), f(x[1], u[high], v[high])])
        })
    })
}

/// Halfwords of two vectors to bytes: `u` is the low half of the deal.
pub(super) fn narrow_bytes2(u: &Vector, v: &Vector, deal: Deal, f: impl Fn(u16) -> u8) -> Vector {
    words2(u, v, |u, v| {
        let mut bytes = [0; 4];
        for (source, [low, high]) in [u, v].into_iter().zip(deal) {
            let [first, second] = halves(source);
            bytes[low] = f(first);
            bytes[high] = f(second);
        }
        u32::from_le_bytes(bytes)
    })
}

/// A comparison of words, as bytes of all ones.
pub(super) fn compare_words(u: &Vector, v: &Vector, f: impl Fn(u32, u32) -> bool) -> Predicate {
    words2(u, v, |u, v| if f(u, v) { u32::MAX } else { 0 })
}

/// A comparison of halfwords, as bytes of all ones.
pub(super) fn compare_halfwords(u: &Vector, v: &Vector, f: impl Fn(u16, u16) -> bool) -> Predicate {
    halfwords2(u, v, |u, v| if f(u, v) { u16::MAX } else { 0 })
}
