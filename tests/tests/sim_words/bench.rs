//! Cases of code in the simulated protection domain: assembled, linked as a skel is, run on given registers and memory.

use estream_host::Error;
use estream_host::transport::{Sim, Simulator};
use estream_idl::fastrpc::scalars;
use estream_tests::random::Random;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const HARNESS: &str = include_str!("harness.s");
const RUN: u32 = scalars(4, 1, 1, 0, 0);
const UNITS: u32 = scalars(5, 1, 0, 0, 0);
/// Bytes of memory that a case can reach through r16.
pub const MEMORY: usize = 16384;
const WORDS_AT: usize = 4096 + 512 + MEMORY;
const STATE: usize = WORDS_AT + 128;

pub type Vector = [u32; 32];

/// What a case finds and leaves.
#[derive(Clone)]
pub struct State {
    pub vectors: [Vector; 32],
    pub predicates: [Vector; 4],
    pub memory: Vec<u8>,
    pub registers: [u32; 16],
    pub scalar_predicates: u32,
    pub modifiers: [u32; 2],
}

impl State {
    /// Moderate numbers: v0 to v15 and memory hold singles, v16 to v31 halves, none of them special.
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut single = || {
            let magnitude = (random.below(1 << 20) as f32 + 1.0) / 65536.0;
            (if random.below(2) == 0 { magnitude } else { -magnitude }).to_bits()
        };
        let mut vectors = [[0; 32]; 32];
        vectors[..16].as_flattened_mut().iter_mut().for_each(|word| *word = single());
        let memory: Vec<u8> = (0..MEMORY / 4).flat_map(|_| single().to_le_bytes()).collect();
        // A half with an exponent between 2^-7 and 2^8, and any sign and fraction.
        let mut half = || {
            (random.below(16) as u32 + 8) << 10
                | random.below(1 << 10) as u32
                | (random.below(2) as u32) << 15
        };
        vectors[16..].as_flattened_mut().iter_mut().for_each(|word| *word = half() | half() << 16);
        let registers = std::array::from_fn(|_| random.below(1 << 32) as u32);
        Self { vectors, predicates: [[0; 32]; 4], memory, registers, scalar_predicates: 0, modifiers: [0; 2] }
    }

    /// A vector of the memory.
    pub fn at(&self, index: usize) -> Vector {
        let words = self.memory[128 * index..][..128].as_chunks::<4>().0;
        std::array::from_fn(|word| u32::from_le_bytes(words[word]))
    }

    pub fn set(&mut self, index: usize, vector: &Vector) {
        for (to, word) in self.memory[128 * index..][..128].as_chunks_mut::<4>().0.iter_mut().zip(vector) {
            *to = word.to_le_bytes();
        }
    }

    fn encode(&self, case: u32) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::with_capacity(STATE);
        let vectors = self.vectors.iter().chain(&self.predicates).flatten();
        bytes.extend(vectors.flat_map(|word| word.to_le_bytes()));
        bytes.extend(&self.memory);
        let words = self.registers.iter().chain([&self.scalar_predicates]).chain(&self.modifiers);
        bytes.extend(words.chain([&case]).flat_map(|word| word.to_le_bytes()));
        bytes.resize(STATE, 0);
        bytes
    }

    fn decode(bytes: &[u8], modifiers: [u32; 2]) -> (Self, u32) {
        let words: Vec<u32> = bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
        let vector = |index: usize| std::array::from_fn(|word| words[32 * index + word]);
        let last = &words[WORDS_AT / 4..];
        let state = Self {
            vectors: std::array::from_fn(vector),
            predicates: std::array::from_fn(|q| vector(32 + q)),
            memory: bytes[4608..WORDS_AT].to_vec(),
            registers: std::array::from_fn(|r| last[r]),
            scalar_predicates: last[16],
            modifiers,
        };
        (state, last[20])
    }
}

/// The tools that make a skel of assembly, or none.
struct Tools {
    assembler: PathBuf,
    disassembler: PathBuf,
    linker: PathBuf,
}

fn tools() -> Option<Tools> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find =
        |name| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    Some(Tools {
        assembler: find("llvm-mc-22")?,
        disassembler: find("llvm-objdump-22")?,
        linker: find("ld.lld-22")?,
    })
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// A place to make and run skels in, or a loud note that the tools or the simulator are not here.
pub struct Bench {
    simulator: Simulator,
    tools: Tools,
    folder: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Option<Self> {
        let simulator = estream_tests::simulator::simulator()?;
        let required = std::env::var_os("ESTREAM_REQUIRE_SIM").is_some_and(|value| value == "1");
        let skip = |what: &str| {
            assert!(!required, "{what}, and ESTREAM_REQUIRE_SIM=1");
            eprintln!("skipped: {what}");
        };
        let Some(tools) = tools() else {
            skip(
                "no llvm-mc-22, llvm-objdump-22 and ld.lld-22 to make words with (Debian's llvm-22 and lld-22)",
            );
            return None;
        };
        let version =
            Command::new(&simulator.qemu).arg("--version").output().expect("the simulator runs").stdout;
        let version = String::from_utf8_lossy(&version).into_owned();
        // Older ones end at a word that they do not know, instead of handing it to the guest.
        let known =
            version.split_whitespace().nth(2).and_then(|text| text.split('.').next()?.parse::<u32>().ok());
        if known.is_none_or(|major| major < 11) {
            skip(&format!("the words need qemu-hexagon 11.1 or newer, this is {version}"));
            return None;
        }
        let folder = estream_tests::fixture::folder(env!("CARGO_TARGET_TMPDIR"));
        Some(Self { simulator, tools, folder })
    }

    /// A skel of cases, each the text of a routine without its label. A case `(name, body)` is `name` in messages alone.
    pub fn skel(&self, cases: &[Case]) -> PathBuf {
        let mut text = String::from(HARNESS);
        let mut table = String::from("\t.section .rodata\n\t.balign 4\ntable:\n");
        for (index, case) in cases.iter().enumerate() {
            // Labels of a case end with %.
            let body = case.body.replace('%', &format!("_{index}"));
            writeln!(
                text,
                "\t.balign 16\n\t.type case_{index},@function\ncase_{index}:\n{body}\n\tjumpr r31"
            )
            .expect("a string takes it");
            writeln!(table, "\t.word case_{index} - table").expect("a string takes it");
        }
        text += &table;
        let at = |name: &str| self.folder.path().join(name);
        std::fs::write(at("cases.s"), text).expect("a file can be written");
        std::fs::write(at("cases.map"), "{ global: estream_skel_handle_invoke; local: *; };\n")
            .expect("a file can be written");
        succeed(
            Command::new(&self.tools.assembler)
                .args(["-triple=hexagon", "-mcpu=hexagonv81", "-filetype=obj", "-o"])
                .arg(at("cases.o"))
                .arg("-mattr=+hvxv81,+hvx-length128b,+hvx-ieee-fp,+hvx-qfloat")
                .arg(at("cases.s")),
        );
        let out = at("cases.so");
        succeed(
            Command::new(&self.tools.linker)
                .args(["-m", "hexagonelf", "-shared", "-Bsymbolic", "--hash-style=sysv", "-z", "text"])
                .args(["-z", "norelro", "-z", "max-page-size=4096", "-soname=cases.so"])
                .arg(format!("--version-script={}", at("cases.map").display()))
                .arg("-o")
                .arg(&out)
                .arg(at("cases.o")),
        );
        out
    }

    /// A domain that has loaded a skel; what it writes to its log goes to a file.
    pub fn open(&self, skel: &Path) -> Result<Domain, Error> {
        let log = self.folder.path().join("log");
        let wrapper = self.folder.path().join("qemu");
        let script =
            format!("#!/bin/sh\nexec '{}' \"$@\" 2>'{}'\n", self.simulator.qemu.display(), log.display());
        std::fs::write(&wrapper, script).expect("a file can be written");
        std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o755))
            .expect("a file's mode can be set");
        let simulator =
            Simulator { qemu: wrapper, skel: skel.to_owned(), counts: true, ..self.simulator.clone() };
        // A script that another test's child has inherited for writing, for the moment before it becomes a program, cannot
        // be run in that moment.
        let busy = |error: &Error| error.message.contains("Text file busy");
        for _ in 0..100 {
            match Sim::open(&simulator) {
                Err(error) if busy(&error) => std::thread::sleep(std::time::Duration::from_millis(10)),
                opened => return Ok(Domain { sim: opened?, log }),
            }
        }
        Ok(Domain { sim: Sim::open(&simulator)?, log })
    }

    /// The domain's own code, as LLVM lists it.
    pub fn disassemble_domain(&self) -> String {
        let mut command = Command::new(&self.tools.disassembler);
        let command = command.args(["--disassemble", "--no-show-raw-insn"]).arg(&self.simulator.guest);
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A domain with these cases.
    pub fn domain(&self, cases: &[Case]) -> Domain {
        self.open(&self.skel(cases)).expect("the domain loads the skel")
    }
}

/// A routine under test.
pub struct Case {
    pub name: String,
    pub body: String,
}

impl Case {
    pub fn new(name: impl Into<String>, body: impl Into<String>) -> Self {
        Self { name: name.into(), body: body.into() }
    }
}

/// A domain that runs cases.
pub struct Domain {
    sim: Sim,
    log: PathBuf,
}

impl Domain {
    /// Acquires VTCM and matrix unit (1), locks it (2), votes its power (4).
    pub fn acquire(&mut self, flags: u32) {
        let returned =
            self.sim.invoke(1, UNITS, &[&flags.to_le_bytes()], &[], &[]).expect("the units are there");
        assert_eq!(returned.value, 0);
    }

    /// Runs a case; what it leaves, and the packets that it took, its return included.
    pub fn run(&mut self, case: usize, state: &State) -> Result<(State, u32), Error> {
        let returned = self.sim.invoke(1, RUN, &[&state.encode(case as u32)], &[STATE as u32], &[])?;
        assert_eq!(returned.value, 0);
        Ok(State::decode(&returned.buffers[0], state.modifiers))
    }

    /// Ends the domain; its log.
    pub fn log(self) -> String {
        drop(self.sim);
        std::fs::read_to_string(&self.log).expect("the log can be read")
    }
}
