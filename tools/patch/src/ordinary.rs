//! What must be known about the words of a packet that nobody models, so that they can run at another address.
//!
//! Three things: how a word depends on where it stands (branches, loop starts, `add(pc)`), whether it names the producer of
//! a `.new` operand by its distance, and, where a result is committed before it runs, which registers it touches. Anything
//! that could not be moved is named and refused; that list errs on the side of refusing. Encodings are those of LLVM 22,
//! which the tests of this crate and the words' table test assemble.

use crate::encode::{B22, Field};
use estream_kernels_asm::word::{Parse, parse};

/// How a word depends on its address, or takes the packet elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does neither.
    Free,
    /// A branch to a distance from its packet.
    Branch {
        /// Where the distance stands, in words, or extended in bytes.
        field: Field,
        /// Whether the packet always goes there.
        always: bool,
        /// Whether r31 is set to the address behind the packet.
        call: bool,
    },
    /// A branch through a register: a return or an indirect call.
    Register,
    /// A value that is a distance from its packet: the start of a loop, or `add(pc,#u6)`.
    Distance {
        /// Where the distance stands.
        field: Field,
        /// Unextended: bytes in a unit of the field, and whether it is signed.
        unit: u32,
        /// Whether the unextended field is signed.
        signed: bool,
    },
    /// It cannot run anywhere else.
    Fixed(Fixed),
}

/// Why a word cannot run anywhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixed {
    /// It reads or writes the program counter.
    ProgramCounter,
    /// It reads or writes the global pointer, or memory relative to it: stubs have another use for it.
    GlobalPointer,
    /// A trap, a system instruction or one of an unknown form.
    System,
}

impl Fixed {
    /// As a part of a sentence.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            Self::ProgramCounter => "it reads or writes the program counter",
            Self::GlobalPointer => "it uses the global pointer",
            Self::System => "it has a trap, a system instruction or a branch of an unknown form",
        }
    }
}

const B7: Field = &[(3, 2), (8, 5)];
const B9: Field = &[(1, 7), (20, 2)];
const B13: Field = &[(1, 11), (13, 1), (21, 1)];
const B15: Field = &[(1, 7), (13, 1), (16, 5), (22, 2)];
const U6: Field = &[(7, 6)];

/// The control registers that a word may not touch when it is moved.
const PROGRAM_COUNTER: u32 = 9;
const GLOBAL_POINTER: u32 = 11;

/// Whether the word carries the upper bits of the next word's immediate.
#[must_use]
pub const fn is_extender(word: u32) -> bool {
    word >> 28 == 0 && !matches!(parse(word), Parse::Duplex)
}

/// Whether the word is an instruction of the vector unit: `.new` distances of vectors count only these.
#[must_use]
pub const fn is_vector(word: u32) -> bool {
    !matches!(parse(word), Parse::Duplex) && matches!(word >> 27, 0b00011 | 0b00101)
}

const fn branch(field: Field, always: bool, call: bool) -> Flow {
    Flow::Branch { field, always, call }
}

/// How the word depends on its address; `extended` if an extender stands before it, which makes an absolute address of
/// one relative to the global pointer.
#[must_use]
pub fn flow(word: u32, extended: bool) -> Flow {
    if matches!(parse(word), Parse::Duplex) {
        return duplex_flow(word);
    }
    match word >> 24 {
        // Compare and jump; transfer and jump, which has no condition.
        0x10..=0x15 => branch(B9, false, false),
        0x16 | 0x17 => branch(B9, true, false),
        // Compare a new value and jump.
        0x20..=0x27 => branch(B9, false, false),
        0x48..=0x4f if !extended => Flow::Fixed(Fixed::GlobalPointer),
        0x50..=0x53 => Flow::Register,
        0x54..=0x57 => Flow::Fixed(Fixed::System),
        0x58 | 0x59 => branch(B22, true, false),
        0x5a | 0x5b => branch(B22, true, true),
        0x5c => branch(B15, false, false),
        0x5d => branch(B15, false, true),
        0x5e | 0x5f => Flow::Fixed(Fixed::System),
        0x60 | 0x69 => Flow::Distance { field: B7, unit: 4, signed: true },
        0x61 => branch(B13, false, false),
        0x62 | 0x63 => control_write(word),
        0x64..=0x67 | 0x6c..=0x6f => Flow::Fixed(Fixed::System),
        0x68 => pair(word >> 16),
        0x6a => control_read(word),
        0x96 if word >> 21 & 7 == 0 => Flow::Register,
        _ => Flow::Free,
    }
}

fn control_write(word: u32) -> Flow {
    if word >> 24 == 0x63 { pair(word) } else { single(word) }
}

fn control_read(word: u32) -> Flow {
    match (word >> 21 & 7, word >> 16 & 31) {
        (0b010, PROGRAM_COUNTER) => Flow::Distance { field: U6, unit: 1, signed: false },
        (0, _) => single(word >> 16),
        _ => Flow::Free,
    }
}

const fn single(field: u32) -> Flow {
    match field & 31 {
        PROGRAM_COUNTER => Flow::Fixed(Fixed::ProgramCounter),
        GLOBAL_POINTER => Flow::Fixed(Fixed::GlobalPointer),
        _ => Flow::Free,
    }
}

const fn pair(field: u32) -> Flow {
    match field & 0x1e | 1 {
        PROGRAM_COUNTER => Flow::Fixed(Fixed::ProgramCounter),
        GLOBAL_POINTER => Flow::Fixed(Fixed::GlobalPointer),
        _ => Flow::Free,
    }
}

/// The two 13-bit instructions of a duplex, and the group of each by the class in bits 31:29 and 13.
const fn halves(word: u32) -> ([u32; 2], u32) {
    ([word & 0x1fff, word >> 16 & 0x1fff], word >> 28 & 0xe | word >> 13 & 1)
}

/// Whether the low and the high half are of the group that has the loads of frames and the returns.
const fn second_load_group(class: u32) -> [bool; 2] {
    [matches!(class, 0x1 | 0x2 | 0x5), matches!(class, 0x2 | 0x9 | 0xd)]
}

fn duplex_flow(word: u32) -> Flow {
    let (halves, class) = halves(word);
    // `jumpr r31` and `dealloc_return`, each with and without a condition.
    let leaves = |half: u32| matches!(half & 0x1fc0, 0x1f40 | 0x1fc0);
    let groups = second_load_group(class);
    let found = halves.into_iter().zip(groups).any(|(half, group)| group && leaves(half));
    if found { Flow::Register } else { Flow::Free }
}

/// Where a word names the producer of a new value by its distance, as the lowest bit of three: bit 0 is the odd half of a
/// pair, bits 2:1 the distance in instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewValue {
    /// A scalar: every instruction counts.
    Scalar(u32),
    /// A vector: vector instructions count.
    Vector(u32),
}

impl NewValue {
    /// The operand of a word, if it has one.
    #[must_use]
    pub const fn of(word: u32) -> Option<Self> {
        if matches!(parse(word), Parse::Duplex) {
            return None;
        }
        // Stores have size 101 where others name a width; of the jumps all have a new value.
        let scalar_store = matches!(word & 0xf1e0_0000, 0xa1a0_0000 | 0x40a0_0000)
            || word & 0xffe0_0000 == 0x3ba0_0000
            || word & 0xfce0_0000 == 0x34a0_0000;
        if scalar_store {
            Some(Self::Scalar(8))
        } else if word >> 27 == 0b00100 {
            Some(Self::Scalar(16))
        } else if crate::vector::is_new_store(word) {
            Some(Self::Vector(0))
        } else {
            None
        }
    }

    /// The distance.
    #[must_use]
    pub const fn distance(self, word: u32) -> u32 {
        let (Self::Scalar(low) | Self::Vector(low)) = self;
        word >> (low + 1) & 3
    }

    /// The word with another distance.
    #[must_use]
    pub const fn with_distance(self, word: u32, distance: u32) -> u32 {
        let (Self::Scalar(low) | Self::Vector(low)) = self;
        word & !(3 << (low + 1)) | (distance & 3) << (low + 1)
    }

    /// The odd half of a pair, or not.
    #[must_use]
    pub const fn odd(self, word: u32) -> u8 {
        let (Self::Scalar(low) | Self::Vector(low)) = self;
        (word >> low & 1) as u8
    }

    /// Whether an instruction counts towards the distance.
    #[must_use]
    pub const fn counts(self, word: u32) -> bool {
        match self {
            Self::Scalar(_) => !is_extender(word),
            Self::Vector(_) => is_vector(word),
        }
    }
}

/// Whether the word may read memory. True for some that do not.
#[must_use]
pub const fn reads_memory(word: u32) -> bool {
    if matches!(parse(word), Parse::Duplex) {
        return true;
    }
    match word >> 24 {
        0x28..=0x2b => word >> 21 & 1 == 0,
        0x2c..=0x2f | 0x30..=0x33 | 0x38..=0x3a | 0x3e | 0x3f | 0x90..=0x9f => true,
        0x40..=0x4f => word >> 24 & 1 == 1,
        _ => false,
    }
}

/// Whether the word may read or write one of these registers or its neighbour in a pair. True for some that do not: every
/// field that holds a register in any instruction is looked at.
#[must_use]
pub fn may_touch(word: u32, register: u8, vector: bool) -> bool {
    if matches!(parse(word), Parse::Duplex) {
        return !vector;
    }
    // Base registers of vector loads and stores are scalars.
    if vector && !is_vector(word) {
        return false;
    }
    [0, 8, 16, 19].into_iter().any(|low| (word >> low & 31) >> 1 == u32::from(register) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words from `llvm-mc-22`.
    #[test]
    fn branches_are_told_by_their_fields() {
        let relative = |word: u32, always: bool, call: bool, words: i32| {
            let Flow::Branch { field, always: a, call: c } = flow(word, false) else {
                panic!("{word:#x}: {:?}", flow(word, false));
            };
            let shift = 32 - crate::encode::width(field);
            let distance = (crate::encode::extract(word, field) << shift).cast_signed() >> shift;
            assert_eq!((a, c, distance), (always, call, words), "{word:#x}");
        };
        relative(0x5bff_fffe, true, true, -1); // call
        relative(0x5cdf_f0fc, false, false, -2); // if (p0) jump:t
        relative(0x1430_c1fa, false, false, -3); // p0=cmp.eq(r0,r1); if (p0.new) jump:nt
        relative(0x5ddf_e1f6, false, true, -5); // if (p1) call
        relative(0x1733_c2ee, true, false, -9); // r2=r3; jump
        relative(0x2032_e3ea, false, false, -11); // if (cmp.eq(r0.new,r3)) jump:t
        relative(0x6122_ffde, false, false, -17); // if (r2!=#0) jump:t
        for word in [0x529f_c000, 0x535f_c000, 0x50a5_c000, 0x5105_c000, 0x961e_c01e, 0x961e_d01e] {
            assert_eq!(flow(word, false), Flow::Register, "{word:#x}");
        }
        for word in [0x6003_db08, 0x6929_db60, 0x60a3_da18, 0x69c0_da13, 0x6a49_c604] {
            assert!(matches!(flow(word, false), Flow::Distance { .. }), "{word:#x}");
        }
        for word in
            [0x5400_c004, 0x6a09_c005, 0x6808_c004, 0x6220_c00b, 0x6a0b_c000, 0x4880_c001, 0x57e0_c000]
        {
            assert!(matches!(flow(word, false), Flow::Fixed(_)), "{word:#x}");
        }
        for word in
            [0xf301_c200, 0x1f82_e1c0, 0x2801_c200, 0x901e_c01e, 0xa09d_c002, 0x7f00_c000, 0x6a14_c00a]
        {
            assert_eq!(flow(word, false), Flow::Free, "{word:#x}");
        }
    }

    #[test]
    fn returns_are_found_in_duplexes() {
        for word in
            [0x0010_3fc0, 0x4810_3f40, 0x9f40_2010, 0xdf40_3011, 0x2010_1fc0, 0x4810_3fc4, 0x5901_3fc6]
        {
            assert_eq!(flow(word, false), Flow::Register, "{word:#x}");
        }
        for word in [0x2010_0112, 0x3100_3821, 0x2b80_2821] {
            assert_eq!(flow(word, false), Flow::Free, "{word:#x}");
        }
    }

    #[test]
    fn new_values_are_found() {
        for (word, scalar, distance) in [
            (0xa1a3_d200, true, 1), // memw(r3+#0)=r0.new
            (0xa1a3_d400, true, 2),
            (0x48a0_d238, true, 1), // memw(##…)=r0.new
            (0x40a3_c200, true, 1), // if (p0) memb(r3+#0)=r0.new
            (0x2032_e3ea, true, 1),
            (0x2821_c122, false, 1), // vmem(r1+#1)=v0.new
            (0x2821_c124, false, 2),
            (0x2b21_e022, false, 1), // vmem(r1++m1)=v0.new
            (0x2be1_d07a, false, 1), // if (!p2) vmem(r1++m0):nt=v0.new
        ] {
            let new = NewValue::of(word).expect("a new value");
            assert_eq!(
                (matches!(new, NewValue::Scalar(_)), new.distance(word)),
                (scalar, distance),
                "{word:#x}"
            );
            assert_eq!(new.with_distance(word, distance), word);
        }
        for word in
            [0xa181_c000, 0xa0e0_c00c, 0x2821_c200, 0x2821_c028, 0x28a1_ca00, 0x2801_c220, 0x4880_c001]
        {
            assert_eq!(NewValue::of(word), None, "{word:#x}");
        }
    }
}
