//! The DMA engine's model: what it copies, when, and its rules one by one.

use estream_kernels_asm::model::dma::{Engine, Pace, Side, Violation};
use estream_kernels_asm::model::{Memory, Range, Vtcm};

const DDR: u32 = 0x1000_0000;
const VTCM: Vtcm = Vtcm { base: 0xd800_0000, length: 1 << 16, single_page: true };
const CHAIN: u32 = DDR + 0x8000;
/// Word 1: bypass of the destination, and of the source.
const TO_VTCM: u32 = 1 << 28;
const FROM_VTCM: u32 = 1 << 29;

/// Memory and scratchpad, filled with different bytes.
struct Board {
    engine: Engine,
    ddr: Vec<u8>,
    vtcm: Vec<u8>,
}

impl Board {
    fn new(pace: Pace) -> Self {
        let ddr = (0..1u32 << 16).map(|i| ((i * 31) >> 3) as u8).collect();
        Self { engine: Engine::new(VTCM, pace), ddr, vtcm: vec![0xee; 1 << 16] }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Engine, &mut [Range<'_>]) -> T) -> T {
        let ranges = &mut [
            Range { base: DDR, bytes: &mut self.ddr },
            Range { base: VTCM.base, bytes: &mut self.vtcm },
        ];
        act(&mut self.engine, ranges)
    }

    fn descriptor(&mut self, at: u32, words: &[u32]) {
        for (index, word) in words.iter().enumerate() {
            let written = self.with(|_, memory| memory.write(at + 4 * index as u32, &word.to_le_bytes()));
            assert!(written);
        }
    }

    fn done(&mut self, at: u32) -> bool {
        let mut word = [0; 4];
        assert!(self.with(|_, memory| memory.read(at + 4, &mut word)));
        word[3] & 0x80 != 0
    }

    fn start(&mut self, at: u32) -> Result<(), Violation> {
        self.with(|engine, memory| engine.start(memory, at))
    }

    fn link(&mut self, tail: u32, new: u32) -> Result<(), Violation> {
        self.with(|engine, memory| engine.link(memory, tail, new))
    }

    fn poll(&mut self) -> Result<u32, Violation> {
        self.with(|engine, memory| engine.poll(memory))
    }

    fn wait(&mut self) -> Result<u32, Violation> {
        self.with(|engine, memory| engine.wait(memory))
    }

    /// What a fresh board says to one descriptor.
    fn refuses(words: &[u32]) -> Violation {
        let mut board = Self::new(Pace::Immediate);
        board.descriptor(CHAIN, words);
        board.start(CHAIN).expect_err("a breach")
    }
}

const LINEAR: [u32; 4] = [0, TO_VTCM | 3000, DDR + 5, VTCM.base + 0x100];

#[test]
fn a_linear_descriptor_copies() {
    let mut board = Board::new(Pace::Immediate);
    board.descriptor(CHAIN, &LINEAR);
    board.start(CHAIN).expect("an ordinary copy");
    assert_eq!(board.vtcm[0x100..0x100 + 3000], board.ddr[5..3005]);
    assert_eq!((board.vtcm[0xff], board.vtcm[0x100 + 3000]), (0xee, 0xee));
    assert!(board.done(CHAIN));
    assert_eq!(board.poll(), Ok(0));
    let counters = board.engine.counters();
    assert_eq!((counters.descriptors, counters.bytes, counters.looks), (1, 3000, 1));
}

/// 7 rows of 100 bytes from rows of 300 into rows of 128, in both forms of the two-dimensional descriptor, and back.
#[test]
fn two_dimensional_descriptors_copy_rows() {
    let plain = [0, 1 << 24 | TO_VTCM, DDR, VTCM.base, 0, 7 << 16 | 100, 128 << 16 | 300, 0];
    let wide = [0, 1 << 24 | TO_VTCM | 128, DDR, VTCM.base, 9, 7 << 24 | 100, 300 << 8, 0];
    for descriptor in [plain, wide] {
        let mut board = Board::new(Pace::Immediate);
        board.descriptor(CHAIN, &descriptor);
        board.start(CHAIN).expect("an ordinary copy");
        for row in 0..7 {
            assert_eq!(board.vtcm[128 * row..][..100], board.ddr[300 * row..][..100], "row {row}");
            assert_eq!(board.vtcm[128 * row + 100..][..28], [0xee; 28], "row {row}");
        }
        let back = [0, 1 << 24 | FROM_VTCM, VTCM.base, DDR + 0x4000, 0, 7 << 16 | 100, 100 << 16 | 128, 0];
        board.descriptor(CHAIN + 32, &back);
        board.start(CHAIN + 32).expect("an ordinary copy");
        for row in 0..7 {
            assert_eq!(board.ddr[0x4000 + 100 * row..][..100], board.ddr[300 * row..][..100], "row {row}");
        }
        assert_eq!(board.engine.counters().bytes, 1400);
    }
    // 300 rows of 2 bytes: the wide form's height has its high bits in another word.
    let mut board = Board::new(Pace::Immediate);
    board.descriptor(CHAIN, &[0, 1 << 24 | TO_VTCM | 2, DDR, VTCM.base, 9, 44 << 24 | 2, 2 << 8 | 1, 0]);
    board.start(CHAIN).expect("an ordinary copy");
    assert_eq!(board.vtcm[..600], board.ddr[..600]);
    assert_eq!(board.vtcm[600], 0xee);
}

/// A kernel that does not wait reads what was there before.
#[test]
fn deferred_copies_happen_at_a_look() {
    let mut board = Board::new(Pace::Deferred);
    let chain = [CHAIN, CHAIN + 16, CHAIN + 32];
    for (index, at) in chain.into_iter().enumerate() {
        let next = chain.get(index + 1).copied().unwrap_or(0);
        board.descriptor(at, &[next, TO_VTCM | 64, DDR + 64 * index as u32, VTCM.base + 64 * index as u32]);
    }
    board.start(CHAIN).expect("an ordinary chain");
    assert_eq!(board.vtcm[..192], [0xee; 192]);
    assert_eq!(board.poll(), Ok(chain[1] | 1));
    assert_eq!((board.done(chain[0]), board.done(chain[1])), (true, false));
    assert_eq!(board.vtcm[..64], board.ddr[..64]);
    assert_eq!(board.vtcm[64..192], [0xee; 128]);
    assert_eq!(board.wait(), Ok(0));
    assert_eq!(board.vtcm[..192], board.ddr[..192]);
    assert_eq!(board.engine.counters().descriptors, 3);
}

#[test]
fn links_go_behind_the_tail() {
    let mut board = Board::new(Pace::Deferred);
    for index in 0..4 {
        board.descriptor(CHAIN + 16 * index, &[0, TO_VTCM | 16, DDR + 16 * index, VTCM.base + 16 * index]);
    }
    board.link(0xdead_0000, CHAIN).expect("idle: the tail may be anything");
    board.link(CHAIN, CHAIN + 16).expect("behind the tail");
    board.link(CHAIN + 16, 0).expect("nothing");
    assert_eq!(board.link(CHAIN, CHAIN + 32), Err(Violation::NotTheTail { tail: CHAIN, last: CHAIN + 16 }));
    let mut board = Board::new(Pace::Deferred);
    for index in 0..2 {
        board.descriptor(CHAIN + 16 * index, &[0, TO_VTCM | 16, DDR + 16 * index, VTCM.base + 16 * index]);
    }
    board.start(CHAIN).expect("a chain");
    board.link(CHAIN, CHAIN + 16).expect("behind the tail");
    board.wait().expect("both");
    assert_eq!(board.vtcm[..32], board.ddr[..32]);
}

#[test]
fn pause_and_resume() {
    let mut board = Board::new(Pace::Deferred);
    board.descriptor(CHAIN, &LINEAR);
    board.start(CHAIN).expect("a chain");
    assert_eq!(board.engine.pause(), CHAIN | 1);
    assert_eq!(board.poll(), Ok(CHAIN | 1));
    assert!(!board.done(CHAIN), "paused");
    let resume = |board: &mut Board, at| board.with(|engine, memory| engine.resume(memory, at));
    resume(&mut board, CHAIN | 1).expect("what was paused");
    assert_eq!(board.wait(), Ok(0));
    resume(&mut board, 0).expect("nothing was paused");
    assert_eq!(resume(&mut board, CHAIN), Err(Violation::NotPaused { descriptor: CHAIN }));
}

#[test]
fn one_chain_at_a_time() {
    let mut board = Board::new(Pace::Deferred);
    board.descriptor(CHAIN, &LINEAR);
    board.start(CHAIN).expect("a chain");
    assert_eq!(board.start(CHAIN), Err(Violation::StartWhileRunning { descriptor: CHAIN }));
    assert_eq!(board.poll().map(|status| status & 3), Ok(2), "it failed");
    let mut board = Board::new(Pace::Immediate);
    assert_eq!(board.start(0), Err(Violation::NullDescriptor));
}

#[test]
fn descriptors_are_aligned_mapped_and_fresh() {
    let mut board = Board::new(Pace::Immediate);
    board.descriptor(CHAIN + 8, &LINEAR);
    assert_eq!(board.start(CHAIN + 8), Err(Violation::Misaligned { descriptor: CHAIN + 8, alignment: 16 }));
    let mut board = Board::new(Pace::Immediate);
    board.descriptor(CHAIN + 16, &[0, 1 << 24 | TO_VTCM, DDR, VTCM.base, 0, 1 << 16 | 8, 8 << 16 | 8, 0]);
    assert_eq!(board.start(CHAIN + 16), Err(Violation::Misaligned { descriptor: CHAIN + 16, alignment: 32 }));
    let mut board = Board::new(Pace::Immediate);
    assert_eq!(board.start(0x400), Err(Violation::Unmapped { descriptor: 0x400 }));
    let [next, word_1, source, destination] = LINEAR;
    assert_eq!(
        Board::refuses(&[next, word_1 | 1 << 31, source, destination]),
        Violation::AlreadyDone { descriptor: CHAIN }
    );
    // A chain that comes back to itself finds its own done bit.
    assert_eq!(
        Board::refuses(&[CHAIN, word_1, source, destination]),
        Violation::AlreadyDone { descriptor: CHAIN }
    );
}

#[test]
fn fields_mean_what_is_served() {
    let [next, word_1, source, destination] = LINEAR;
    let descriptor = CHAIN;
    assert_eq!(
        Board::refuses(&[next, word_1 | 2 << 24, source, destination]),
        Violation::UnknownType { descriptor, kind: 2, sub_type: 0 }
    );
    for bit in [26, 27, 30] {
        assert_eq!(
            Board::refuses(&[next, word_1 | 1 << bit, source, destination]),
            Violation::Reserved { descriptor, word: 1, bits: 1 << bit }
        );
    }
    assert_eq!(Board::refuses(&[next, TO_VTCM, source, destination]), Violation::Empty { descriptor });
    let plane = |word_4, word_5, word_6, word_7| {
        Board::refuses(&[0, 1 << 24 | TO_VTCM, DDR, VTCM.base, word_4, word_5, word_6, word_7])
    };
    let (size, strides) = (4 << 16 | 64, 64 << 16 | 64);
    assert_eq!(plane(8, size, strides, 0), Violation::UnknownType { descriptor, kind: 1, sub_type: 8 });
    assert_eq!(plane(1 << 25, size, strides, 0), Violation::Reserved { descriptor, word: 4, bits: 1 << 25 });
    assert_eq!(plane(0, size, strides, 3), Violation::Reserved { descriptor, word: 7, bits: 3 });
    assert_eq!(plane(0, 64, strides, 0), Violation::Empty { descriptor });
    let stride = |side, stride| Violation::Stride { descriptor, side, stride, width: 64 };
    assert_eq!(plane(0, size, 64 << 16, 0), stride(Side::Source, 0));
    assert_eq!(plane(0, size, 63 << 16 | 64, 0), stride(Side::Destination, 63));
}

#[test]
fn bypass_is_for_vtcm() {
    let [next, _, source, destination] = LINEAR;
    let bypass = |side, address, bypass| Violation::Bypass { descriptor: CHAIN, side, address, bypass };
    assert_eq!(
        Board::refuses(&[next, 64, source, destination]),
        bypass(Side::Destination, destination, false)
    );
    assert_eq!(
        Board::refuses(&[next, TO_VTCM | FROM_VTCM | 64, source, destination]),
        bypass(Side::Source, source, true)
    );
    assert_eq!(
        Board::refuses(&[next, TO_VTCM | 64, destination, source]),
        bypass(Side::Source, destination, false)
    );
}

#[test]
fn all_bytes_are_mapped() {
    let [next, ..] = LINEAR;
    let outside =
        |side, address, length| Violation::OutsideMemory { descriptor: CHAIN, side, address, length };
    // Over the end of VTCM, half in it.
    let end = VTCM.base + VTCM.length - 32;
    assert_eq!(Board::refuses(&[next, TO_VTCM | 64, DDR, end]), outside(Side::Destination, end, 64));
    let gap = DDR + (1 << 16) - 32;
    assert_eq!(Board::refuses(&[next, TO_VTCM | 64, gap, VTCM.base]), outside(Side::Source, gap, 64));
    // Over the end of the address space.
    let top = u32::MAX - 15;
    assert_eq!(Board::refuses(&[next, TO_VTCM | 64, top, VTCM.base]), outside(Side::Source, top, 64));
    let mut board = Board::new(Pace::Immediate);
    let rows = [0, 1 << 24 | TO_VTCM | 8, top, VTCM.base, 9, 255 << 24 | 8, 0xff_ffff << 8 | 0xff, 0];
    board.descriptor(CHAIN, &rows);
    let violation = board.start(CHAIN).expect_err("rows beyond the address space");
    assert!(matches!(violation, Violation::OutsideMemory { side: Side::Source, .. }), "{violation}");
}
