//! Silicon's rules for the matrix unit and user DMA, each broken on purpose through the face that the kernels use: the run
//! remembers the first one by its name, and what follows changes nothing.
//!
//! `kernels-asm/tests` has the models' rules one by one, `sim_words` the same from assembled packets in the simulated
//! domain, where a broken one ends the run, and the executor's tests have buffers that are reused a step early. Here is the
//! firmware between them: [`Units`] over a pad, as an operator uses it.

use estream_dsp::matrix::pad::Pad;
use estream_dsp::matrix::units::{PAD_ADDRESS, Rule, Units};
use estream_kernels_asm::model::hmx::{Issue, Place, Revision, Unit, Violation};
use estream_kernels_asm::model::{Range, Vtcm};
use estream_kernels_asm::word::{Block, Hmx, Reach};

const TILE: usize = 2048;
const BYTES: usize = 1 << 20;
/// The border that no operand may cross.
const BORDER: u32 = 256 << 10;
/// Where operands stand that break no rule.
const ACTIVATION: u32 = PAD_ADDRESS + 0x1_0000;
const WEIGHT: u32 = PAD_ADDRESS + 0x2_0000;
const OUTPUT: u32 = PAD_ADDRESS + 0x3_0000;
/// Ordinary memory.
const DDR: u32 = 0x1000_0000;

/// What is remembered of a run on a pad with scales, whose columns are multiplied by 1.
fn remembered(body: impl FnOnce(&mut Units)) -> Option<Rule> {
    let mut bytes = vec![0u128; BYTES / 16];
    let mut pad = Pad::new(zerocopy::IntoBytes::as_mut_bytes(&mut bytes[..]), PAD_ADDRESS);
    let mut units = Units::new(BYTES);
    units.begin(pad);
    pad.fill_bias(0x3c00);
    units.load_bias(pad.address(0));
    body(&mut units);
    let broken = units.broken();
    // A correct product after a broken rule hides nothing.
    units.clear();
    units.multiply(ACTIVATION, WEIGHT, 1);
    units.store(OUTPUT);
    assert_eq!(units.broken(), broken, "the first broken rule is the one that is kept");
    broken
}

/// Fails unless the run broke this rule, and says so in these words.
fn breaks(rule: Violation, words: &str, body: impl FnOnce(&mut Units)) {
    let broken = remembered(body).unwrap_or_else(|| panic!("nothing is remembered of {words}"));
    assert_eq!(broken, Rule::Matrix(rule));
    assert!(broken.to_string().contains(words), "{broken}");
}

#[test]
fn an_ordinary_product_breaks_none() {
    let broken = remembered(|units| {
        for _ in 0..2 {
            units.clear();
            units.multiply(ACTIVATION, WEIGHT, 32);
            units.multiply(ACTIVATION, WEIGHT, 7);
            units.store(OUTPUT);
        }
        assert_eq!(units.counters().tiles, 78);
    });
    assert_eq!(broken, None);
}

#[test]
fn a_product_without_mxclracc() {
    breaks(Violation::AccumulatorNotCleared, "accumulator that was not cleared", |units| {
        units.multiply(ACTIVATION, WEIGHT, 1);
    });
}

#[test]
fn a_second_product_without_mxclracc() {
    breaks(Violation::AccumulatorNotCleared, "accumulator that was not cleared", |units| {
        units.clear();
        units.multiply(ACTIVATION, WEIGHT, 1);
        units.store(OUTPUT);
        units.multiply(ACTIVATION, WEIGHT, 1);
    });
}

#[test]
fn a_chain_of_33_tiles() {
    breaks(
        Violation::TooManyTiles { place: Place::Activation, tiles: 33 },
        "33 tiles in one multiply",
        |units| {
            units.clear();
            units.multiply(ACTIVATION, WEIGHT, 33);
        },
    );
}

#[test]
fn an_activation_across_256_kib() {
    let address = PAD_ADDRESS + BORDER - TILE as u32;
    let rule = Violation::CrossesPage { place: Place::Activation, address, length: 2 * TILE as u32 };
    breaks(rule, "crosses a 256 KiB border", |units| {
        units.clear();
        units.multiply(address, WEIGHT, 2);
    });
}

#[test]
fn weights_across_256_kib() {
    let address = PAD_ADDRESS + 2 * BORDER - TILE as u32;
    let rule = Violation::CrossesPage { place: Place::Weight, address, length: 3 * TILE as u32 };
    breaks(rule, "crosses a 256 KiB border", |units| {
        units.clear();
        units.multiply(ACTIVATION, address, 3);
    });
}

#[test]
fn an_activation_in_ddr() {
    let rule = Violation::OutsideVtcm { place: Place::Activation, address: DDR, length: TILE as u32 };
    breaks(rule, "is not in VTCM", |units| {
        units.clear();
        units.multiply(DDR, WEIGHT, 1);
    });
}

#[test]
fn weights_in_ddr() {
    let rule = Violation::OutsideVtcm { place: Place::Weight, address: DDR, length: TILE as u32 };
    breaks(rule, "is not in VTCM", |units| {
        units.clear();
        units.multiply(ACTIVATION, DDR, 1);
    });
}

#[test]
fn an_output_in_ddr() {
    let rule = Violation::OutsideVtcm { place: Place::Output, address: DDR, length: TILE as u32 };
    breaks(rule, "is not in VTCM", |units| {
        units.clear();
        units.multiply(ACTIVATION, WEIGHT, 1);
        units.store(DDR);
    });
}

#[test]
fn a_store_of_nothing() {
    breaks(Violation::NothingAccumulated { address: OUTPUT }, "accumulator that holds nothing", |units| {
        units.store(OUTPUT);
    });
}

/// No face splits a pair: its two loads are one packet of `kernels-asm`. So the packets are given to the unit itself.
#[test]
fn a_pair_in_two_packets() {
    let vtcm = Vtcm { base: PAD_ADDRESS, length: BYTES as u32, single_page: false };
    let mut bytes = vec![0; BYTES];
    let mut unit = Unit::new(Revision::V73, vtcm);
    unit.set_power(true);
    unit.set_lock(true);
    unit.clear().expect("a held unit");
    let last = TILE as u32 - 1;
    let activation = Issue { word: Hmx::Activation(Block::Deep), s: ACTIVATION, t: last };
    let weight = Issue { word: Hmx::Weight(Reach::Plain), s: WEIGHT, t: last };
    let mut issue = |words: &[Issue]| {
        let broken = unit.packet(&mut Range { base: PAD_ADDRESS, bytes: &mut bytes }, words);
        broken.map_err(|rule| rule.to_string())
    };
    let alone = |what: &str| Err(format!("HMX {what} without its partner in the same packet"));
    assert_eq!(issue(&[activation]), alone("activation"));
    assert_eq!(issue(&[weight]), alone("weight"));
    assert_eq!(issue(&[activation, weight]), Ok(()));
}

/// The bytes that a copy was to overwrite, seen after it was waited for or without a wait.
fn copied(from: &[u8; 256], waits: bool) -> Vec<u8> {
    let mut bytes = vec![0u128; BYTES / 16];
    let mut units = Units::new(BYTES);
    let pad = Pad::new(zerocopy::IntoBytes::as_mut_bytes(&mut bytes[..]), PAD_ADDRESS);
    units.begin(pad);
    units.fetch(0, std::iter::once((&from[..], pad.address(4096))));
    assert!(!waits || units.arrived(0));
    assert_eq!(units.broken(), None);
    zerocopy::IntoBytes::as_bytes(&bytes[..])[4096..4096 + 256].to_vec()
}

/// A copy is made as late as it may be, so who does not wait reads what was there before.
#[test]
fn a_missing_dma_wait() {
    let from = [7; 256];
    assert_eq!(copied(&from, true), from);
    assert_eq!(copied(&from, false), [0; 256], "what was not waited for is not there");
}

#[test]
fn a_copy_to_nowhere() {
    let broken = remembered(|units| {
        let from = [7u8; 256];
        units.fetch(0, std::iter::once((&from[..], PAD_ADDRESS + BYTES as u32 - 128)));
        assert!(units.arrived(0), "a run comes to its end all the same");
    });
    let broken = broken.expect("a rule").to_string();
    assert!(broken.contains("destination") && broken.contains("not mapped"), "{broken}");
}
