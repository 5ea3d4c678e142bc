//! The words of the matrix unit: a load class (activation, weight, bias) and a store and control class.
//!
//! The field layout is the one that three public sources agree on (Qualcomm's QEMU fork, an IDA processor module, and an
//! encoder that its author compared with the vendor's assembler): bits 31:21 the class, 20:16 Rs, 15:14 the parse bits, 13
//! weight, 12:8 Rt, 7:0 the opcode. No open assembler knows these words. Only the fp16 forms have names here; the integer
//! and fp8 forms are recognised as [`Hmx::Other`], since a word of these classes that nobody recognises would be executed
//! by an emulator as something else.

use super::{Form, Operation, Parse, Register, field, with_parse};

const LOAD: u32 = 0x9200_0000;
const STORE: u32 = 0xa6e0_0000;
const CLASS: u32 = 0xffe0_0000;
/// Bit 13: a weight in the load class, the float stores in the other.
const BIT_13: u32 = 1 << 13;
/// The Rt field of the bias loads, which have no Rt.
const BIAS_T: u8 = 3;
/// The Rt field that makes `cvt=acc` an fp16 convert.
const CONVERT_HF_T: u8 = 0b11010;

/// How an activation load walks its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// A spatial window that may reach into the next tile: for convolutions.
    Plain,
    /// `:deep`: consecutive tiles along the channels: for matrix products.
    Deep,
    /// `:above`.
    Above,
    /// `:single`: one tile.
    Single,
    /// `:dilate`.
    Dilate,
}

/// Which spatial taps a weight load serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All: for matrix products.
    Plain,
    /// `:single`.
    Single,
    /// `:drop`.
    Drop,
    /// `:deep`: two groups of 32 output columns at once.
    Deep,
    /// `:after`.
    After,
    /// `:dilate`.
    Dilate,
}

/// A word of the matrix unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hmx {
    /// `activation.hf=mxmem(Rs,Rt)`: first word of a fused multiply.
    Activation(Block),
    /// `weight.hf=mxmem(Rs,Rt)`: second word of a fused multiply.
    Weight(Reach),
    /// `bias=mxmem2(Rs)`: 256 bytes of scales and biases.
    LoadBias,
    /// `bias=mxmem(Rs)`: the low words only, 128 bytes.
    LoadBiasLow,
    /// `mxmem2(Rs)=bias`.
    StoreBias,
    /// `mxmem(Rs)=bias`.
    StoreBiasLow,
    /// `mxclracc.hf`: clears both float accumulators.
    Clear,
    /// `mxswapacc.hf`: the other float accumulator becomes the current one.
    Swap,
    /// `cvt.hf=acc(Rs)`.
    Convert,
    /// `mxmem(Rs,Rt)=cvt`.
    StoreConverted,
    /// `mxmem(Rs,Rt):after.hf=acc`: convert and store.
    Store {
        /// `:retain`: the accumulator keeps its value; otherwise it is cleared.
        retain: bool,
        /// `:pos`: negative values become 0.
        positive: bool,
    },
    /// `mxmem(Rs,Rt):before.hf=acc`, whose meaning no source settles.
    StoreBefore {
        /// `:retain`.
        retain: bool,
        /// `:pos`.
        positive: bool,
    },
    /// An integer or fp8 form.
    Other,
}

impl Hmx {
    /// The words that have a name of their own.
    pub const NAMED: [Self; 27] = [
        Self::Activation(Block::Plain),
        Self::Activation(Block::Deep),
        Self::Activation(Block::Above),
        Self::Activation(Block::Single),
        Self::Activation(Block::Dilate),
        Self::Weight(Reach::Plain),
        Self::Weight(Reach::Single),
        Self::Weight(Reach::Drop),
        Self::Weight(Reach::Deep),
        Self::Weight(Reach::After),
        Self::Weight(Reach::Dilate),
        Self::LoadBias,
        Self::LoadBiasLow,
        Self::StoreBias,
        Self::StoreBiasLow,
        Self::Clear,
        Self::Swap,
        Self::Convert,
        Self::StoreConverted,
        Self::Store { retain: false, positive: false },
        Self::Store { retain: false, positive: true },
        Self::Store { retain: true, positive: false },
        Self::Store { retain: true, positive: true },
        Self::StoreBefore { retain: false, positive: false },
        Self::StoreBefore { retain: false, positive: true },
        Self::StoreBefore { retain: true, positive: false },
        Self::StoreBefore { retain: true, positive: true },
    ];

    /// The instruction as the manuals spell it.
    #[must_use]
    pub const fn mnemonic(self) -> &'static str {
        match self {
            Self::Activation(Block::Plain) => "activation.hf=mxmem(Rs32,Rt32)",
            Self::Activation(Block::Deep) => "activation.hf=mxmem(Rs32,Rt32):deep",
            Self::Activation(Block::Above) => "activation.hf=mxmem(Rs32,Rt32):above",
            Self::Activation(Block::Single) => "activation.hf=mxmem(Rs32,Rt32):single",
            Self::Activation(Block::Dilate) => "activation.hf=mxmem(Rs32,Rt32):dilate",
            Self::Weight(Reach::Plain) => "weight.hf=mxmem(Rs32,Rt32)",
            Self::Weight(Reach::Single) => "weight.hf=mxmem(Rs32,Rt32):single",
            Self::Weight(Reach::Drop) => "weight.hf=mxmem(Rs32,Rt32):drop",
            Self::Weight(Reach::Deep) => "weight.hf=mxmem(Rs32,Rt32):deep",
            Self::Weight(Reach::After) => "weight.hf=mxmem(Rs32,Rt32):after",
            Self::Weight(Reach::Dilate) => "weight.hf=mxmem(Rs32,Rt32):dilate",
            Self::LoadBias => "bias=mxmem2(Rs32)",
            Self::LoadBiasLow => "bias=mxmem(Rs32)",
            Self::StoreBias => "mxmem2(Rs32)=bias",
            Self::StoreBiasLow => "mxmem(Rs32)=bias",
            Self::Clear => "mxclracc.hf",
            Self::Swap => "mxswapacc.hf",
            Self::Convert => "cvt.hf=acc(Rs32)",
            Self::StoreConverted => "mxmem(Rs32,Rt32)=cvt",
            Self::Store { retain: false, positive: false } => "mxmem(Rs32,Rt32):after.hf=acc",
            Self::Store { retain: false, positive: true } => "mxmem(Rs32,Rt32):after:pos.hf=acc",
            Self::Store { retain: true, positive: false } => "mxmem(Rs32,Rt32):after:retain.hf=acc",
            Self::Store { retain: true, positive: true } => "mxmem(Rs32,Rt32):after:retain:pos.hf=acc",
            Self::StoreBefore { retain: false, positive: false } => "mxmem(Rs32,Rt32):before.hf=acc",
            Self::StoreBefore { retain: false, positive: true } => "mxmem(Rs32,Rt32):before:pos.hf=acc",
            Self::StoreBefore { retain: true, positive: false } => "mxmem(Rs32,Rt32):before:retain.hf=acc",
            Self::StoreBefore { retain: true, positive: true } => "mxmem(Rs32,Rt32):before:retain:pos.hf=acc",
            Self::Other => "an integer or fp8 form of HMX",
        }
    }

    /// Whether [`model::hmx`](crate::model::hmx) serves it: the forms of a matrix product, both bias words included.
    #[must_use]
    pub const fn is_modelled(self) -> bool {
        matches!(
            self,
            Self::Activation(Block::Deep)
                | Self::Weight(Reach::Plain)
                | Self::LoadBias
                | Self::LoadBiasLow
                | Self::StoreBias
                | Self::StoreBiasLow
                | Self::Clear
                | Self::Swap
                | Self::Store { .. }
        )
    }

    /// Class, bit 13 and opcode; none for [`Hmx::Other`], which is no single word.
    const fn code(self) -> Option<u32> {
        Some(match self {
            Self::Activation(block) => {
                LOAD | match block {
                    Block::Plain => 0xe4,
                    Block::Deep => 0xe2,
                    Block::Above => 0xe6,
                    Block::Single => 0xf8,
                    Block::Dilate => 0xfa,
                }
            }
            Self::Weight(reach) => {
                LOAD | BIT_13
                    | match reach {
                        Reach::Plain => 0xef,
                        Reach::Single => 0xf2,
                        Reach::Drop => 0xf3,
                        Reach::Deep => 0xf4,
                        Reach::After => 0xf5,
                        Reach::Dilate => 0xf6,
                    }
            }
            Self::LoadBias => LOAD | 0xfe,
            Self::LoadBiasLow => LOAD | 0xff,
            Self::StoreBias => STORE | 0x16,
            Self::StoreBiasLow => STORE | 0x10,
            Self::Clear => STORE | 0x13,
            Self::Swap => STORE | 0x15,
            Self::Convert => STORE | 0x10,
            Self::StoreConverted => STORE | 0x18,
            Self::Store { retain, positive } => {
                STORE
                    | BIT_13
                    | match (retain, positive) {
                        (false, false) => 0x04,
                        (false, true) => 0x09,
                        (true, false) => 0x0c,
                        (true, true) => 0x0d,
                    }
            }
            Self::StoreBefore { retain, positive } => {
                STORE
                    | BIT_13
                    | match (retain, positive) {
                        (false, false) => 0x00,
                        (false, true) => 0x01,
                        (true, false) => 0x08,
                        (true, true) => 0x05,
                    }
            }
            Self::Other => return None,
        })
    }

    /// The word with these registers; none for [`Hmx::Other`]. Registers that the instruction does not have are left out.
    #[must_use]
    pub const fn encode(self, s: u8, t: u8, parse: Parse) -> Option<u32> {
        let Some(code) = self.code() else { return None };
        let (has_s, has_t) = self.operands();
        let s = if has_s { s & 31 } else { 0 };
        let t = match self {
            Self::LoadBias | Self::LoadBiasLow => BIAS_T,
            Self::Convert => CONVERT_HF_T,
            _ if has_t => t & 31,
            _ => 0,
        };
        Some(with_parse(code | (s as u32) << 16 | (t as u32) << 8, parse))
    }

    /// Whether the instruction has an Rs and an Rt.
    const fn operands(self) -> (bool, bool) {
        match self {
            Self::Clear | Self::Swap => (false, false),
            Self::LoadBias | Self::LoadBiasLow | Self::StoreBias | Self::StoreBiasLow | Self::Convert => {
                (true, false)
            }
            _ => (true, true),
        }
    }
}

pub(super) fn identify(word: u32) -> Option<Form> {
    let (s, t, opcode) = (field(word, 16), field(word, 8), word & 0xff);
    let heavy = word & BIT_13 != 0;
    let hmx = match word & CLASS {
        // The rest of this class are scalar neighbours: vextract, memcpy, locked and acquiring loads.
        LOAD if opcode < 0xe0 && !(heavy && matches!(opcode, 0x41..=0x4c)) => return None,
        LOAD => match (heavy, opcode, t) {
            (false, 0xfe, _) => Hmx::LoadBias,
            (false, 0xff, _) => Hmx::LoadBiasLow,
            _ => named(word & (CLASS | BIT_13 | 0xff)),
        },
        STORE => match (heavy, opcode & 0x3f, t) {
            // Bits 7:6 are ignored by this class.
            (false, 0x10, 0) => Hmx::StoreBiasLow,
            (false, 0x10, CONVERT_HF_T) => Hmx::Convert,
            (false, 0x10, _) => Hmx::Other,
            _ => named(word & (CLASS | BIT_13 | 0x3f)),
        },
        _ => return None,
    };
    let (has_s, has_t) = hmx.operands();
    let sources = [has_s.then_some(Register::Scalar(s)), has_t.then_some(Register::Scalar(t))];
    Some(Form { operation: Operation::Hmx(hmx), sources, destination: None, accumulates: false })
}

fn named(code: u32) -> Hmx {
    Hmx::NAMED.into_iter().find(|hmx| hmx.code() == Some(code)).unwrap_or(Hmx::Other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::identify;

    /// Words that public sources print, for r0 to r3 and r8.
    #[test]
    fn published_words() {
        let word = |hmx: Hmx, s, t, parse| hmx.encode(s, t, parse).unwrap_or_default();
        let (more, last) = (Parse::More, Parse::Last);
        for (hmx, s, t, parse, expected) in [
            (Hmx::Activation(Block::Deep), 0, 1, more, 0x9200_41e2),
            (Hmx::Activation(Block::Plain), 0, 1, more, 0x9200_41e4),
            (Hmx::Activation(Block::Single), 0, 1, more, 0x9200_41f8),
            (Hmx::Activation(Block::Above), 0, 1, more, 0x9200_41e6),
            (Hmx::Activation(Block::Dilate), 0, 1, more, 0x9200_41fa),
            (Hmx::Weight(Reach::Plain), 2, 3, last, 0x9202_e3ef),
            (Hmx::Weight(Reach::Single), 2, 3, last, 0x9202_e3f2),
            (Hmx::Weight(Reach::Drop), 2, 3, last, 0x9202_e3f3),
            (Hmx::Weight(Reach::Deep), 2, 3, last, 0x9202_e3f4),
            (Hmx::Weight(Reach::After), 2, 3, last, 0x9202_e3f5),
            (Hmx::Weight(Reach::Dilate), 2, 3, last, 0x9202_e3f6),
            (Hmx::LoadBias, 8, 0, last, 0x9208_c3fe),
            (Hmx::LoadBias, 0, 0, last, 0x9200_c3fe),
            (Hmx::LoadBiasLow, 0, 0, last, 0x9200_c3ff),
            (Hmx::StoreBias, 0, 0, last, 0xa6e0_c016),
            (Hmx::StoreBiasLow, 0, 0, last, 0xa6e0_c010),
            (Hmx::Clear, 9, 9, last, 0xa6e0_c013),
            (Hmx::Swap, 9, 9, last, 0xa6e0_c015),
            (Hmx::Convert, 9, 0, last, 0xa6e9_da10),
            (Hmx::StoreConverted, 0, 1, last, 0xa6e0_c118),
            (Hmx::StoreConverted, 6, 7, last, 0xa6e6_c718),
            (Hmx::Store { retain: false, positive: false }, 0, 1, last, 0xa6e0_e104),
            (Hmx::Store { retain: false, positive: true }, 0, 0, last, 0xa6e0_e009),
            (Hmx::Store { retain: true, positive: false }, 0, 0, last, 0xa6e0_e00c),
            (Hmx::Store { retain: true, positive: true }, 0, 0, last, 0xa6e0_e00d),
            (Hmx::StoreBefore { retain: false, positive: false }, 0, 0, last, 0xa6e0_e000),
            (Hmx::StoreBefore { retain: false, positive: true }, 0, 0, last, 0xa6e0_e001),
            (Hmx::StoreBefore { retain: true, positive: false }, 0, 0, last, 0xa6e0_e008),
            (Hmx::StoreBefore { retain: true, positive: true }, 0, 0, last, 0xa6e0_e005),
        ] {
            assert_eq!(word(hmx, s, t, parse), expected, "{}", hmx.mnemonic());
        }
    }

    /// Any registers come back from any named word, wherever it stands in a packet.
    #[test]
    fn named_words_come_back() {
        for hmx in Hmx::NAMED {
            for (s, t) in [(0, 0), (31, 28), (9, 30), (16, 3)] {
                for parse in [Parse::More, Parse::MoreLoopEnd, Parse::Last] {
                    let word = hmx.encode(s, t, parse).expect("it has a name");
                    let form = identify(word).expect("a word of ours");
                    assert_eq!(form.operation, Operation::Hmx(hmx), "{word:#010x}");
                    let (has_s, has_t) = hmx.operands();
                    assert_eq!(form.sources[0], has_s.then_some(Register::Scalar(s)));
                    assert_eq!(form.sources[1], has_t.then_some(Register::Scalar(t)));
                }
            }
        }
        assert_eq!(Hmx::Other.encode(0, 0, Parse::Last), None);
    }

    /// Integer and fp8 words are found, and are not fp16 ones; the scalar instructions of the same class are not found.
    #[test]
    fn other_forms_are_other() {
        for word in [
            0x9200_41ec,
            0x9202_e3e0,
            0x9202_e3e1,
            0x9202_e346,
            0x9202_e347,
            0xa6e0_c011,
            0xa6e0_c014,
            0xa6e0_d710,
            0xa6e0_c11d,
        ] {
            assert_eq!(
                identify(word).map(|form| form.operation),
                Some(Operation::Hmx(Hmx::Other)),
                "{word:#010x}"
            );
        }
        assert_eq!(identify(0x9201_c120), None, "vextract");
        assert_eq!(identify(0x9205_c040), None, "memcpy");
    }

    /// The store class ignores bits 7:6.
    #[test]
    fn ignored_bits_are_ignored() {
        assert_eq!(identify(0xa6e0_e0c4), identify(0xa6e0_e004));
        assert_eq!(identify(0xa6e0_c053), identify(0xa6e0_c013));
    }
}
