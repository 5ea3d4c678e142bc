//! The face natively: the same functions on plain words.
//!
//! Integers are written here; floats are the software models of the very instructions that the face on Hexagon emits,
//! which know nothing of the kernels. It behaves as v73 does. Alignment is a type's, as on the unit.

use estream_kernels_asm::model::float as unit;

/// A vector of 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(128))]
pub struct V([u32; 32]);

/// 32 floats in the unit's own format.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub struct Q([u32; 32]);

type Halves = [u16; 64];
type Bytes = [u8; 128];

#[inline(always)]
fn halves(v: V) -> Halves {
    let mut halves = [0; 64];
    for (pair, word) in halves.as_chunks_mut::<2>().0.iter_mut().zip(v.0) {
        *pair = [word as u16, (word >> 16) as u16];
    }
    halves
}

#[inline(always)]
fn of_halves(halves: Halves) -> V {
    let mut words = [0; 32];
    for (word, pair) in words.iter_mut().zip(halves.as_chunks::<2>().0) {
        *word = u32::from(pair[0]) | u32::from(pair[1]) << 16;
    }
    V(words)
}

#[inline(always)]
fn bytes(v: V) -> Bytes {
    let mut bytes = [0; 128];
    for (four, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(v.0) {
        *four = word.to_le_bytes();
    }
    bytes
}

#[inline(always)]
fn of_bytes(bytes: Bytes) -> V {
    let mut words = [0; 32];
    for (word, four) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*four);
    }
    V(words)
}

#[inline(always)]
fn lanes(a: V, b: V, f: impl Fn(u32, u32) -> u32) -> V {
    let mut words = [0; 32];
    for ((word, a), b) in words.iter_mut().zip(a.0).zip(b.0) {
        *word = f(a, b);
    }
    V(words)
}

/// The even and the odd ones of 64 words.
#[inline(always)]
fn in_order(words: impl Fn(usize) -> u32) -> (V, V) {
    (V(core::array::from_fn(&words)), V(core::array::from_fn(|lane| words(32 + lane))))
}

/// All bits zero.
#[must_use]
#[inline(always)]
pub fn zero() -> V {
    V([0; 32])
}

/// A word in all lanes.
#[must_use]
#[inline(always)]
pub fn splat(word: u32) -> V {
    V([word; 32])
}

/// A halfword in all lanes.
#[must_use]
#[inline(always)]
pub fn splat_h(half: u16) -> V {
    splat(u32::from(half) * 0x1_0001)
}

/// A byte in all lanes.
#[must_use]
#[inline(always)]
pub fn splat_b(byte: u8) -> V {
    splat(u32::from(byte) * 0x0101_0101)
}

/// Bitwise and.
#[must_use]
#[inline(always)]
pub fn and(a: V, b: V) -> V {
    lanes(a, b, |a, b| a & b)
}

/// Bitwise or.
#[must_use]
#[inline(always)]
pub fn or(a: V, b: V) -> V {
    lanes(a, b, |a, b| a | b)
}

/// Bitwise exclusive or.
#[must_use]
#[inline(always)]
pub fn xor(a: V, b: V) -> V {
    lanes(a, b, |a, b| a ^ b)
}

/// Words, sum.
#[must_use]
#[inline(always)]
pub fn add_w(a: V, b: V) -> V {
    lanes(a, b, u32::wrapping_add)
}

/// Words, difference.
#[must_use]
#[inline(always)]
pub fn sub_w(a: V, b: V) -> V {
    lanes(a, b, u32::wrapping_sub)
}

/// Bytes, difference.
#[must_use]
#[inline(always)]
pub fn sub_b(a: V, b: V) -> V {
    let (a, b) = (bytes(a), bytes(b));
    of_bytes(core::array::from_fn(|i| a[i].wrapping_sub(b[i])))
}

/// Words, to the left.
#[must_use]
#[inline(always)]
pub fn shl_w(a: V, bits: u32) -> V {
    lanes(a, a, |a, _| a << (bits & 31))
}

/// Words, to the right, zeros in.
#[must_use]
#[inline(always)]
pub fn shr_w(a: V, bits: u32) -> V {
    lanes(a, a, |a, _| a >> (bits & 31))
}

/// Bytes, to the right, zeros in.
#[must_use]
#[inline(always)]
pub fn shr_b(a: V, bits: u32) -> V {
    of_bytes(bytes(a).map(|byte| byte >> (bits & 7)))
}

/// Signed words, the larger.
#[must_use]
#[inline(always)]
pub fn max_w(a: V, b: V) -> V {
    lanes(a, b, |a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned())
}

/// Unsigned halfwords, the larger.
#[must_use]
#[inline(always)]
pub fn max_uh(a: V, b: V) -> V {
    half_lanes(a, b, u16::max)
}

/// `a` where `x > y` as signed words, else `b`.
#[must_use]
#[inline(always)]
pub fn where_gt_w(x: V, y: V, a: V, b: V) -> V {
    V(core::array::from_fn(|i| if x.0[i].cast_signed() > y.0[i].cast_signed() { a.0[i] } else { b.0[i] }))
}

/// The byte `value[i mod 4]` where `v` has a bit of `mask[i mod 4]` set in byte i, else 0.
#[must_use]
#[inline(always)]
pub fn bits_to_bytes(v: V, mask: u32, value: u32) -> V {
    let (mask, value) = (mask.to_le_bytes(), value.to_le_bytes());
    let v = bytes(v);
    of_bytes(core::array::from_fn(|i| if v[i] & mask[i % 4] != 0 { value[i % 4] } else { 0 }))
}

/// The vector with another first word.
#[must_use]
#[inline(always)]
pub fn insert_w(v: V, word: u32) -> V {
    V(core::array::from_fn(|lane| if lane == 0 { word } else { v.0[lane] }))
}

/// The vector turned towards lane 0 by `count` bytes.
#[must_use]
#[inline(always)]
pub fn rotate(v: V, count: u32) -> V {
    let mut turned = bytes(v);
    turned.rotate_left(count as usize % 128);
    of_bytes(turned)
}

/// Entry b mod 16 of table `number` of the four that a vector holds: even bytes, odd bytes. Table 0 is the low halves of
/// the first sixteen words, 1 those of the others, 2 and 3 the high halves.
#[must_use]
#[inline(always)]
pub fn lookup_in(codes: V, tables: V, number: u32) -> (V, V) {
    let codes = bytes(codes);
    let word = |place: usize| tables.0[usize::from(codes[place] & 15) + 16 * (number as usize % 2)];
    let entry = |place: usize| (word(place) >> (16 * (number / 2 % 2))) as u16;
    (of_halves(core::array::from_fn(|i| entry(2 * i))), of_halves(core::array::from_fn(|i| entry(2 * i + 1))))
}

#[inline(always)]
fn half_lanes(a: V, b: V, f: impl Fn(u16, u16) -> u16) -> V {
    let (a, b) = (halves(a), halves(b));
    of_halves(core::array::from_fn(|i| f(a[i], b[i])))
}

/// Halfwords, sum.
#[must_use]
#[inline(always)]
pub fn add_h(a: V, b: V) -> V {
    half_lanes(a, b, u16::wrapping_add)
}

/// Unsigned halfwords, sum or the largest there is.
#[must_use]
#[inline(always)]
pub fn add_uh(a: V, b: V) -> V {
    half_lanes(a, b, u16::saturating_add)
}

/// Unsigned halfwords, difference or 0.
#[must_use]
#[inline(always)]
pub fn sub_uh(a: V, b: V) -> V {
    half_lanes(a, b, u16::saturating_sub)
}

/// Signed halfwords as fractions of 2^15, product, rounded and held in range.
#[must_use]
#[inline(always)]
pub fn mul_h(a: V, b: V) -> V {
    half_lanes(a, b, |a, b| {
        let product = i32::from(a.cast_signed()) * i32::from(b.cast_signed());
        // −1 · −1 is the one product out of range.
        ((product + (1 << 14)) >> 15).min(i32::from(i16::MAX)) as u16
    })
}

/// Halfwords, to the left.
#[must_use]
#[inline(always)]
pub fn shl_h(a: V, bits: u32) -> V {
    half_lanes(a, a, |a, _| a << (bits & 15))
}

/// Signed halfwords, to the right.
#[must_use]
#[inline(always)]
pub fn sar_h(a: V, bits: u32) -> V {
    half_lanes(a, a, |a, _| (a.cast_signed() >> (bits & 15)).cast_unsigned())
}

/// The high bytes of halfwords: `low`'s in the even bytes, `high`'s in the odd ones.
#[must_use]
#[inline(always)]
pub fn high_bytes(low: V, high: V) -> V {
    half_lanes(low, high, |low, high| low >> 8 | high & 0xff00)
}

/// Halves as signed halfwords, towards zero.
#[must_use]
#[inline(always)]
pub fn whole_h(v: V) -> V {
    V(unit::h_from_hf(&v.0))
}

/// Signed bytes to halfwords: even bytes, odd bytes.
#[must_use]
#[inline(always)]
pub fn widen_b(v: V) -> (V, V) {
    let v = bytes(v);
    let half = |place: usize| i16::from(v[place].cast_signed()).cast_unsigned();
    (of_halves(core::array::from_fn(|i| half(2 * i))), of_halves(core::array::from_fn(|i| half(2 * i + 1))))
}

/// Unsigned bytes to halfwords in order: the first 64, the last 64.
#[must_use]
#[inline(always)]
pub fn unpack_ub(v: V) -> (V, V) {
    let v = bytes(v);
    let half = |place: usize| u16::from(v[place]);
    (of_halves(core::array::from_fn(half)), of_halves(core::array::from_fn(|i| half(64 + i))))
}

/// Signed bytes to halfwords in order.
#[must_use]
#[inline(always)]
pub fn unpack_b(v: V) -> (V, V) {
    let v = bytes(v);
    let half = |place: usize| i16::from(v[place].cast_signed()).cast_unsigned();
    (of_halves(core::array::from_fn(half)), of_halves(core::array::from_fn(|i| half(64 + i))))
}

/// Signed halfwords to words in order: the first 32, the last 32.
#[must_use]
#[inline(always)]
pub fn unpack_h(v: V) -> (V, V) {
    let v = halves(v);
    in_order(|i| i32::from(v[i].cast_signed()).cast_unsigned())
}

/// The even halfwords of `low` and `high` in turns.
#[must_use]
#[inline(always)]
pub fn even_halves(low: V, high: V) -> V {
    lanes(low, high, |low, high| low & 0xffff | high << 16)
}

/// The odd halfwords of `low` and `high` in turns.
#[must_use]
#[inline(always)]
pub fn odd_halves(low: V, high: V) -> V {
    lanes(low, high, |low, high| low >> 16 | high & 0xffff_0000)
}

/// Halfwords of `low` and `high` in turns.
#[must_use]
#[inline(always)]
pub fn interleave_h(low: V, high: V) -> (V, V) {
    let (low, high) = (halves(low), halves(high));
    in_order(|i| u32::from(low[i]) | u32::from(high[i]) << 16)
}

/// Words of `low` and `high` in turns.
#[must_use]
#[inline(always)]
pub fn interleave_w(low: V, high: V) -> (V, V) {
    in_order(|i| if i % 2 == 0 { low.0[i / 2] } else { high.0[i / 2] })
}

/// The even and the odd words of `low` and `high`.
#[must_use]
#[inline(always)]
pub fn deal_w(low: V, high: V) -> (V, V) {
    let word = |i: usize| if i < 32 { low.0[i] } else { high.0[i - 32] };
    in_order(|i| if i < 32 { word(2 * i) } else { word(2 * (i - 32) + 1) })
}

/// Signed halfwords as halves, rounded.
#[must_use]
#[inline(always)]
pub fn half_of_h(v: V) -> V {
    V(unit::hf_from_h(&v.0))
}

/// Signed words as floats, rounded.
#[must_use]
#[inline(always)]
pub fn float_of_w(v: V) -> V {
    V(unit::sf_from_w(&v.0))
}

/// Halves, the larger.
#[must_use]
#[inline(always)]
pub fn max_hf(a: V, b: V) -> V {
    V(unit::hf_max(&a.0, &b.0))
}

/// Floats, the larger.
#[must_use]
#[inline(always)]
pub fn max_sf(a: V, b: V) -> V {
    V(unit::sf_max(&a.0, &b.0))
}

/// Floats, the smaller.
#[must_use]
#[inline(always)]
pub fn min_sf(a: V, b: V) -> V {
    V(unit::sf_min(&a.0, &b.0))
}

/// Halves, product: of the even ones, of the odd ones.
#[must_use]
#[inline(always)]
pub fn mul_hf(a: V, b: V) -> (Q, Q) {
    let [even, odd] = unit::qf32_pair_mpy_hf_hf(&a.0, &b.0);
    (Q(even), Q(odd))
}

/// Floats to halves, rounded once: `low` to the even ones, `high` to the odd ones.
#[must_use]
#[inline(always)]
pub fn narrow(low: Q, high: Q) -> V {
    V(unit::hf_from_qf32_pair(&[low.0, high.0]))
}

/// Back to plain floats, rounded.
#[must_use]
#[inline(always)]
pub fn float(q: Q) -> V {
    V(unit::sf_from_qf32(&q.0))
}

/// Plain floats, product.
#[must_use]
#[inline(always)]
pub fn mul(a: V, b: V) -> Q {
    Q(unit::qf32_mpy_sf_sf(&a.0, &b.0))
}

/// Product.
#[must_use]
#[inline(always)]
pub fn mul_q(a: Q, b: Q) -> Q {
    Q(unit::qf32_mpy_qf32_qf32(&a.0, &b.0))
}

/// Plain floats, sum.
#[must_use]
#[inline(always)]
pub fn add(a: V, b: V) -> Q {
    Q(unit::qf32_add_sf_sf(&a.0, &b.0))
}

/// Sum.
#[must_use]
#[inline(always)]
pub fn add_q(a: Q, b: Q) -> Q {
    Q(unit::qf32_add_qf32_qf32(&a.0, &b.0))
}

/// Sum with plain floats.
#[must_use]
#[inline(always)]
pub fn add_qv(a: Q, b: V) -> Q {
    Q(unit::qf32_add_qf32_sf(&a.0, &b.0))
}

/// Plain floats, difference.
#[must_use]
#[inline(always)]
pub fn sub(a: V, b: V) -> Q {
    Q(unit::qf32_sub_sf_sf(&a.0, &b.0))
}

/// Words from memory, wherever they begin.
#[must_use]
#[inline(always)]
pub fn load(from: &[f32; 32]) -> V {
    V(from.map(f32::to_bits))
}

/// Words to memory, wherever they begin.
#[inline(always)]
pub fn store(v: V, to: &mut [f32; 32]) {
    *to = v.0.map(f32::from_bits);
}

/// The first lane's bits as the unit holds it, for [`splat_q`].
#[must_use]
#[inline(always)]
pub fn first_q(q: Q) -> u32 {
    q.0[0]
}

/// All lanes' bits as the unit holds them, for [`splat_q`].
#[must_use]
#[inline(always)]
pub fn words_q(q: Q) -> [u32; 32] {
    q.0
}

/// What [`first_q`] gave, in all lanes.
#[must_use]
#[inline(always)]
pub fn splat_q(bits: u32) -> Q {
    Q([bits; 32])
}

/// The vector as words.
#[must_use]
#[inline(always)]
pub fn to_words(v: V) -> [u32; 32] {
    v.0
}

/// The words as a vector.
#[must_use]
#[inline(always)]
pub fn from_words(words: [u32; 32]) -> V {
    V(words)
}
