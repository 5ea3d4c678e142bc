//! The online softmax of attention: 32 rows of scores over a block of keys, in halves where halves do.
//!
//! Scores come and weights go in the layout of tiles, so that a lane stays where it is: vector p holds rows 2p and 2p + 1 in
//! turns. What a row alone has (largest score, sum, decay) is a lane of one vector for all 32 rows ([`Running`]).
//!
//! A weight is a power of two, `2^(t − top + 8)` for a score of t in units of ln 2: the matrix unit has room for 64 of them
//! beside values below 2, and what is far below the largest is still a normal half. Adding 151 − top to t makes a float in
//! 128..152, whose bits are a whole number of 2^-16: the seven above the point, less 128, are the half's exponent, and the
//! sixteen below it give the half's fraction by a cubic in fractions of 2^15. So no exponential is computed, and below the
//! least exponent a weight fades out to 0 by itself. The sum is that of the halves themselves.
//!
//! # Bound
//! A weight is within 5.5·10⁻⁴ of `2^(t − top + 8)`, half a unit in its last place being 4.9·10⁻⁴, where it is at least
//! 2^-14; a smaller one is between 0 and 2^-14. To that comes what t and top themselves are off as floats: 2^-23 of each.
//!
//! # Packets
//! A vector of 64 takes 1 load and 1 store in 2 packets at most. What binds is arithmetic: of its products six need both
//! multipliers, six words the shift unit, and nine any unit, 27 places of units of which a packet has four; with its share
//! of the sums it is 8 packets. Loops are written for several vectors side by side, as the compiler pipelines none.

use super::decode::{OVERFLOW, PAIRS};
use super::float::{exp, reciprocal};
use super::hvx::{
    BYTES, FLOATS, Q, V, add, add_h, add_q, add_qv, and, deal_w, even_halves, float, interleave_w, lift,
    max_hf, max_sf, max_uh, max_w, mul, mul_h, mul_q, odd_halves, or, sar_h, shl_h, shl_w, splat, splat_f,
    splat_h, splat_q, sub, sub_w, to_words, vectors, where_gt_w, widen, words_q, xor, zero,
};
use super::tiles::watch;

/// Row pairs of a tile.
pub type Tile = [V; PAIRS];

/// The least of the floats whose bits are a whole number of 2^-16.
const FLOOR: f32 = 128.0;
/// What the largest score becomes: the floor, and the exponent of 2^8 in a half.
const CEILING: f32 = FLOOR + 23.0;
/// Bits of a half's fraction.
const FRACTION: u32 = 10;
/// `2^((1 + x)/2) − 1` in units of 2^-14 for x in −1..1 in fractions of 2^15, highest power first: fitted to the rounding of
/// [`mul_h`]. The last has half a unit of a half's fraction more.
const CUBIC: [i16; 4] = [160, 1408, 8031, 6790];
/// Bits that a fraction in units of 2^-14 has more than a half's.
const MORE: u32 = 14 - FRACTION;

/// Largest scores up to 2^22, in units of ln 2, leave weights within a factor of 2 of what they are meant to be, the same one
/// for equal scores; others are thousands away. Beyond, weights would be anything: that counts as saturated.
const FARTHEST: f32 = 4_194_304.0;
const SIGN: u32 = 1 << 31;

/// What stands for the largest score of a row that has seen none: it decays to 0 beside any other.
const UNSEEN: f32 = -1e30;
/// The least half.
const LEAST: u32 = 0xfbff_fbff;

/// What goes on from block to block, a row of the tile in each lane.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Running {
    /// The largest score so far, in units of ln 2.
    top: V,
    /// The weights' sum.
    sum: V,
    /// What sums before the last block are multiplied by.
    decay: V,
}

impl Running {
    /// Before the first block.
    #[must_use]
    pub fn new() -> Self {
        Self { top: splat_f(UNSEEN), sum: zero(), decay: zero() }
    }

    /// One by the sum, for each row.
    #[must_use]
    pub fn inverse(&self) -> [u32; FLOATS] {
        const ONE: u32 = 1f32.to_bits();
        const EXPONENT: u32 = 0xff << 23;
        let fraction = or(and(self.sum, splat(!EXPONENT)), splat(ONE));
        let power = sub_w(and(self.sum, splat(EXPONENT)), splat(ONE));
        to_words(sub_w(float(reciprocal(lift(fraction))), power))
    }
}

impl Default for Running {
    fn default() -> Self {
        Self::new()
    }
}

/// Adjacent lanes of `a` and `b` brought together: those of a, then those of b.
#[inline(always)]
fn meet(a: V, b: V, f: impl Fn(V, V) -> V) -> V {
    let (even, odd) = deal_w(a, b);
    f(even, odd)
}

#[inline(always)]
fn add_float(a: V, b: V) -> V {
    float(add(a, b))
}

/// What a tile of rows sees of keys that begin at the rows' own position, as [`PAIRS`] vectors: each row the keys up to its
/// own number.
#[repr(align(128))]
struct Triangle([u8; PAIRS * BYTES]);

static TRIANGLE: Triangle = {
    let mut bytes = [0; PAIRS * BYTES];
    let mut at = 0;
    while at < bytes.len() {
        let (row, key) = (at / BYTES * 2 + at / 2 % 2, at % BYTES / 4);
        bytes[at] = if key <= row { 0xff } else { 0 };
        at += 1;
    }
    Triangle(bytes)
};

/// The largest score of each row among those that it sees, as halves in the order of rows, and again.
#[inline(always)]
fn largest<const N: usize, const MASKED: bool>(scores: [&Tile; N], masks: &Tile, seen: &mut V) -> V {
    let mut quarters = [zero(); PAIRS / 4];
    for (quarter, top) in quarters.iter_mut().enumerate() {
        let [a, b, c, d] = core::array::from_fn(|pair| {
            let pair = 4 * quarter + pair;
            let mut scores = scores.map(|scores| scores[pair]);
            scores.iter().for_each(|&score| *seen = watch(*seen, score));
            if MASKED {
                let last = &mut scores[N - 1];
                *last = xor(splat(LEAST), and(xor(splat(LEAST), *last), masks[pair]));
            }
            scores.into_iter().reduce(max_hf).unwrap_or(zero())
        });
        *top = meet(meet(a, b, max_hf), meet(c, d, max_hf), max_hf);
    }
    let [a, b, c, d] = quarters;
    let top = meet(meet(a, b, max_hf), meet(c, d, max_hf), max_hf);
    meet(top, top, max_hf)
}

/// The softmax of 32 rows over a block of keys, carried on from what was `running`; the weights' tiles.
///
/// The rows see all of two tiles of scores; where `triangle` is set there may be one alone, and of the last one they see the
/// keys up to each row's own number. A lane of `factors` is what makes a row's scores multiples of ln 2, above 0. `seen`
/// takes in the magnitudes of all scores, and an infinity for a row whose largest score is too far from 0.
///
/// # Panics
/// Where there are other numbers of tiles, or not as many for weights.
#[inline(never)]
pub fn weigh(
    scores: &[Tile],
    triangle: bool,
    factors: V,
    running: &mut Running,
    weights: &mut [Tile],
    seen: &mut V,
) {
    let masks = vectors(&TRIANGLE.0).and_then(<[V]>::first_chunk).expect("a table at a vector's border");
    match (scores, weights) {
        ([a, b], [to, beside]) if triangle => {
            block::<2, true>([a, b], masks, factors, running, [to, beside], seen);
        }
        ([a, b], [to, beside]) => block::<2, false>([a, b], masks, factors, running, [to, beside], seen),
        ([a], [to]) if triangle => block::<1, true>([a], masks, factors, running, [to], seen),
        _ => unreachable!("two tiles, or one with a triangle"),
    }
}

/// Once for each shape: a closure that two shapes shared would be a call.
#[inline(always)]
fn block<const N: usize, const MASKED: bool>(
    scores: [&Tile; N],
    masks: &Tile,
    factors: V,
    running: &mut Running,
    weights: [&mut Tile; N],
    seen: &mut V,
) {
    let (even, odd) = widen(largest::<N, MASKED>(scores, masks, seen));
    let (tops, _) = interleave_w(float(even), float(odd));
    let top = max_sf(float(mul(tops, factors)), running.top);
    let beyond = where_gt_w(and(top, splat(!SIGN)), splat_f(FARTHEST), splat(OVERFLOW.into()), zero());
    *seen = max_uh(*seen, beyond);
    let decay = exp(float(mul(float(sub(running.top, top)), splat_f(core::f32::consts::LN_2))));
    let factors = words_q(lift(factors));
    let offsets = to_words(float(sub(splat_f(CEILING), top)));
    let mut quarters = [zero(); PAIRS / 4];
    for (quarter, sum) in quarters.iter_mut().enumerate() {
        let pairs: [_; 4] = core::array::from_fn(|pair| {
            let pair = 4 * quarter + pair;
            let [factors, offsets] = [&factors, &offsets].map(|of| [of[2 * pair], of[2 * pair + 1]]);
            scores.map(|scores| power(scores[pair], factors.map(splat_q), offsets.map(splat)))
        });
        let mut sums = [zero(); 4];
        for (n, mut halves) in pairs.into_iter().enumerate() {
            let pair = 4 * quarter + n;
            if MASKED {
                halves[N - 1] = and(halves[N - 1], masks[pair]);
            }
            let mut row_sums = widen(halves[0]);
            for (half, &weight) in halves.iter().enumerate() {
                weights[half][pair] = weight;
                if half > 0 {
                    let (even, odd) = widen(weight);
                    row_sums = (add_q(row_sums.0, even), add_q(row_sums.1, odd));
                }
            }
            sums[n] = meet(float(row_sums.0), float(row_sums.1), add_float);
        }
        let [a, b, c, d] = sums;
        *sum = meet(meet(a, b, add_float), meet(c, d, add_float), add_float);
    }
    let [a, b, c, d] = quarters;
    let total = meet(meet(a, b, add_float), meet(c, d, add_float), add_float);
    *running = Running { top, sum: float(add_qv(mul(running.sum, decay), total)), decay };
}

/// `2^(score · factor + offset − CEILING + 8)` as halves; even lanes have the first factor and offset, odd ones the second.
#[inline(always)]
fn power(scores: V, factors: [Q; 2], offsets: [V; 2]) -> V {
    let (even, odd) = widen(scores);
    // Positive floats are ordered as their bits are, and negative ones are negative.
    let fixed = |score, n: usize| max_w(float(add_qv(mul_q(score, factors[n]), offsets[n])), splat_f(FLOOR));
    let (even, odd) = (fixed(even, 0), fixed(odd, 1));
    // From 0..1 to −1..1: the sign bit turned, and twice the unit.
    let x = xor(even_halves(even, odd), splat(0x8000_8000));
    let [cubic, square, linear, constant] = CUBIC.map(|c| splat_h(c.cast_unsigned()));
    let fraction = add_h(mul_h(x, cubic), square);
    let fraction = add_h(mul_h(x, fraction), linear);
    let fraction = add_h(mul_h(x, fraction), constant);
    // A fraction that is rounded to 1 counts the exponent up; what is left of the float's own exponent is shifted out.
    add_h(shl_h(odd_halves(even, odd), FRACTION), sar_h(fraction, MORE))
}

/// Adds a block's mixture of one strip of values, times `fall`, to the sums of 32 rows. `seen` takes in its magnitudes.
#[inline(never)]
pub fn accumulate(mixed: &Tile, fall: Q, running: &Running, sums: &mut [V; FLOATS], seen: &mut V) {
    let decays = to_words(running.decay);
    for (pair, &halves) in mixed.iter().enumerate() {
        *seen = watch(*seen, halves);
        let (even, odd) = widen(halves);
        for (row, part) in [(2 * pair, even), (2 * pair + 1, odd)] {
            let before = mul(sums[row], splat(decays[row]));
            sums[row] = float(add_q(before, mul_q(part, fall)));
        }
    }
}

/// What makes scores multiples of ln 2, for each row: `scale / ln 2`, less what the row's own exponent and `keys`, the
/// factor of its keys, raised it by.
#[must_use]
pub fn factors(exponents: V, keys: f32, scale: f32) -> V {
    let powers = shl_w(sub_w(splat(127), exponents), 23);
    float(mul(powers, splat_f(keys * scale * core::f32::consts::LOG2_E)))
}
