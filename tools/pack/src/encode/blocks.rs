//! The ggml blocks that have a codec, seen as 32 codes in ascending k with the bytes of their scales.

/// The types whose weights are codes under scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocks {
    /// 2 bytes of scale, 16 of nibbles: element j low in byte j, element j + 16 high.
    Nibbles,
    /// 2 bytes of scale, 32 signed bytes.
    Bytes,
    /// 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, 2 bytes of super-scale; 256 elements.
    SixBits,
}

const NIBBLES_BYTES: usize = 18;
const BYTES_BYTES: usize = 34;
const SIX_BITS_BYTES: usize = 210;
const SIX_BITS_SCALES: usize = 192;
const SIX_BITS_D: usize = 208;

impl Blocks {
    /// Codes of the 32 elements of `row` from `32·tile` on.
    pub(super) fn codes(self, row: &[u8], tile: usize) -> [u8; 32] {
        let mut codes = [0; 32];
        match self {
            Self::Nibbles => {
                let quants = &row[tile * NIBBLES_BYTES + 2..(tile + 1) * NIBBLES_BYTES];
                for (j, &pair) in quants.iter().enumerate() {
                    codes[j] = pair & 15;
                    codes[j + 16] = pair >> 4;
                }
            }
            Self::Bytes => codes.copy_from_slice(&row[tile * BYTES_BYTES + 2..(tile + 1) * BYTES_BYTES]),
            Self::SixBits => {
                // A block is two halves of 128; in a half, quarter q takes the nibbles of bytes 32·(q mod 2) (low for
                // q < 2) and bit pair q of 32 shared bytes.
                let block = &row[tile / 8 * SIX_BITS_BYTES..][..SIX_BITS_BYTES];
                let (half, quarter) = (tile % 8 / 4, tile % 4);
                let low = &block[half * 64 + quarter % 2 * 32..][..32];
                let high = &block[128 + half * 32..][..32];
                for ((code, low), high) in codes.iter_mut().zip(low).zip(high) {
                    *code = (low >> (quarter / 2 * 4)) & 15 | ((high >> (2 * quarter)) & 3) << 4;
                }
            }
        }
        codes
    }

    /// Bytes of the scale of sub-block `sub` of the 32 elements from `32·tile` on: a half, or a signed byte.
    pub(super) fn scale(self, row: &[u8], tile: usize, sub: usize) -> &[u8] {
        match self {
            Self::Nibbles => &row[tile * NIBBLES_BYTES..][..2],
            Self::Bytes => &row[tile * BYTES_BYTES..][..2],
            Self::SixBits => &row[tile / 8 * SIX_BITS_BYTES + SIX_BITS_SCALES + tile % 8 * 2 + sub..][..1],
        }
    }

    /// Bytes of the super-scale of super-block `index`, where the type has one.
    pub(super) fn super_scale(self, row: &[u8], index: usize) -> Option<&[u8]> {
        match self {
            Self::Nibbles | Self::Bytes => None,
            Self::SixBits => Some(&row[index * SIX_BITS_BYTES + SIX_BITS_D..][..2]),
        }
    }
}
