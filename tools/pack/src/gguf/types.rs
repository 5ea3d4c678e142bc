//! The ggml tensor types: numbers, names and block sizes, and the numbers that were taken back.

/// A ggml tensor type: `block` elements of a row in `bytes` bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct GgmlType {
    /// The number in the file.
    pub id: u32,
    /// The name that users know.
    pub name: &'static str,
    /// Elements of a block.
    pub block: u64,
    /// Bytes of a block.
    pub bytes: u64,
}

const fn ty(id: u32, name: &'static str, block: u64, bytes: u64) -> GgmlType {
    GgmlType { id, name, block, bytes }
}

/// IEEE single.
pub const F32: u32 = 0;
/// IEEE half.
pub const F16: u32 = 1;
/// Nibbles less 8 under a half, blocks of 32.
pub const Q4_0: u32 = 2;
/// Nibbles under a half, plus a half, blocks of 32.
pub const Q4_1: u32 = 3;
/// Five bits less 16 under a half, blocks of 32.
pub const Q5_0: u32 = 6;
/// Five bits under a half, plus a half, blocks of 32.
pub const Q5_1: u32 = 7;
/// Signed bytes under a half, blocks of 32.
pub const Q8_0: u32 = 8;
/// Two bits under four-bit scales and minima of 16 under halves, blocks of 256.
pub const Q2_K: u32 = 10;
/// Three bits less 4, six-bit scales of 16 under a half, blocks of 256.
pub const Q3_K: u32 = 11;
/// Nibbles under six-bit scales and minima of 32 under halves, blocks of 256.
pub const Q4_K: u32 = 12;
/// Five bits under six-bit scales and minima of 32 under halves, blocks of 256.
pub const Q5_K: u32 = 13;
/// Six bits less 32, signed byte scales of 16 under a half, blocks of 256.
pub const Q6_K: u32 = 14;
/// Nibbles through an uneven table under a half, blocks of 32.
pub const IQ4_NL: u32 = 20;
/// bfloat16.
pub const BF16: u32 = 30;
/// Nibbles E2M1 under a power of two, blocks of 32.
pub const MXFP4: u32 = 39;

impl GgmlType {
    /// Bytes of a row of `elements`, which are whole blocks.
    #[must_use]
    pub const fn row_bytes(&self, elements: u64) -> u64 {
        elements / self.block * self.bytes
    }
}

static TYPES: [GgmlType; 34] = [
    ty(F32, "F32", 1, 4),
    ty(F16, "F16", 1, 2),
    ty(Q4_0, "Q4_0", 32, 18),
    ty(Q4_1, "Q4_1", 32, 20),
    ty(Q5_0, "Q5_0", 32, 22),
    ty(Q5_1, "Q5_1", 32, 24),
    ty(Q8_0, "Q8_0", 32, 34),
    ty(9, "Q8_1", 32, 36),
    ty(Q2_K, "Q2_K", 256, 84),
    ty(Q3_K, "Q3_K", 256, 110),
    ty(Q4_K, "Q4_K", 256, 144),
    ty(Q5_K, "Q5_K", 256, 176),
    ty(Q6_K, "Q6_K", 256, 210),
    ty(15, "Q8_K", 256, 292),
    ty(16, "IQ2_XXS", 256, 66),
    ty(17, "IQ2_XS", 256, 74),
    ty(18, "IQ3_XXS", 256, 98),
    ty(19, "IQ1_S", 256, 50),
    ty(IQ4_NL, "IQ4_NL", 32, 18),
    ty(21, "IQ3_S", 256, 110),
    ty(22, "IQ2_S", 256, 82),
    ty(23, "IQ4_XS", 256, 136),
    ty(24, "I8", 1, 1),
    ty(25, "I16", 1, 2),
    ty(26, "I32", 1, 4),
    ty(27, "I64", 1, 8),
    ty(28, "F64", 1, 8),
    ty(29, "IQ1_M", 256, 56),
    ty(BF16, "BF16", 1, 2),
    ty(34, "TQ1_0", 256, 54),
    ty(35, "TQ2_0", 256, 66),
    ty(MXFP4, "MXFP4", 32, 17),
    ty(40, "NVFP4", 64, 36),
    ty(41, "Q1_0", 128, 18),
];

/// Numbers that ggml once used and withdrew; files that carry them must be made again.
static REMOVED: [(u32, &str); 8] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

/// The type with this number.
#[must_use]
pub fn find(id: u32) -> Option<&'static GgmlType> {
    TYPES.iter().find(|known| known.id == id)
}

/// The name of a withdrawn number.
#[must_use]
pub fn removed(id: u32) -> Option<&'static str> {
    REMOVED.iter().find(|(number, _)| *number == id).map(|&(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_once_and_blocks_have_sizes() {
        for id in 0..64 {
            let uses =
                TYPES.iter().filter(|t| t.id == id).count() + REMOVED.iter().filter(|r| r.0 == id).count();
            assert!(uses <= 1, "{id}");
        }
        assert!(TYPES.iter().all(|t| t.block > 0 && t.bytes > 0));
    }
}
