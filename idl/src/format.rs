//! Codecs: how a matrix's weights are stored, as a descriptor that kernels read instead of a ggml type.
//!
//! A matrix is `k` inputs by `n` outputs, both padded to 32, stored as **strips** of 32 output columns in ascending
//! column order. A strip is up to five planes, each contiguous over all k-tiles and padded to 128 bytes, in this order:
//! codes, extra bits, super-scales, scales, mins. Inside a plane the order is k-tile (or super-block), sub-block, column.
//! The embedding is row-major instead ([`RowLayout`]).
//!
//! A weight is `scale·T[code]`, `scale·T[code] + min`, or `d·s·T[code] − dmin·m` for super-block types.

use crate::address::TILE;
use crate::tile::{BIT_BYTES, BYTE_BYTES, NIBBLE_BYTES};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The alignment of planes and matrices, one HVX vector.
pub const VECTOR: usize = 128;
/// Weights of one column that share a super-scale.
pub const SUPER_BLOCK: usize = 256;

/// The storage class of a matrix; kernels have one decoder for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// A nibble that indexes a 16-entry signed table.
    N4 = 0,
    /// A signed byte, or a nibble and one or two extra bits, less the descriptor's bias.
    B8 = 1,
    /// Elements of two or four bytes in HMX order (F16; BF16 and F32 dense kept as they are).
    F16 = 2,
}

/// How a sub-block's scale is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Scale {
    /// No scale plane: elements are values.
    None = 0,
    /// An IEEE half.
    F16 = 1,
    /// A power of two, `2^(byte − 127)`.
    E8M0 = 2,
    /// A super-block's `d` (f16) times one unsigned byte a sub-block.
    SuperU8 = 3,
    /// A super-block's `d` (f16) times one signed byte a sub-block (Q6_K).
    SuperI8 = 4,
}

/// How a sub-block's minimum is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Min {
    /// No minimum.
    None = 0,
    /// An IEEE half that is added.
    F16 = 1,
    /// A super-block's `dmin` (f16) times one unsigned byte, subtracted.
    SuperU8 = 2,
}

/// What an element of codec [`Codec::F16`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Element {
    /// Not an element codec.
    None = 0,
    /// IEEE half, 2 bytes.
    F16 = 1,
    /// bfloat16, 2 bytes.
    BF16 = 2,
    /// IEEE single, 4 bytes.
    F32 = 3,
}

/// A matrix's codec, complete: two formats with the same value store the same weights in the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    /// Storage class.
    pub codec: Codec,
    /// Weights of a column that share a scale: 16 or 32 (32 where there is none).
    pub sub_block: usize,
    /// Scale storage.
    pub scale: Scale,
    /// Minimum storage.
    pub min: Min,
    /// Extra bits a code: 0, 1 or 2 (B8 with 0 stores whole bytes).
    pub extra_bits: usize,
    /// Element type of codec F16.
    pub element: Element,
    /// Subtracted from a B8 code made of a nibble and extra bits.
    pub bias: i8,
    /// The signed table of N4.
    pub table: [i8; 16],
}

/// The fixed 24-byte form of [`Format`] in the pack's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FormatBytes {
    codec: u8,
    sub_block: u8,
    scale: u8,
    min: u8,
    extra_bits: u8,
    element: u8,
    bias: i8,
    reserved: u8,
    table: [i8; 16],
}
static_assertions::const_assert_eq!(size_of::<FormatBytes>(), 24);

const PLAIN: Format = Format {
    codec: Codec::F16,
    sub_block: TILE,
    scale: Scale::None,
    min: Min::None,
    extra_bits: 0,
    element: Element::F32,
    bias: 0,
    table: [0; 16],
};

/// Nibbles 0 to 15 under a half a 32-block.
const NIBBLES: Format =
    Format { codec: Codec::N4, scale: Scale::F16, element: Element::None, table: counting(0), ..PLAIN };

/// Sixteen consecutive integers.
const fn counting(first: i8) -> [i8; 16] {
    let mut table = [0; 16];
    let mut code = 0;
    while code < 16 {
        table[code] = first + code as i8;
        code += 1;
    }
    table
}

impl Format {
    /// Plain f32 elements: routers, norms, convolution taps.
    pub const F32: Self = PLAIN;
    /// Plain half elements.
    pub const F16: Self = Self { element: Element::F16, ..PLAIN };
    /// Plain bfloat16 elements.
    pub const BF16: Self = Self { element: Element::BF16, ..PLAIN };
    /// ggml Q4_0: nibbles less 8, a half a 32-block.
    pub const Q4_0: Self = Self { table: counting(-8), ..NIBBLES };
    /// ggml Q4_1: nibbles, a half and a minimum a 32-block.
    pub const Q4_1: Self = Self { min: Min::F16, ..NIBBLES };
    /// ggml Q5_0: nibble and bit less 16, a half a 32-block.
    pub const Q5_0: Self = Self { extra_bits: 1, bias: 16, ..Self::Q8_0 };
    /// ggml Q5_1: nibble and bit, a half and a minimum a 32-block.
    pub const Q5_1: Self = Self { extra_bits: 1, min: Min::F16, ..Self::Q8_0 };
    /// ggml Q8_0: signed bytes, a half a 32-block.
    pub const Q8_0: Self = Self { codec: Codec::B8, scale: Scale::F16, element: Element::None, ..PLAIN };
    /// ggml Q2_K, its two bits widened to nibbles: scale and minimum bytes a 16-block under two halves a 256-block.
    pub const Q2_K: Self = Self { sub_block: 16, ..Self::Q4_K };
    /// ggml Q3_K, its three bits widened to nibbles less 4: a signed byte a 16-block under a half a 256-block.
    pub const Q3_K: Self = Self { sub_block: 16, scale: Scale::SuperI8, table: counting(-4), ..NIBBLES };
    /// ggml Q4_K: nibbles, scale and minimum bytes a 32-block under two halves a 256-block.
    pub const Q4_K: Self = Self { scale: Scale::SuperU8, min: Min::SuperU8, ..NIBBLES };
    /// ggml Q5_K: nibble and bit, scale and minimum bytes a 32-block under two halves a 256-block.
    pub const Q5_K: Self = Self { scale: Scale::SuperU8, min: Min::SuperU8, extra_bits: 1, ..Self::Q8_0 };
    /// ggml Q6_K: nibble and two bits less 32, a signed byte a 16-block under a half a 256-block.
    pub const Q6_K: Self =
        Self { sub_block: 16, scale: Scale::SuperI8, extra_bits: 2, bias: 32, ..Self::Q8_0 };
    /// ggml IQ4_NL: nibbles through a table without a zero, a half a 32-block.
    pub const IQ4_NL: Self =
        Self { table: [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], ..NIBBLES };
    /// ggml MXFP4: nibbles E2M1, a power of two a 32-block. The table holds twice the values, so that they are integers;
    /// the stored byte is therefore one less than the file's.
    pub const MXFP4: Self = Self {
        scale: Scale::E8M0,
        table: [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12],
        ..NIBBLES
    };

    /// Bytes of the code plane a k-tile.
    #[must_use]
    pub const fn code_bytes(&self) -> usize {
        match (self.codec, self.extra_bits, self.element) {
            (Codec::N4, ..) => NIBBLE_BYTES,
            (Codec::B8, 0, _) => BYTE_BYTES,
            (Codec::B8, ..) => NIBBLE_BYTES,
            (Codec::F16, _, Element::F32) => 4 * TILE * TILE,
            (Codec::F16, ..) => 2 * TILE * TILE,
        }
    }

    /// Halves of the super plane a column and super-block: `d`, and `dmin` where minima are super-scaled.
    const fn super_halves(&self) -> usize {
        let d = matches!(self.scale, Scale::SuperU8 | Scale::SuperI8) as usize;
        d + matches!(self.min, Min::SuperU8) as usize
    }

    /// Bytes of a sub-block's stored scale.
    const fn scale_bytes(&self) -> usize {
        match self.scale {
            Scale::None => 0,
            Scale::F16 => 2,
            Scale::E8M0 | Scale::SuperU8 | Scale::SuperI8 => 1,
        }
    }

    /// Bytes of a sub-block's stored minimum.
    const fn min_bytes(&self) -> usize {
        match self.min {
            Min::None => 0,
            Min::F16 => 2,
            Min::SuperU8 => 1,
        }
    }

    /// The planes of a strip over `k` inputs.
    ///
    /// # Panics
    /// Never for the `k` that fit a pack (checked when the directory is read: below 2^24).
    #[must_use]
    pub const fn strip(&self, k: usize) -> StripLayout {
        let tiles = k.div_ceil(TILE);
        let supers = (tiles * TILE).div_ceil(SUPER_BLOCK);
        let subs = self.subs(TILE);
        let extra = round(tiles * self.code_bytes());
        let super_ = extra + round(tiles * self.extra_bits * BIT_BYTES);
        let scales = super_ + round(supers * self.super_halves() * TILE * 2);
        let mins = scales + round(tiles * subs * TILE * self.scale_bytes());
        let bytes = mins + round(tiles * subs * TILE * self.min_bytes());
        StripLayout { tiles, extra, super_, scales, mins, bytes }
    }

    /// Sub-blocks of `k` inputs. Their size is a power of two, and Hexagon has no instruction that divides.
    const fn subs(&self, k: usize) -> usize {
        k >> self.sub_block.trailing_zeros()
    }

    /// Bytes of a whole matrix of `k` inputs and `n` outputs.
    #[must_use]
    pub const fn matrix_bytes(&self, k: usize, n: usize) -> usize {
        self.strip(k).bytes * n.div_ceil(TILE)
    }

    /// The planes of one embedding row of `k` elements.
    #[must_use]
    pub const fn row(&self, k: usize) -> RowLayout {
        let padded = k.next_multiple_of(TILE);
        let supers = padded.div_ceil(SUPER_BLOCK);
        let subs = self.subs(padded);
        let extra = padded * self.code_bytes() / (TILE * TILE);
        let super_ = extra + padded * self.extra_bits / 8;
        let scales = super_ + supers * self.super_halves() * 2;
        let mins = scales + subs * self.scale_bytes();
        let bytes = (mins + subs * self.min_bytes()).next_multiple_of(16);
        RowLayout { extra, super_, scales, mins, bytes }
    }

    /// The descriptor's fixed bytes.
    #[must_use]
    pub const fn to_bytes(&self) -> FormatBytes {
        FormatBytes {
            codec: self.codec as u8,
            sub_block: self.sub_block as u8,
            scale: self.scale as u8,
            min: self.min as u8,
            extra_bits: self.extra_bits as u8,
            element: self.element as u8,
            bias: self.bias,
            reserved: 0,
            table: self.table,
        }
    }
}

impl FormatBytes {
    /// The descriptor, or `None` where a field is out of range or the fields contradict each other: a pack is hostile
    /// until checked.
    #[must_use]
    pub fn check(&self) -> Option<Format> {
        let codec = match self.codec {
            0 => Codec::N4,
            1 => Codec::B8,
            2 => Codec::F16,
            _ => return None,
        };
        let scale = match self.scale {
            0 => Scale::None,
            1 => Scale::F16,
            2 => Scale::E8M0,
            3 => Scale::SuperU8,
            4 => Scale::SuperI8,
            _ => return None,
        };
        let min = match self.min {
            0 => Min::None,
            1 => Min::F16,
            2 => Min::SuperU8,
            _ => return None,
        };
        let element = match self.element {
            0 => Element::None,
            1 => Element::F16,
            2 => Element::BF16,
            3 => Element::F32,
            _ => return None,
        };
        let super_scaled = matches!(scale, Scale::SuperU8 | Scale::SuperI8);
        let plain = codec == Codec::F16;
        let sound = matches!(self.sub_block, 16 | 32)
            && self.reserved == 0
            && plain == (element != Element::None)
            && plain == (scale == Scale::None)
            && (!plain || (self.sub_block == 32 && min == Min::None))
            && (min != Min::SuperU8 || super_scaled)
            && match codec {
                Codec::B8 => self.extra_bits <= 2,
                Codec::N4 | Codec::F16 => self.extra_bits == 0,
            };
        sound.then_some(Format {
            codec,
            sub_block: usize::from(self.sub_block),
            scale,
            min,
            extra_bits: usize::from(self.extra_bits),
            element,
            bias: self.bias,
            table: self.table,
        })
    }
}

/// Byte offsets of a strip's planes; the code plane stands at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripLayout {
    /// k-tiles.
    pub tiles: usize,
    /// Extra bits: per k-tile one or two bit planes of 128 bytes, the low bit first.
    pub extra: usize,
    /// Super-scales: per super-block 32 × `d`, then 32 × `dmin` where there is one; halves.
    pub super_: usize,
    /// Scales: per k-tile, per sub-block, 32 columns.
    pub scales: usize,
    /// Minima: per k-tile, per sub-block, 32 columns.
    pub mins: usize,
    /// Bytes of the strip, a multiple of 128.
    pub bytes: usize,
}

/// Byte offsets of an embedding row's planes; the code plane stands at 0, in ascending k (of a nibble pair the even k is
/// low; a bit plane is little-endian, the low plane first).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLayout {
    /// Extra bits: the low plane over all k, then the high one.
    pub extra: usize,
    /// Super-scales: per super-block `d`, then `dmin` where there is one.
    pub super_: usize,
    /// Scales, a sub-block each.
    pub scales: usize,
    /// Minima, a sub-block each.
    pub mins: usize,
    /// Bytes of the row, a multiple of 16.
    pub bytes: usize,
}

const fn round(bytes: usize) -> usize {
    bytes.next_multiple_of(VECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_per_weight_are_those_of_the_types() {
        let bits = |format: Format, k: usize| format.strip(k).bytes as f64 * 8.0 / (k * TILE) as f64;
        assert!(bits(Format::Q4_0, 256) <= 4.6, "{}", bits(Format::Q4_0, 256));
        assert!((bits(Format::Q4_0, 96) - 4.67).abs() < 0.01);
        for (format, most) in [
            (Format::Q6_K, 6.7),
            (Format::Q5_K, 5.7),
            (Format::Q4_K, 4.7),
            (Format::MXFP4, 4.4),
            (Format::Q8_0, 8.6),
        ] {
            assert!((256..=4096).step_by(256).all(|k| bits(format, k) <= most), "{format:?}");
        }
        // What widening costs: 2.625 and 3.4375 bits in the file.
        assert_eq!((bits(Format::Q2_K, 256), bits(Format::Q3_K, 512)), (5.125, 4.5625));
        assert_eq!(Format::F32.strip(64).bytes, 64 * 32 * 4);
    }

    #[test]
    fn descriptors_survive_their_bytes_and_bad_ones_are_refused() {
        let all = [
            [Format::F32, Format::F16, Format::BF16, Format::Q4_0, Format::Q4_1],
            [Format::Q5_0, Format::Q5_1, Format::Q8_0, Format::Q2_K, Format::Q3_K],
            [Format::Q4_K, Format::Q5_K, Format::Q6_K, Format::IQ4_NL, Format::MXFP4],
        ];
        for format in all.into_iter().flatten() {
            assert_eq!(format.to_bytes().check(), Some(format));
        }
        let good = Format::Q4_0.to_bytes();
        assert_eq!(FormatBytes { codec: 3, ..good }.check(), None);
        assert_eq!(FormatBytes { sub_block: 0, ..good }.check(), None);
        assert_eq!(FormatBytes { extra_bits: 1, ..good }.check(), None);
        assert_eq!(FormatBytes { element: 1, ..good }.check(), None);
        assert_eq!(FormatBytes { scale: 0, ..good }.check(), None);
        assert_eq!(FormatBytes { min: 2, ..good }.check(), None);
    }
}
