//! The matrix unit's model against exact sums, and its rules one by one.

mod support;

use estream_kernels_asm::model::hmx::{Issue, Place, Revision, TILE, Unit, Violation};
use estream_kernels_asm::model::{Range, Vtcm};
use estream_kernels_asm::word::{Block, Hmx, Reach};
use half::f16;
use support::{PRODUCT_UNIT, Random, fixed, nearest_half, ulp};

const BASE: u32 = 0xd800_0000;
const LENGTH: u32 = 1 << 20;
const VTCM: Vtcm = Vtcm { base: BASE, length: LENGTH, single_page: true };
const A: u32 = BASE;
const W: u32 = BASE + 0x2_0000;
const OUT: u32 = BASE + 0x4_0000;
const BIAS: u32 = BASE + 0x5_0000;
const REVISIONS: [Revision; 4] = [Revision::V73, Revision::V75, Revision::V79, Revision::V81];

/// Where element (i, j) of a tile stands, in bytes.
fn place(i: usize, j: usize) -> usize {
    i / 2 * 128 + j * 4 + (i & 1) * 2
}

/// A unit that is held and powered, over its own scratchpad, with the identity block in bank 0.
struct Bench {
    unit: Unit,
    bytes: Vec<u8>,
}

impl Bench {
    fn new(revision: Revision) -> Self {
        let mut bench = Self { unit: Unit::new(revision, VTCM), bytes: vec![0; LENGTH as usize] };
        bench.unit.set_power(true);
        bench.unit.set_lock(true);
        bench.bias([0x3c00; 32], [0; 32]);
        bench
    }

    fn bias(&mut self, low: [u32; 32], high: [u32; 32]) {
        let at = (BIAS - BASE) as usize;
        for (index, word) in low.into_iter().chain(high).enumerate() {
            self.bytes[at + 4 * index..][..4].copy_from_slice(&word.to_le_bytes());
        }
        self.unit.load_bias(&Range { base: BASE, bytes: &mut self.bytes }, BIAS).expect("a bias block");
    }

    fn put(&mut self, tile: u32, i: usize, j: usize, half: f16) {
        let at = (tile - BASE) as usize + place(i, j);
        self.bytes[at..at + 2].copy_from_slice(&half.to_le_bytes());
    }

    fn output(&self, row: usize, column: usize) -> f16 {
        let at = (OUT - BASE) as usize + place(row, column);
        f16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn run(&mut self, tiles: u32) -> Result<(), Violation> {
        let memory = &mut Range { base: BASE, bytes: &mut self.bytes };
        self.unit.clear()?;
        self.unit.multiply(memory, (A, TILE * tiles - 1), (W, TILE * tiles - 1))?;
        self.unit.store(memory, OUT, false, false)
    }

    fn issue(&mut self, issues: &[(Hmx, u32, u32)]) -> Result<(), Violation> {
        let issues: Vec<_> = issues.iter().map(|&(word, s, t)| Issue { word, s, t }).collect();
        self.unit.packet(&mut Range { base: BASE, bytes: &mut self.bytes }, &issues)
    }
}

const PAIR: [(Hmx, u32, u32); 2] =
    [(Hmx::Activation(Block::Deep), A, TILE - 1), (Hmx::Weight(Reach::Plain), W, TILE - 1)];
const STORE: (Hmx, u32, u32) = (Hmx::Store { retain: false, positive: false }, OUT, 0);
const CLEAR: (Hmx, u32, u32) = (Hmx::Clear, 0, 0);

/// Runs a product of `depth` and checks every element: |model − exact| ≤ ½ ulp of the result plus, for each group of
/// products, (group + 2) · 2^-24 of the largest product or partial sum. (A product has at least 2^24 units of its group's
/// scale, so aligning costs less than group − 1 units, and adding to the accumulator less than 3 of its coarser scale.)
/// Returns how many elements are not the exact sum rounded once.
fn check(revision: Revision, tiles: usize, mut element: impl FnMut(bool, usize, usize) -> f16) -> usize {
    let (depth, group) = (32 * tiles, if revision == Revision::V73 { 4 } else { 8 });
    let mut bench = Bench::new(revision);
    let a: Vec<Vec<f16>> = (0..32).map(|row| (0..depth).map(|k| element(true, row, k)).collect()).collect();
    let w: Vec<Vec<f16>> =
        (0..depth).map(|k| (0..32).map(|column| element(false, k, column)).collect()).collect();
    for k in 0..depth {
        let tile = (k / 32) as u32 * TILE;
        for x in 0..32 {
            bench.put(A + tile, x, k % 32, a[x][k]);
            bench.put(W + tile, k % 32, x, w[k][x]);
        }
    }
    bench.run(tiles as u32).expect("an ordinary product");
    assert_eq!(bench.unit.counters().tiles, tiles as u64);
    let mut inexact = 0;
    for (row, a) in a.iter().enumerate() {
        for column in 0..32 {
            let (mut sum, mut largest) = (0i128, 0);
            for (a, w) in a.iter().zip(&w) {
                let product = fixed(*a) * fixed(w[column]);
                sum += product;
                largest = largest.max(product.abs()).max(sum.abs());
            }
            let result = bench.output(row, column);
            let error = ((fixed(result) << 24) - sum) as f64 * PRODUCT_UNIT;
            let bound = ulp(result) / 2.0
                + (depth / group * (group + 2)) as f64 * 2f64.powi(-24) * (largest as f64 * PRODUCT_UNIT);
            assert!(
                error.abs() <= bound,
                "{revision:?} ({row}, {column}): {result} off by {error:e}, bound {bound:e}"
            );
            inexact += usize::from(result != nearest_half(sum));
        }
    }
    inexact
}

#[test]
fn random_products_are_exact_sums_rounded_once() {
    let mut random = Random(1);
    for revision in REVISIONS {
        for tiles in [1, 2, 31, 32] {
            let inexact = check(revision, tiles, |_, _, _| random.half(-6, 1));
            // What the accumulator drops shows only where the exact sum is very near a tie.
            assert!(inexact <= 10, "{revision:?}, {tiles} tiles: {inexact} of 1024 differ");
        }
    }
}

#[test]
fn wide_ranges_and_cancellation_stay_within_the_bound() {
    let mut random = Random(2);
    for revision in REVISIONS {
        check(revision, 3, |_, _, _| random.half(-14, 4));
        // Each k is followed by its opposite, so that sums are small beside their terms.
        let mut last = f16::ZERO;
        check(revision, 2, |activation, _, k| match (activation, k % 2) {
            (true, 1) => f16::from_f32(-last.to_f32()),
            (true, _) => {
                last = random.half(-3, 3);
                last
            }
            (false, _) => f16::from_f32(1.0 + (random.below(4) as f32) / 1024.0),
        });
    }
}

#[test]
fn subnormals_are_numbers() {
    let mut random = Random(3);
    for revision in REVISIONS {
        let inexact = check(revision, 1, |activation, _, _| {
            if activation { f16::from_bits(random.next() as u16 & 0x83ff) } else { random.half(-2, 1) }
        });
        assert!(inexact <= 10, "{revision:?}: {inexact} of 1024 differ");
    }
}

/// The revisions from v75 on agree on ordinary numbers; v73 groups otherwise.
#[test]
fn groups_are_the_revisions() {
    let results = REVISIONS.map(|revision| {
        let mut random = Random(4);
        let mut bench = Bench::new(revision);
        for i in 0..32 {
            for j in 0..32 {
                // Large opposite terms 4 apart, in one group of 8 and in two of 4, and small ones beside them.
                let large = if j % 8 == 0 { 1024.0 } else { -1024.0 };
                let small = random.half(-14, -10);
                bench.put(A, i, j, if j % 4 == 0 { f16::from_f32(large) } else { small });
                bench.put(W, i, j, f16::ONE);
            }
        }
        bench.run(1).expect("an ordinary product");
        (0..32).map(|row| bench.output(row, 0).to_bits()).collect::<Vec<_>>()
    });
    assert_ne!(results[0], results[1]);
    assert_eq!(results[1], results[2]);
    assert_eq!(results[1], results[3]);
}

/// One row times one column, all else zero.
fn dot(revision: Revision, terms: &[(f32, f32)]) -> f16 {
    let mut bench = Bench::new(revision);
    for (k, (a, w)) in terms.iter().enumerate() {
        bench.put(A, 0, k, f16::from_f32(*a));
        bench.put(W, k, 0, f16::from_f32(*w));
    }
    bench.run(1).expect("an ordinary product");
    bench.output(0, 0)
}

/// Cases worked by hand from the rules of the accumulator.
#[test]
fn alignment_jams() {
    let (tiny, tie) = (2f32.powi(-24), 2f32.powi(-11));
    for revision in REVISIONS {
        let dot = |terms: &[(f32, f32)]| dot(revision, terms).to_bits();
        assert_eq!(dot(&[(1.0, 1.0), (tie, 1.0)]), 0x3c00, "a tie goes to even");
        assert_eq!(dot(&[(1.0, 1.0), (tie, 1.0), (tiny, tiny)]), 0x3c01, "far below, but seen");
        assert_eq!(dot(&[(1.0, 1.0), (tie, 1.0), (-tiny, tiny)]), 0x3c00);
        // In one group: 2^-16 falls below the unit that 1024 sets, 2^-14, and is jammed into it; giving up a bit for the
        // carry jams once more, to 2^-13.
        assert_eq!(dot(&[(1024.0, 1.0), (-1024.0, 1.0), (2f32.powi(-8), 2f32.powi(-8))]), 0x0800);
        // Groups that are zero on one side are skipped, whatever the other side holds.
        let mut skipped = vec![(1.0, 1.0), (tie, 1.0), (tiny, tiny), (0.0, 0.0)];
        skipped.extend([(0.0, 60000.0); 28]);
        assert_eq!(dot(&skipped), 0x3c01);
    }
}

#[test]
fn saturation_is_counted() {
    for (value, bits, saturations) in [
        (65504.0, 0x7bff, 0),
        (65536.0, 0x7c00, 1),
        (131_008.0, 0x7fff, 1),
        (1e9, 0x7fff, 1),
        (-1e9, 0xffff, 1),
    ] {
        let mut bench = Bench::new(Revision::V75);
        // value / 32768 is a half for each of them but 1e9, where any large one will do.
        bench.put(A, 5, 0, f16::from_f32(value / 32768.0));
        bench.put(W, 0, 9, f16::from_f32(32768.0));
        bench.run(1).expect("saturation is no violation");
        assert_eq!(bench.output(5, 9).to_bits(), bits, "{value}");
        assert_eq!(bench.unit.counters().saturations, saturations, "{value}");
    }
}

/// The exponent of all ones is an ordinary one on the way in too.
#[test]
fn there_are_no_infinities() {
    let mut bench = Bench::new(Revision::V73);
    bench.put(A, 0, 0, f16::INFINITY);
    bench.put(W, 0, 0, f16::from_f32(0.25));
    bench.run(1).expect("an ordinary product");
    assert_eq!(bench.output(0, 0), f16::from_f32(16384.0));
}

/// Scale, biases, shape and sign of the block's record, one column each; the accumulator holds −1.5.
#[test]
fn the_bias_block_converts() {
    let half = |value: f32| u32::from(f16::from_f32(value).to_bits());
    let record = |scale, out, accumulator: u32, shape: u32, negate: u32| {
        (half(scale) | half(out) << 16, accumulator << 16 | negate << 10 | shape << 8)
    };
    let cases = [
        (record(1.0, 0.0, 0, 0, 0), -1.5),
        (record(2.0, 0.0, 0, 0, 0), -3.0),
        (record(2.0, 0.25, 0, 0, 0), -2.75),
        (record(2.0, 0.25, half(1.0), 0, 0), -0.75),
        (record(1.0, 0.0, 0, 1, 0), -1.5),
        (record(1.0, 0.0, half(4.0), 1, 0), 0.0),
        (record(1.0, 0.0, 0, 2, 0), 0.0),
        (record(3.0, 0.0, half(4.0), 2, 0), 7.5),
        (record(3.0, 0.5, 0, 3, 0), 5.0),
        (record(3.0, 0.5, 0, 0, 1), 5.0),
        (record(3.0, 0.5, 0, 3, 1), -4.0),
    ];
    let mut bench = Bench::new(Revision::V79);
    let (mut low, mut high) = ([0x3c00; 32], [0; 32]);
    for (column, ((l, h), _)) in cases.iter().enumerate() {
        (low[column], high[column]) = (*l, *h);
        bench.put(W, 0, column, f16::from_f32(-1.5));
    }
    bench.put(A, 0, 0, f16::ONE);
    bench.bias(low, high);
    bench.run(1).expect("an ordinary product");
    for (column, (record, expected)) in cases.iter().enumerate() {
        assert_eq!(bench.output(0, column).to_f32(), *expected, "{record:x?}");
    }
}

#[test]
fn retain_positive_and_swap() {
    let mut bench = Bench::new(Revision::V73);
    bench.put(A, 0, 0, f16::ONE);
    bench.put(W, 0, 0, f16::from_f32(-2.0));
    let store = |retain, positive| [(Hmx::Store { retain, positive }, OUT, 0)];
    for packet in [&[CLEAR][..], &PAIR, &store(true, true)] {
        bench.issue(packet).expect("in order");
    }
    assert_eq!(bench.output(0, 0), f16::ZERO);
    // Kept: a second product adds to it. The other accumulator is its own.
    for packet in [&PAIR[..], &[(Hmx::Swap, 0, 0)], &PAIR, &store(false, false)] {
        bench.issue(packet).expect("in order");
    }
    assert_eq!(bench.output(0, 0), f16::from_f32(-2.0));
    bench.issue(&store(false, false)).expect("the first is current again");
    assert_eq!(bench.output(0, 0), f16::from_f32(-4.0));
    let counters = bench.unit.counters();
    assert_eq!((counters.pairs, counters.tiles, counters.stores), (3, 3, 3));
}

#[test]
fn operands_lie_in_vtcm_aligned_and_whole() {
    let mut bench = Bench::new(Revision::V73);
    bench.issue(&[CLEAR]).expect("clear");
    let [a, w] = PAIR;
    let mut broken = |a: (Hmx, u32, u32), w: (Hmx, u32, u32)| bench.issue(&[a, w]).expect_err("a breach");
    let ddr = 0x1000_0000;
    assert_eq!(
        broken((a.0, ddr, a.2), w),
        Violation::OutsideVtcm { place: Place::Activation, address: ddr, length: TILE }
    );
    let end = BASE + LENGTH - TILE;
    let last = TILE * 2 - 1;
    assert_eq!(
        broken((a.0, a.1, last), (w.0, end, last)),
        Violation::OutsideVtcm { place: Place::Weight, address: end, length: 2 * TILE }
    );
    assert_eq!(
        broken((a.0, A + 128, a.2), w),
        Violation::Misaligned { place: Place::Activation, address: A + 128, alignment: TILE }
    );
    assert_eq!(
        broken(a, (w.0, W + 1024, w.2)),
        Violation::Misaligned { place: Place::Weight, address: W + 1024, alignment: TILE }
    );
    assert_eq!(
        broken((a.0, A, 33 * TILE - 1), (w.0, W, 33 * TILE - 1)),
        Violation::TooManyTiles { place: Place::Activation, tiles: 33 }
    );
    assert_eq!(broken((a.0, A, TILE), w), Violation::PartialTile { place: Place::Activation, limit: TILE });
    assert_eq!(broken((a.0, A, last), w), Violation::UnequalTiles { activation: 2, weight: 1 });
}

#[test]
fn without_a_single_page_nothing_crosses_256_kib() {
    let mut bench = Bench::new(Revision::V73);
    bench.issue(&[CLEAR]).expect("clear");
    let border = BASE + (256 << 10);
    let limit = TILE * 2 - 1;
    let crossing = [(PAIR[0].0, border - TILE, limit), (PAIR[1].0, W, limit)];
    bench.issue(&crossing).expect("one page maps all");
    bench.unit.set_vtcm(Vtcm { single_page: false, ..VTCM });
    assert_eq!(
        bench.issue(&crossing),
        Err(Violation::CrossesPage { place: Place::Activation, address: border - TILE, length: 2 * TILE })
    );
    bench.issue(&[(PAIR[0].0, border, limit), PAIR[1]]).expect_err("unequal");
    bench.issue(&[(PAIR[0].0, border, limit), (PAIR[1].0, W, limit)]).expect("up to the border");
}

#[test]
fn the_pair_is_one_packet() {
    let mut bench = Bench::new(Revision::V73);
    bench.issue(&[CLEAR]).expect("clear");
    let [a, w] = PAIR;
    assert_eq!(bench.issue(&[a]), Err(Violation::SplitPair(Place::Activation)));
    assert_eq!(bench.issue(&[w]), Err(Violation::SplitPair(Place::Weight)));
    assert_eq!(bench.issue(&[w, a]), Err(Violation::SplitPair(Place::Weight)));
    assert_eq!(bench.issue(&[a, a]), Err(Violation::SplitPair(Place::Activation)));
    assert_eq!(bench.issue(&[CLEAR, CLEAR]), Err(Violation::CrowdedPacket(2)));
    assert_eq!(
        bench.issue(&[(Hmx::Activation(Block::Plain), A, TILE - 1), w]),
        Err(Violation::NotModelled("activation.hf=mxmem(Rs32,Rt32)"))
    );
    assert_eq!(bench.issue(&[]), Ok(()));
}

#[test]
fn accumulators_are_cleared_before_each_product() {
    let mut bench = Bench::new(Revision::V73);
    assert_eq!(bench.issue(&PAIR), Err(Violation::AccumulatorNotCleared));
    assert_eq!(bench.issue(&[STORE]), Err(Violation::NothingAccumulated { address: OUT }));
    for packet in [&[CLEAR][..], &PAIR, &[STORE]] {
        bench.issue(packet).expect("in order");
    }
    assert_eq!(
        bench.issue(&PAIR),
        Err(Violation::AccumulatorNotCleared),
        "not by the store, nor the other one"
    );
    bench.issue(&[CLEAR]).expect("clear");
    bench.issue(&PAIR).expect("cleared");
}

#[test]
fn stores_need_a_block_and_a_place() {
    let mut bench = Bench::new(Revision::V73);
    bench.issue(&[CLEAR]).expect("clear");
    bench.issue(&PAIR).expect("cleared");
    assert_eq!(bench.issue(&[(STORE.0, OUT, 4)]), Err(Violation::StoreOffset(4)));
    assert_eq!(
        bench.issue(&[(STORE.0, OUT + 2, 0)]),
        Err(Violation::Misaligned { place: Place::Output, address: OUT + 2, alignment: TILE })
    );
    assert_eq!(
        bench.issue(&[(STORE.0, 0x1000, 0)]),
        Err(Violation::OutsideVtcm { place: Place::Output, address: 0x1000, length: TILE })
    );
    // Giving the unit back loses the block.
    bench.unit.set_lock(true);
    bench.issue(&[CLEAR]).expect("clear");
    bench.issue(&PAIR).expect("cleared");
    assert_eq!(bench.issue(&[STORE]), Err(Violation::NoBias { address: OUT }));
    assert_eq!(
        bench.issue(&[(Hmx::LoadBias, BIAS + 128, 0)]),
        Err(Violation::Misaligned { place: Place::Bias, address: BIAS + 128, alignment: 256 })
    );
    // A block in another bank is not the one that stores use.
    bench.issue(&[(Hmx::LoadBias, BIAS + 1, 0)]).expect("bank 1");
    assert_eq!(bench.issue(&[STORE]), Err(Violation::NoBias { address: OUT }));
    bench.issue(&[(Hmx::LoadBiasLow, BIAS, 0)]).expect("bank 0");
    bench.issue(&[STORE]).expect("a block is there");
    bench.issue(&[(Hmx::StoreBias, OUT + 1, 0)]).expect("bank 1 back");
    let (from, to) = ((BIAS - BASE) as usize, (OUT - BASE) as usize);
    assert_eq!(bench.bytes[from..from + 256], bench.bytes[to..to + 256]);
}

#[test]
fn the_unit_is_locked_and_powered() {
    let mut bench = Bench::new(Revision::V73);
    bench.unit.set_lock(false);
    assert_eq!(bench.issue(&[CLEAR]), Err(Violation::NotLocked));
    bench.unit.set_power(false);
    for packet in [&[CLEAR][..], &PAIR, &[STORE], &[(Hmx::LoadBias, BIAS, 0)], &[(Hmx::Swap, 0, 0)]] {
        assert_eq!(bench.issue(packet), Err(Violation::NotPowered));
    }
}
