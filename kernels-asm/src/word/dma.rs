//! The user-DMA instructions, as LLVM encodes them (checked with LLVM 22; v68 and later).

use super::{Form, Operation, Parse, Register, field, with_parse};

/// A user-DMA instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dma {
    /// `dmstart(Rs)`: start on the descriptor at Rs.
    Start,
    /// `dmlink(Rs,Rt)`: append the descriptor at Rt behind the one at Rs.
    Link,
    /// `Rd=dmpoll`.
    Poll,
    /// `Rd=dmwait`: block until idle.
    Wait,
    /// `Rd=dmpause`.
    Pause,
    /// `dmresume(Rs)`.
    Resume,
}

impl Dma {
    /// Every one.
    pub const ALL: [Self; 6] = [Self::Start, Self::Link, Self::Poll, Self::Wait, Self::Pause, Self::Resume];

    /// The instruction as the manuals spell it.
    #[must_use]
    pub const fn mnemonic(self) -> &'static str {
        match self {
            Self::Start => "dmstart(Rs32)",
            Self::Link => "dmlink(Rs32,Rt32)",
            Self::Poll => "Rd32=dmpoll",
            Self::Wait => "Rd32=dmwait",
            Self::Pause => "Rd32=dmpause",
            Self::Resume => "dmresume(Rs32)",
        }
    }

    /// The opcode without registers and parse bits, and the bits that are a register.
    const fn code(self) -> (u32, u32) {
        const S: u32 = 31 << 16;
        const T: u32 = 31 << 8;
        const D: u32 = 31;
        match self {
            Self::Start => (0xa600_0020, S),
            Self::Link => (0xa600_0040, S | T),
            Self::Poll => (0xa800_0040, D),
            Self::Wait => (0xa800_0020, D),
            Self::Pause => (0xa800_0060, D),
            Self::Resume => (0xa600_0080, S),
        }
    }

    /// The word, alone in its packet. Registers that the instruction does not have are left out.
    #[must_use]
    pub const fn encode(self, s: u8, t: u8, d: u8) -> u32 {
        let (opcode, registers) = self.code();
        let fields = (s as u32) << 16 | (t as u32) << 8 | d as u32;
        with_parse(opcode | fields & registers, Parse::Last)
    }
}

pub(super) fn identify(word: u32) -> Option<Form> {
    let dma = Dma::ALL.into_iter().find(|dma| {
        let (opcode, registers) = dma.code();
        word & !(registers | 3 << 14) == opcode
    })?;
    let scalar = |bit| Some(Register::Scalar(field(word, bit)));
    let (sources, destination) = match dma {
        Dma::Start | Dma::Resume => ([scalar(16), None], None),
        Dma::Link => ([scalar(16), scalar(8)], None),
        Dma::Poll | Dma::Wait | Dma::Pause => ([None, None], scalar(0)),
    };
    Some(Form { operation: Operation::Dma(dma), sources, destination, accumulates: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that the facts publish, for r0.
    #[test]
    fn published_words() {
        let words = [0xa600_c020, 0xa600_c040, 0xa800_c040, 0xa800_c020, 0xa800_c060, 0xa600_c080];
        for (dma, word) in Dma::ALL.into_iter().zip(words) {
            assert_eq!(dma.encode(0, 0, 0), word, "{}", dma.mnemonic());
        }
    }

    #[test]
    fn registers_come_back() {
        let form = identify(Dma::Link.encode(17, 9, 31)).expect("dmlink");
        assert_eq!(form.sources, [Some(Register::Scalar(17)), Some(Register::Scalar(9))]);
        assert_eq!(form.destination, None);
        let form = identify(Dma::Wait.encode(1, 2, 21)).expect("dmwait");
        assert_eq!((form.sources, form.destination), ([None, None], Some(Register::Scalar(21))));
    }

    /// The neighbours in the same classes: cache operations, l2fetch, barriers.
    #[test]
    fn neighbours_are_not_ours() {
        for word in
            [0xa600_c000, 0xa680_c000, 0xa800_c000, 0xa840_c000, 0xa0e0_c00c, 0xa0e0_c02c, 0xa000_c000]
        {
            assert_eq!(identify(word), None, "{word:#010x}");
        }
    }
}
