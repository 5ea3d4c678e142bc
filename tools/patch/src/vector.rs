//! Loads and stores of vectors, as far as a stub does their work: `.cur` and `.tmp` loads, whose value a model needs before
//! its packet runs, and `.new` stores of what a model made.
//!
//! Bits 31:24 of the class: 0x28 base and offset, 0x29 post-increment by vectors, 0x2b post-increment by a modifier
//! register. Bit 23 is a condition, bit 22 a hint (`:nt`), bit 21 a store. Aligned accesses ignore the address' low bits.

/// Bytes of a vector.
pub const VECTOR_BYTES: u32 = 128;

/// What becomes of the base register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing; the access is this many bytes away from it.
    Offset(i32),
    /// It moves by this many bytes after the access.
    Immediate(i32),
    /// It moves by a modifier register's bytes after the access.
    Modifier(u8),
}

/// Where an access goes and whether it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The base register.
    pub base: u8,
    /// The step.
    pub step: Step,
    /// A predicate register and the value that it must have.
    pub condition: Option<(u8, bool)>,
}

/// What a load's value is besides an operand of its own packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyLoad {
    /// The vector register that stands for the value in its packet.
    pub register: u8,
    /// Where from.
    pub access: Access,
}

/// Signed fields of `bits` bits.
const fn signed(value: u32, bits: u32) -> i32 {
    let shift = 32 - bits;
    (value << shift).cast_signed() >> shift
}

fn access(word: u32, condition: Option<(u8, bool)>) -> Option<Access> {
    let vector = VECTOR_BYTES.cast_signed();
    let step = match word >> 24 {
        0x28 => Step::Offset(signed(word >> 8 & 7 | word >> 10 & 8, 4) * vector),
        0x29 => Step::Immediate(signed(word >> 8 & 7, 3) * vector),
        0x2b => Step::Modifier((word >> 13 & 1) as u8),
        _ => return None,
    };
    Some(Access { base: (word >> 16 & 31) as u8, step, condition })
}

fn condition(word: u32, negated: bool) -> Option<(u8, bool)> {
    Some(((word >> 11 & 3) as u8, !negated))
}

/// The `.cur` or `.tmp` load that a word is.
#[must_use]
pub fn early_load(word: u32) -> Option<EarlyLoad> {
    if !matches!(word >> 24, 0x28 | 0x29 | 0x2b) || word >> 21 & 1 == 1 {
        return None;
    }
    let condition = match (word >> 23 & 1, word >> 5 & 7) {
        (0, 1 | 2) => None,
        (1, 4 | 6) => condition(word, false),
        (1, 5 | 7) => condition(word, true),
        _ => return None,
    };
    Some(EarlyLoad { register: (word & 31) as u8, access: access(word, condition)? })
}

/// Whether the word stores a vector that its own packet makes.
#[must_use]
pub const fn is_new_store(word: u32) -> bool {
    let store = matches!(word >> 24, 0x28 | 0x29 | 0x2b) && word >> 21 & 1 == 1;
    let kind = word >> 3 & 31;
    // Without a condition 00100 (00101 releases scatters); with one 01000 and 01101, of which :nt is 01010 and 01111.
    store
        && (word >> 23 & 1 == 0 && kind == 0b00100 || word >> 23 & 1 == 1 && matches!(kind, 8 | 13 | 10 | 15))
}

/// Where a `.new` store goes.
#[must_use]
pub fn new_store(word: u32) -> Option<Access> {
    if !is_new_store(word) {
        return None;
    }
    let condition = match (word >> 23 & 1, word >> 3 & 31) {
        (0, _) => None,
        (_, 8 | 10) => condition(word, false),
        _ => condition(word, true),
    };
    access(word, condition)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(base: u8, step: Step, condition: Option<(u8, bool)>) -> Option<Access> {
        Some(Access { base, step, condition })
    }

    /// Words from `llvm-mc-22`, the mnemonics beside them.
    #[test]
    fn new_stores_name_their_address() {
        assert_eq!(new_store(0x2821_c122), at(1, Step::Offset(128), None)); // vmem(r1+#1)=v0.new
        assert_eq!(new_store(0x2861_e722), at(1, Step::Offset(-128), None)); // vmem(r1+#-1):nt=v0.new
        assert_eq!(new_store(0x2921_c122), at(1, Step::Immediate(128), None)); // vmem(r1++#1)=v0.new
        assert_eq!(new_store(0x2961_c622), at(1, Step::Immediate(-256), None)); // vmem(r1++#-2):nt=v0.new
        assert_eq!(new_store(0x2b21_e022), at(1, Step::Modifier(1), None)); // vmem(r1++m1)=v0.new
        assert_eq!(new_store(0x28a1_d142), at(1, Step::Offset(128), Some((2, true)))); // if (p2) vmem(r1+#1)=v0.new
        assert_eq!(new_store(0x28a1_d16a), at(1, Step::Offset(128), Some((2, false))));
        assert_eq!(new_store(0x28e1_d17a), at(1, Step::Offset(128), Some((2, false)))); // …:nt
        assert_eq!(new_store(0x29e1_d152), at(1, Step::Immediate(128), Some((2, true))));
        assert_eq!(new_store(0x2ba1_d042), at(1, Step::Modifier(0), Some((2, true))));
        // A plain store, one under a vector predicate, one under a scalar predicate, an unaligned one, a release.
        for word in [0x2821_c200, 0x2881_ca00, 0x28a1_ca00, 0x2821_c2e0, 0x28a1_cac0, 0x2821_c028] {
            assert_eq!(new_store(word), None, "{word:#x}");
        }
    }

    #[test]
    fn early_loads_name_register_and_address() {
        let load = |register, access: Option<Access>| access.map(|access| EarlyLoad { register, access });
        assert_eq!(early_load(0x2801_c240), load(0, at(1, Step::Offset(256), None))); // v0.tmp=vmem(r1+#2)
        assert_eq!(early_load(0x2841_c220), load(0, at(1, Step::Offset(256), None))); // v0.cur=vmem(r1+#2):nt
        assert_eq!(early_load(0x2901_c220), load(0, at(1, Step::Immediate(256), None)));
        assert_eq!(early_load(0x2b01_e040), load(0, at(1, Step::Modifier(1), None)));
        assert_eq!(early_load(0x2881_cac0), load(0, at(1, Step::Offset(256), Some((1, true))))); // if (p1) v0.tmp
        assert_eq!(early_load(0x2881_caa0), load(0, at(1, Step::Offset(256), Some((1, false))))); // if (!p1) v0.cur
        assert_eq!(early_load(0x2b81_e8e0), load(0, at(1, Step::Modifier(1), Some((1, false)))));
        // Plain and unaligned loads, one under a condition, a store.
        for word in [0x2801_c200, 0x2801_c2e0, 0x2881_ca40, 0x2821_c122] {
            assert_eq!(early_load(word), None, "{word:#x}");
        }
    }
}
