//! Words that the simulator does not have, served in the simulated protection domain: each HVX floating-point form alone and
//! in the packets that compilers make, the matrix unit, user DMA, and what happens when a rule is broken.
//!
//! The cases are assembled by LLVM, which knows nothing of the tables that the domain patches by, and run under
//! `qemu-hexagon` as a skel does. What a packet must do to registers and memory is stated here; IEEE forms are checked
//! against this machine's own arithmetic, and the matrix unit against exact products.

#[path = "sim_words/bench.rs"]
mod bench;
#[path = "sim_words/floats.rs"]
mod floats;
#[path = "sim_words/packets.rs"]
mod packets;

use bench::{Bench, Case, State};
use estream_kernels_asm::word::Float;
use floats::{Checked, Word, company};

/// Runs cases and compares all of what they leave.
fn check(bench: &Bench, cases: &[Checked], state: &State) {
    let texts: Vec<_> =
        cases.iter().map(|checked| Case::new(&*checked.case.name, &*checked.case.body)).collect();
    let mut domain = bench.domain(&texts);
    for (index, checked) in cases.iter().enumerate() {
        let name = &checked.case.name;
        let (left, _) = match domain.run(index, state) {
            Ok(run) => run,
            Err(error) => panic!("{name}: {error}\n{}", domain.log()),
        };
        let mut expected = state.clone();
        (checked.expected)(&mut expected);
        same(name, &left, &expected);
    }
}

/// Says which register or which bytes differ.
fn same(name: &str, left: &State, right: &State) {
    for (v, (is, should)) in left.vectors.iter().zip(&right.vectors).enumerate() {
        assert_eq!(is, should, "{name}: v{v}");
    }
    for (q, (is, should)) in left.predicates.iter().zip(&right.predicates).enumerate() {
        assert_eq!(is, should, "{name}: q{q}");
    }
    assert_eq!(left.registers, right.registers, "{name}: r0 to r15");
    assert_eq!(left.scalar_predicates, right.scalar_predicates, "{name}: p3:0");
    let differ = left.memory.iter().zip(&right.memory).position(|(is, should)| is != should);
    assert_eq!(differ, None, "{name}: the first byte of memory that differs");
}

#[test]
fn every_float_word_alone_and_in_company() {
    let Some(bench) = Bench::new() else { return };
    let words: Vec<_> = Float::ALL.iter().filter(|float| float.is_modelled()).map(|&float| Word::new(float)).collect();
    assert!(words.len() >= 70, "{}", words.len());
    let mut state = State::random(1);
    // A predicate is a bit per byte.
    state.predicates[1] = std::array::from_fn(|word| if word % 3 == 0 { 0xff00_ffff } else { 0x00ff_0000 });
    let cases: Vec<_> = words.iter().flat_map(company).collect();
    check(&bench, &cases, &state);
}

#[test]
fn what_stands_beside_a_word_does_what_it_did() {
    let Some(bench) = Bench::new() else { return };
    let state = packets::state();
    check(&bench, &packets::stores(), &state);
    check(&bench, &packets::operands(), &state);
    check(&bench, &packets::branches(), &state);
    check(&bench, &packets::loops(), &state);
}
