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
#[path = "sim_words/ieee.rs"]
mod ieee;
#[path = "sim_words/packets.rs"]
mod packets;
#[path = "sim_words/units.rs"]
mod units;

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
    let words: Vec<_> =
        Float::ALL.iter().filter(|float| float.is_modelled()).map(|&float| Word::new(float)).collect();
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

#[test]
fn results_are_those_of_ieee_arithmetic() {
    let Some(bench) = Bench::new() else { return };
    check(&bench, &ieee::cases(), &ieee::state());
}

#[test]
fn the_matrix_unit_multiplies() {
    let Some(bench) = Bench::new() else { return };
    let mut domain = bench.domain(&[units::product()]);
    domain.acquire(7);
    let state = units::operands();
    let (left, _) = match domain.run(0, &state) {
        Ok(run) => run,
        Err(error) => panic!("{error}\n{}", domain.log()),
    };
    let mut expected = state;
    units::multiplied(&mut expected);
    units::registers(&mut expected);
    same("a product", &left, &expected);
    let log = domain.log();
    assert!(log.contains("operator=none float=0 pairs=1 tiles=2 stores=1 saturations=0"), "{log}");
}

#[test]
fn copies_happen_when_they_are_waited_for() {
    let Some(bench) = Bench::new() else { return };
    let cases = units::copies();
    let mut domain = bench.domain(&cases);
    let state = State::random(5);
    let word = |byte: usize| u32::from_le_bytes(state.memory[byte..byte + 4].try_into().expect("four bytes"));
    for (index, (case, seen)) in cases.iter().zip([word(1024), word(2048)]).enumerate() {
        let (left, _) = domain.run(index, &state).expect("no rule is broken");
        assert_eq!(left.registers[2], seen, "{}", case.name);
        assert_eq!(left.registers[1], 0, "{}: idle", case.name);
        assert_eq!(left.registers[0], 1 << 31 | 256, "{}: done", case.name);
        assert_eq!(left.memory[2048..2304], state.memory[1024..1280], "{}", case.name);
        assert_eq!(left.memory[2304..], state.memory[2304..], "{}", case.name);
    }
    let log = domain.log();
    assert!(log.contains("descriptors=2 bytes=512"), "{log}");
}

#[test]
fn a_broken_rule_ends_the_run_by_its_name() {
    let Some(bench) = Bench::new() else { return };
    let broken = units::broken();
    let skel = bench
        .skel(&broken.iter().map(|(_, case, _)| Case::new(&*case.name, &*case.body)).collect::<Vec<_>>());
    let state = units::operands();
    for (index, (flags, case, rule)) in broken.iter().enumerate() {
        let mut domain = bench.open(&skel).expect("the domain loads the skel");
        domain.acquire(*flags);
        let name = &case.name;
        let error = domain.run(index, &state).err().unwrap_or_else(|| panic!("{name}: nothing happens"));
        let log = domain.log();
        assert_eq!(error.code, "died", "{name}: {error}");
        assert!(log.contains("violation at skel+0x") && log.contains(rule), "{name}: {log}");
        assert!(log.contains(&format!("case_{index}+")), "{name}: {log}");
    }
}

#[test]
fn what_cannot_be_served_is_refused_with_its_place() {
    let Some(bench) = Bench::new() else { return };
    for (body, why) in [
        // A convert, which has no model.
        ("\t.word 0xa6e0da10", "no model"),
        ("\t{ v3.sf = vadd(v1.sf,v2.sf)\n\t  r5 = pc }", "program counter"),
        ("\t{ r5 = memw(gp+#8) }", "global pointer"),
        ("\t{ v3.sf = vadd(v1.sf,v2.sf)\n\t  v6 = v3\n\t  jumpr r31 }", "leaves through a register"),
        // Four words and no end.
        (
            "\t.word 0x7f004000\n\t.word 0x7f004000\n\t.word 0x7f004000\n\t.word 0x7f004000\n\t.word 0x7f00c000",
            "no packet begins",
        ),
    ] {
        let skel = bench.skel(&[Case::new("refused", body)]);
        let error = bench.open(&skel).err().unwrap_or_else(|| panic!("{body} is loaded"));
        assert_eq!(error.code, "bad_skel", "{body}: {error}");
        assert!(error.message.contains(why) && error.message.contains("at 0x"), "{error}");
    }
}

#[test]
fn an_instruction_that_nobody_has_ends_the_run_with_its_words() {
    let Some(bench) = Bench::new() else { return };
    // An opcode that no architecture has, in a packet with another instruction.
    let mut domain = bench.domain(&[Case::new("nobody's", "\t.word 0x7f004000\n\t.word 0x5e00c000")]);
    let error = domain.run(0, &State::random(6)).err().expect("the run ends");
    let log = domain.log();
    assert_eq!(error.code, "died", "{error}");
    assert!(log.contains("7f004000 5e00c000") && log.contains("case_0+0x0"), "{log}");
}

#[test]
fn a_displaced_packet_counts_once() {
    let Some(bench) = Bench::new() else { return };
    let routine = |packet: &str| {
        Case::new(
            "counted",
            format!(
                "\tr0 = r16\n\tp0 = cmp.eq(r0,r0)\n\tloop0(.Ltop%,#10)\n.Ltop%:\n\t{packet}\n\tif (p0) jump:t .Lx%\n\tr7 = #7\n.Lx%:\n\t{{ nop; nop }}:endloop0\n\tr0 = #0"
            ),
        )
    };
    let beside =
        ["r3 = r4", "r5 = add(r6,#1); vmem(r0+#0) = v3.new", "if (p0) jump:t .Ly%", "v1.cur = vmem(r0+#1)"];
    let mut cases: Vec<_> = beside
        .iter()
        .flat_map(|beside| {
            let y = if beside.contains(".Ly%") { "\n.Ly%:" } else { "" };
            ["v3.sf = vadd(v1.sf,v2.sf)", "v3 = vxor(v1,v2)"]
                .map(|word| routine(&format!("{{ {word}; {beside} }}{y}")))
        })
        .collect();
    cases.push(Case::new(
        "closing",
        "\tloop0(.Ltop%,#10)\n.Ltop%:\n\tr7 = #7\n\t{ v3.sf = vadd(v1.sf,v2.sf); nop }:endloop0",
    ));
    cases.push(Case::new(
        "closing",
        "\tloop0(.Ltop%,#10)\n.Ltop%:\n\tr7 = #7\n\t{ v3 = vxor(v1,v2); nop }:endloop0",
    ));
    let mut domain = bench.domain(&cases);
    let state = State::random(7);
    let packets: Vec<_> = (0..cases.len()).map(|case| domain.run(case, &state).expect("it runs").1).collect();
    for (case, packets) in cases.chunks(2).zip(packets.chunks(2)) {
        assert_eq!(packets[0], packets[1], "{}", case[0].body);
    }
    // A reading and the call of the harness, three packets, three each time, one, and the return.
    assert_eq!(packets[..8], [2 + 3 + 3 * 10 + 2; 8]);
    assert_eq!(packets[8..], [2 + 1 + 2 * 10 + 1; 2]);
}

#[test]
fn the_domain_itself_leaves_vector_registers_alone() {
    let Some(bench) = Bench::new() else { return };
    // They are live while models run. The routines that read them for the models are named, and are the only exception.
    let listing = bench.disassemble_domain();
    let mut symbol = "";
    let mut reads = 0;
    for line in listing.lines() {
        if let Some(name) = line.split_once(" <").and_then(|(_, name)| name.strip_suffix(">:")) {
            symbol = name;
            continue;
        }
        let operands = line.rsplit('\t').next().unwrap_or_default().split('<').next().unwrap_or_default();
        let words = operands.split(|c: char| !c.is_ascii_alphanumeric());
        let vector = |word: &str| {
            let number = word.strip_prefix(['v', 'q']).and_then(|number| number.parse::<u32>().ok());
            number.is_some_and(|number| number < 32)
        };
        if words.into_iter().any(vector) {
            let ours = ["estream_sim_read", "estream_sim_expand", "estream_sim_load"];
            assert!(ours.iter().any(|name| symbol.starts_with(name)), "{symbol}: {line}");
            reads += 1;
        }
    }
    assert!(reads > 32 * 4, "{reads}");
}
