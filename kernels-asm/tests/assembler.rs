//! The word tables against LLVM's assembler and disassembler, which know nothing of them.
//!
//! Needs `llvm-mc-22` (Debian's `llvm-22`); without it the tests say "skipped:" and pass, unless `ESTREAM_REQUIRE_SIM=1`.

use estream_kernels_asm::word::{
    Block, Dma, Float, Form, Hmx, Operation, Parse, Reach, Register, identify, with_parse,
};
use std::io::Write;
use std::process::{Command, Stdio};

const ASSEMBLER: &str = "llvm-mc-22";
const FEATURES: &str = "-mattr=+hvx-length128b,+hvx-ieee-fp,+hvx-qfloat";
/// The form that LLVM 22 prints and cannot read.
const UNREADABLE: Float = Float::HFromHfRnd;

/// Standard output and error of the assembler on `input`.
fn llvm(arguments: &[&str], input: &str) -> Option<(String, String)> {
    let spawned = Command::new(ASSEMBLER)
        .args(["-triple=hexagon", "-show-encoding", FEATURES])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            let required = std::env::var_os("ESTREAM_REQUIRE_SIM").is_some_and(|value| value == "1");
            assert!(!required, "{ASSEMBLER}: {error}, and ESTREAM_REQUIRE_SIM=1: apt-get install llvm-22");
            eprintln!("skipped: {ASSEMBLER}: {error} (Debian has it in llvm-22)");
            return None;
        }
    };
    let mut pipe = child.stdin.take().expect("piped");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("the assembler ends");
    writer.join().expect("no panic").expect("the assembler reads its input");
    let text = |bytes| String::from_utf8(bytes).expect("the assembler prints text");
    Some((text(output.stdout), text(output.stderr)))
}

/// The first word of each encoding in a listing.
fn encodings(listing: &str) -> Vec<u32> {
    let bytes = |list: &str| -> Vec<u8> {
        list.split(',')
            .map(|byte| u8::from_str_radix(byte.trim_start_matches("0x"), 16).expect("a byte"))
            .collect()
    };
    let lists = listing.split("encoding: [").skip(1).map(|rest| rest.split(']').next().expect("split"));
    lists.map(|list| u32::from_le_bytes(bytes(list)[..4].try_into().expect("four bytes"))).collect()
}

/// The word that a statement alone in a packet assembles to.
fn assemble(cpu: &str, statements: &[String]) -> Option<Vec<u32>> {
    let source: String = statements.iter().map(|statement| format!("{{ {statement} }}\n")).collect();
    let (listing, errors) = llvm(&[&format!("-mcpu=hexagon{cpu}")], &source)?;
    assert_eq!(errors, "", "{ASSEMBLER} refuses for {cpu}");
    let words = encodings(&listing);
    assert_eq!(words.len(), statements.len());
    Some(words)
}

/// A form's statement with these registers, and the form that must be found in its word.
fn statement(float: Float, [d, u, v]: [u8; 3]) -> (String, Form) {
    let mnemonic = float.mnemonic();
    let (left, right) = mnemonic.split_at(mnemonic.find('=').expect("an assignment"));
    let pair = |n: u8| format!("v{}:{}", n | 1, n & 30);
    let (written, destination) = if left.starts_with('Q') {
        (format!("q{}", d & 3), Register::Predicate(d & 3))
    } else if left.starts_with("Vdd") || left.starts_with("Vxx") {
        (pair(d), Register::Pair(d & 30))
    } else {
        (format!("v{d}"), Register::Vector(d))
    };
    let (first, first_register) = if right.contains("Vuu32") {
        (pair(u), Register::Pair(u & 30))
    } else {
        (format!("v{u}"), Register::Vector(u))
    };
    let second = if right.contains("Vv32") {
        Some(Register::Vector(v))
    } else {
        right.contains("Rt32").then_some(Register::Scalar(v % 29))
    };
    let name = left.split(['.', '+', '&', '|', '^']).next().expect("a name");
    let text = mnemonic
        .replacen(name, &written, 1)
        .replace("Vuu32", &first)
        .replace("Vu32", &first)
        .replace("Vv32", &format!("v{v}"))
        .replace("Rt32", &format!("r{}", v % 29));
    let form = Form {
        operation: Operation::Float(float),
        sources: [Some(first_register), second],
        destination: Some(destination),
        accumulates: left.as_bytes()[1] == b'x',
    };
    (text, form)
}

/// Every form with several sets of registers is found as itself, with its operands, wherever it stands in a packet.
#[test]
fn every_float_form_is_found() {
    let registers = [[0, 0, 0], [31, 30, 29], [1, 2, 3], [28, 7, 16], [10, 21, 31], [3, 31, 8], [17, 12, 0]];
    let forms: Vec<_> = Float::ALL
        .iter()
        .filter(|float| **float != UNREADABLE)
        .flat_map(|float| registers.map(|registers| statement(*float, registers)))
        .collect();
    let statements: Vec<_> = forms.iter().map(|(text, _)| text.clone()).collect();
    let Some(words) = assemble("v81", &statements) else { return };
    for (word, (text, form)) in words.into_iter().zip(&forms) {
        assert_eq!(identify(word).as_ref(), Some(form), "{text} is {word:#010x}");
        for parse in [Parse::More, Parse::MoreLoopEnd] {
            assert_eq!(identify(with_parse(word, parse)).as_ref(), Some(form), "{text}");
        }
        assert_eq!(identify(with_parse(word, Parse::Duplex)), None, "{text}");
    }
    assert_eq!(Float::ALL.len(), 132);
}

/// The table's architecture is the first of LLVM's that takes the form.
#[test]
fn forms_belong_to_their_architecture() {
    let readable: Vec<_> = Float::ALL.iter().copied().filter(|float| *float != UNREADABLE).collect();
    let source: String =
        readable.iter().map(|float| format!("{{ {} }}\n", statement(*float, [4, 6, 8]).0)).collect();
    for cpu in [66u8, 68, 69, 73, 75, 79, 81] {
        let Some((_, errors)) = llvm(&[&format!("-mcpu=hexagonv{cpu}")], &source) else { return };
        let refused: Vec<usize> = errors
            .lines()
            .filter(|line| line.contains(": error:"))
            .map(|line| line.split(':').nth(1).and_then(|number| number.parse().ok()).expect("a line number"))
            .collect();
        for (index, float) in readable.iter().enumerate() {
            let taken = !refused.contains(&(index + 1));
            assert_eq!(taken, float.architecture() <= cpu, "{} for v{cpu}", float.mnemonic());
        }
    }
}

/// What the disassembler makes of single-word packets: the words that it knows, with their text.
fn disassemble(words: &[u32]) -> Option<Vec<(u32, String)>> {
    let source: String = words
        .iter()
        .map(|word| word.to_le_bytes().map(|byte| format!("{byte:#04x}")).join(" ") + "\n")
        .collect();
    let (listing, _) = llvm(&["--disassemble", "-mcpu=hexagonv81"], &source)?;
    let blocks = listing.split('{').skip(1);
    Some(
        blocks
            .map(|block| (encodings(block)[0], block.split('}').next().expect("split").trim().into()))
            .collect(),
    )
}

/// Over the whole range of HVX arithmetic words exactly those that name a float type are ours. In the other direction than
/// the table: nothing that the disassembler calls float is missing, no integer word is taken for a float one.
#[test]
fn exactly_the_float_words_of_the_vector_unit_are_found() {
    let mut words = Vec::new();
    for top in 0x18 << 3..0x20 << 3 {
        // Comparisons have opcode bits where others have the destination.
        let destinations = if [0x1c80 >> 5, 0x1f80 >> 5].contains(&top) { 8 } else { 1 };
        for bits in 0..32 * 2 * 8 * destinations {
            let (v, bit_13, s, q) = (bits & 31, bits >> 5 & 1, bits >> 6 & 7, bits >> 9);
            words.push(top << 21 | v << 16 | 3 << 14 | bit_13 << 13 | 2 << 8 | s << 5 | q << 2);
        }
    }
    let Some(known) = disassemble(&words) else { return };
    assert!(known.len() > 10_000, "{} words", known.len());
    let mut found = 0;
    for (word, text) in known {
        let float = [".hf", ".sf", ".bf", ".qf", ".f8", ".x"].iter().any(|kind| text.contains(kind));
        assert_eq!(identify(word).is_some(), float, "{text} is {word:#010x}");
        found += usize::from(float);
    }
    assert!(found > 1_000, "{found} float words");
}

/// Whatever LLVM knows in the classes of HMX and DMA is somebody else's, but for the DMA instructions.
#[test]
fn scalar_neighbours_are_left_alone() {
    let mut words = Vec::new();
    for class in
        [0x9200_0000u32, 0xa600_0000, 0xa680_0000, 0xa6e0_0000, 0xa800_0000, 0xa840_0000, 0xa0e0_0000]
    {
        for bits in 0..1 << 14 {
            words.push(class | 5 << 16 | 3 << 14 | bits);
        }
    }
    let Some(known) = disassemble(&words) else { return };
    assert!(known.len() > 1_000, "{} words", known.len());
    for (word, text) in known {
        let ours = ["dmstart", "dmlink", "dmpoll", "dmwait", "dmpause", "dmresume"];
        let expected = ours.iter().any(|name| text.contains(name));
        assert_eq!(identify(word).is_some(), expected, "{text} is {word:#010x}");
    }
}

#[test]
fn the_dma_instructions_assemble_to_their_words() {
    let statements: Vec<_> = Dma::ALL
        .iter()
        .map(|dma| dma.mnemonic().replace("Rs32", "r7").replace("Rt32", "r28").replace("Rd32", "r3"))
        .collect();
    let Some(words) = assemble("v73", &statements) else { return };
    for (word, dma) in words.into_iter().zip(Dma::ALL) {
        assert_eq!(dma.encode(7, 28, 3), word, "{}", dma.mnemonic());
        assert_eq!(identify(word).map(|form| form.operation), Some(Operation::Dma(dma)));
    }
}

/// The `.word` lines of the emitting functions, with registers filled in as the compiler does, are the packets they promise.
#[test]
fn the_matrix_words_are_emitted_as_promised() {
    const SOURCE: &str = include_str!("../src/hmx.rs");
    const SYMBOLS: &str = include_str!("../src/hmx/registers.s");
    let numbers = [("{a}", 3u8), ("{w}", 17), ("{t}", 28), ("{s}", 9)];
    let lines: Vec<String> = SOURCE
        .split('"')
        .filter(|text| text.starts_with(".word "))
        .map(|text| {
            numbers.iter().fold(text.to_owned(), |text, (name, n)| text.replace(name, &format!("r{n}")))
        })
        .collect();
    let source = format!("{SYMBOLS}{}\n", lines.join("\n"));
    let Some((listing, errors)) = llvm(&["-mcpu=hexagonv73"], &source) else { return };
    assert_eq!(errors, "");
    let words: Vec<u32> = listing
        .lines()
        .filter_map(|line| line.trim().strip_prefix(".word"))
        .map(|number| number.trim().parse::<i64>().expect("a number") as u32)
        .collect();
    let promised = [
        Hmx::Clear.encode(0, 0, Parse::Last),
        Hmx::Swap.encode(0, 0, Parse::Last),
        Hmx::LoadBias.encode(9, 0, Parse::Last),
        Hmx::Activation(Block::Deep).encode(3, 28, Parse::More),
        Hmx::Weight(Reach::Plain).encode(17, 28, Parse::Last),
        Hmx::Store { retain: false, positive: false }.encode(9, 28, Parse::Last),
    ];
    assert_eq!(words, promised.map(|word| word.expect("a word")));
}
