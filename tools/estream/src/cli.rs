//! What can be said on the command line. Values are checked here as far as they can be without opening a file.

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use estream::{Arena, Banks, EXIT_CODES, KernelSet, Planning, Schedule, Verify, size};
use estream_pack::Shape;
use std::ffi::OsString;
use std::path::PathBuf;

/// Prefill of Mixture-of-Experts models with the experts streamed from flash through a small fixed arena.
#[derive(Debug, Parser)]
#[command(name = "estream", version, after_help = EXIT_CODES, arg_required_else_help = true)]
pub struct Cli {
    /// Print one JSON object on stdout, errors included.
    #[arg(long, global = true)]
    pub json: bool,
    /// Print the firmware's log on stderr.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Prepare a GGUF model for streaming.
    #[command(after_help = EXIT_CODES)]
    Pack(Pack),
    /// Show what a GGUF or a pack contains: types and bytes by component, experts, groups.
    #[command(after_help = EXIT_CODES)]
    Inspect(Inspect),
    /// Check every checksum of a pack.
    #[command(after_help = EXIT_CODES)]
    Verify(VerifyPack),
    /// Run a prompt, text or token ids, and print the most likely next tokens.
    #[command(after_help = EXIT_CODES)]
    Run(Run),
    /// Measure a pack here: tokens a second warm, first token cold, reads, overlap, memory.
    #[command(after_help = EXIT_CODES)]
    Bench(Bench),
    /// Run a prompt and write what ran when, for Chrome's and Perfetto's viewers.
    #[command(after_help = EXIT_CODES)]
    Trace(Trace),
    /// Find the settings for a memory budget from a short profile; runs take them from then on.
    #[command(after_help = EXIT_CODES)]
    Tune(Tune),
    /// Turn text into token ids by the vocabulary of a model.
    #[command(after_help = EXIT_CODES)]
    Tokenize(Tokenize),
    /// Make a small model, pack it, run it in a small arena, and show what happened.
    #[command(after_help = EXIT_CODES)]
    Demo(Demo),
    /// Write a model of a known shape with random weights, for benchmarks.
    #[command(after_help = EXIT_CODES)]
    Synth(Synth),
    /// Print the manual, as roff.
    #[command(after_help = EXIT_CODES)]
    Man,
    /// Print a completion script for a shell.
    #[command(after_help = EXIT_CODES)]
    Completions(Completions),
}

/// `pack`.
#[derive(Debug, Args)]
pub struct Pack {
    /// The GGUF: one file, any shard of a split one, or the folder that holds it.
    pub input: PathBuf,
    /// The pack to write.
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// Storage order of the experts: JSON, one list of experts per layer.
    #[arg(long, value_name = "FILE")]
    pub order: Option<PathBuf>,
}

/// `inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// A GGUF or a pack.
    pub file: PathBuf,
}

/// `verify`.
#[derive(Debug, Args)]
pub struct VerifyPack {
    /// The pack.
    pub pack: PathBuf,
}

/// `run`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("request").required(true).args(["prompt", "prompt_file", "tokens", "tokens_file"])))]
pub struct Run {
    /// The pack.
    pub pack: PathBuf,
    /// The prompt, as text.
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// A file with the prompt, taken as it is: a newline at its end is part of the prompt. A pipe will do, as in <(…).
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// Token ids, separated by commas or spaces.
    #[arg(long, value_name = "IDS", allow_hyphen_values = true)]
    pub tokens: Option<String>,
    /// A file of token ids, separated by commas or white space. A pipe will do, as in <(…).
    #[arg(long, value_name = "FILE")]
    pub tokens_file: Option<PathBuf>,
    /// Candidates to print.
    #[arg(long, value_name = "K", default_value_t = estream::TOP_K, value_parser = positive())]
    pub top_k: u32,
    /// Write the logits of all positions as float32 [tokens, vocabulary] in NumPy's format, to a regular file; takes no
    /// memory.
    #[arg(long, value_name = "F.npy")]
    pub logits: Option<PathBuf>,
    /// How it is run.
    #[command(flatten)]
    pub machine: Machine,
}

/// How a pack is run.
#[derive(Clone, Debug, Args)]
pub struct Machine {
    /// Where the firmware runs.
    #[arg(long, value_enum, default_value_t = DeviceName::Native)]
    pub device: DeviceName,
    /// Bytes of the arena that experts are streamed through, such as 512MiB; a quarter of the experts by default.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with_all = ["group", "banks"])]
    pub arena: Option<u64>,
    /// Experts a group: what one read brings.
    #[arg(long, value_name = "G", value_parser = positive())]
    pub group: Option<u32>,
    /// Banks, each of one group; `all` keeps every group of every layer, and more there cannot be.
    #[arg(long, value_name = "B|all", value_parser = banks)]
    pub banks: Option<estream::Banks>,
    /// Reads in flight, at most one a bank; 2 by default.
    #[arg(long, value_name = "Q", value_parser = positive())]
    pub depth: Option<u32>,
    /// Threads that compute; one for each processor by default. Fewer run where the device has no use for so many.
    #[arg(long, value_name = "N", value_parser = positive())]
    pub threads: Option<u32>,
    /// Kernels to compute with.
    #[arg(long, value_enum, default_value_t = KernelName::Auto)]
    pub kernels: KernelName,
    /// What integer kernels round activations to: two int8 digits, about 16 bits, or one, which is faster and coarser.
    #[arg(long, value_enum, default_value_t = Activations::Default)]
    pub activations: Activations,
    /// When checksums are checked: at the first open of a file, at every read, or never but for the header.
    #[arg(long, value_enum, default_value_t = Policy::Once)]
    pub verify: Policy,
    /// Scratchpad (cache) budget of the expert operator, such as 2MiB; the device's own by default.
    #[arg(long, value_name = "SIZE", value_parser = scratch)]
    pub scratch: Option<u32>,
    /// Rows of a chunk, a multiple of 32; as many as the scratchpad holds by default. Results do not depend on it.
    #[arg(long, value_name = "ROWS", value_parser = row_chunk)]
    pub row_chunk: Option<u32>,
    /// When experts are read, as in the ablations; results do not depend on it. `naive`, `layer-2` and `layer-all` also
    /// cut the arena, `resident` keeps all experts.
    #[arg(long, value_enum, default_value_t = ScheduleName::CrossLayer)]
    pub schedule: ScheduleName,
    /// When expert calls are planned: once, or anew for every call.
    #[arg(long, value_enum, default_value_t = TopologyName::Fixed)]
    pub topology: TopologyName,
    /// Where the weights are that every token passes: in memory, or streamed like the experts. `auto`: as `tune` found, else
    /// streamed where they are larger than the --arena that was asked for.
    #[arg(long, value_enum, default_value_t = DenseName::Auto)]
    pub dense: DenseName,
    /// Bytes of experts without routes that one read goes through, such as 256KiB; where more lie between, they are left
    /// out. By default groups are read whole.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub gap: Option<u64>,
    /// Bytes up to which adjacent reads become one, such as 1MiB; 0 keeps them apart. As `tune` found, else 4 MiB.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub merge: Option<u64>,
    /// The simulator's parts.
    #[command(flatten)]
    pub simulator: SimulatorParts,
}

impl Machine {
    /// The flags that say all this to another process of this program.
    pub fn arguments(&self) -> Vec<OsString> {
        // Taken apart whole, so that a new flag cannot be forgotten here.
        let Self {
            device,
            arena,
            group,
            banks,
            depth,
            threads,
            kernels,
            activations,
            verify,
            scratch,
            row_chunk,
            schedule,
            topology,
            dense,
            gap,
            merge,
            simulator,
        } = self;
        let SimulatorParts { sim_qemu, sim_guest, sim_skel, sim_vtcm, sim_patience, sim_counts } = simulator;
        let name =
            |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned());
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let banks = banks.map(|banks| match banks {
            Banks::Count(count) => count.to_string(),
            Banks::All => "all".to_owned(),
        });
        let vtcm = sim_vtcm.map(|bytes| if bytes == 0 { "refused".to_owned() } else { bytes.to_string() });
        let words = [
            ("--device", name(device.to_possible_value())),
            ("--arena", number(*arena)),
            ("--group", number(group.map(u64::from))),
            ("--banks", banks),
            ("--depth", number(depth.map(u64::from))),
            ("--threads", number(threads.map(u64::from))),
            ("--kernels", name(kernels.to_possible_value())),
            ("--activations", name(activations.to_possible_value())),
            ("--verify", name(verify.to_possible_value())),
            ("--scratch", number(scratch.map(u64::from))),
            ("--row-chunk", number(row_chunk.map(u64::from))),
            ("--schedule", name(schedule.to_possible_value())),
            ("--topology", name(topology.to_possible_value())),
            ("--dense", name(dense.to_possible_value())),
            ("--gap", number(*gap)),
            ("--merge", number(*merge)),
            ("--sim-vtcm", vtcm),
            ("--sim-patience", number(sim_patience.map(u64::from))),
        ];
        let paths = [("--sim-qemu", sim_qemu), ("--sim-guest", sim_guest), ("--sim-skel", sim_skel)];
        let words = words.into_iter().filter_map(|(flag, value)| Some((flag, OsString::from(value?))));
        let paths = paths.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?.into())));
        let counts = sim_counts.then(|| "--sim-counts".into());
        words.chain(paths).flat_map(|(flag, value)| [flag.into(), value]).chain(counts).collect()
    }
}

/// Where the parts of `--device sim` are, and what it simulates.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Simulator (--device sim)")]
pub struct SimulatorParts {
    /// `qemu-hexagon`, 10.0 or newer; looked for beside this program, under target-hexagon and on PATH by default.
    #[arg(long, value_name = "PATH")]
    pub sim_qemu: Option<PathBuf>,
    /// The protection domain's program; looked for beside this program and under target-hexagon by default.
    #[arg(long, value_name = "PATH")]
    pub sim_guest: Option<PathBuf>,
    /// The skel to load; looked for beside this program and under target-hexagon by default.
    #[arg(long, value_name = "PATH")]
    pub sim_skel: Option<PathBuf>,
    /// VTCM that the domain reports, such as 4MiB, or `refused`; 8 MiB by default.
    #[arg(long, value_name = "SIZE", value_parser = vtcm)]
    pub sim_vtcm: Option<u32>,
    /// How long the simulator may take for a call, and be silent in a pass; 120 by default.
    #[arg(long, value_name = "SECONDS", value_parser = positive())]
    pub sim_patience: Option<u32>,
    /// Print on stderr what the units did for each operator: HVX float words, HMX pairs and tiles, DMA descriptors.
    #[arg(long)]
    pub sim_counts: bool,
}

/// `bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// The pack.
    pub pack: PathBuf,
    /// Prompt lengths in tokens.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [32, 128, 512, 1024], value_parser = positive())]
    pub prompts: Vec<u32>,
    /// Passes of a warm row, after one that does not count; 0 leaves warm rows out.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub runs: u32,
    /// Fresh processes of a cold row; 0 leaves cold rows out.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub cold_runs: u32,
    /// Also run the prompts with all experts in memory: what computing alone takes. Needs the memory of the whole model.
    #[arg(long)]
    pub resident: bool,
    /// Compare the schedules and cuts of the arena instead, each in fresh processes: time, waits, memory, bytes.
    #[arg(long, conflicts_with_all = ["energy", "resident", "schedule", "topology"])]
    pub ablations: bool,
    /// Measure this machine's peaks and each kernel's share of its bound instead, on one thread.
    #[arg(long, conflicts_with_all = ["energy", "resident", "ablations"])]
    pub roofline: bool,
    /// Also measure energy, by the processor's counters.
    #[arg(long)]
    pub energy: bool,
    /// How the table is written; --json prints everything.
    #[arg(long, value_enum, default_value_t = BenchFormat::Markdown)]
    pub output: BenchFormat,
    /// How it is run.
    #[command(flatten)]
    pub machine: Machine,
}

/// Tables of `bench`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchFormat {
    /// For people.
    Markdown,
    /// For spreadsheets.
    Csv,
}

/// `tokenize`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("texts").required(true).args(["prompt", "jsonl"])))]
pub struct Tokenize {
    /// A GGUF or a pack.
    pub model: PathBuf,
    /// The text.
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// A file of lines {"text":…}, or - for stdin; each gives a line {"ids":[…]}.
    #[arg(long, value_name = "FILE|-")]
    pub jsonl: Option<PathBuf>,
}

/// `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Keep the model and the pack in this folder.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

/// `synth`.
#[derive(Debug, Args)]
pub struct Synth {
    /// The model whose shape is taken.
    #[arg(long, value_name = "NAME", value_parser = shape)]
    pub shape: Shape,
    /// Layers to write; all of the shape by default.
    #[arg(long, value_name = "N", value_parser = positive())]
    pub layers: Option<u32>,
    /// Seed of the weights.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,
    /// Zipf exponent of the experts' shares of the routes; 0 is even.
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = skew)]
    pub skew: f64,
    /// What to write.
    #[arg(long, value_enum)]
    pub format: Format,
    /// The file to write.
    #[arg(short, long, value_name = "F")]
    pub output: PathBuf,
}

/// Devices by name. Those that this build cannot reach are known, so that asking for one is no spelling mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceName {
    /// This processor.
    Native,
    /// The Hexagon firmware under an emulator.
    Sim,
    /// The Hexagon NPU.
    Cdsp,
}

/// `trace`.
#[derive(Debug, Args)]
pub struct Trace {
    /// Where the trace is written, as JSON.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Also draw it, as SVG.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// The pass.
    #[command(flatten)]
    pub run: Run,
}

/// `tune`.
#[derive(Debug, Args)]
pub struct Tune {
    /// The pack.
    pub pack: PathBuf,
    /// Memory of a whole session, such as 512MiB; may be given several times. Runs take the first one's settings.
    #[arg(long, value_name = "SIZE", required = true, value_parser = size::parse)]
    pub budget: Vec<u64>,
    /// Write the storage order that the profile suggests, for `pack --order`.
    #[arg(long, value_name = "FILE")]
    pub order: Option<PathBuf>,
    /// Draw time over memory for all settings, as SVG.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Measure the first budget's settings against a sweep of others. Takes as many passes as it says, and minutes.
    #[arg(long)]
    pub check: bool,
    /// Measure again, whatever was found before.
    #[arg(long)]
    pub again: bool,
    /// Threads that compute; one for each processor by default.
    #[arg(long, value_name = "N", value_parser = positive())]
    pub threads: Option<u32>,
    /// Kernels to compute with.
    #[arg(long, value_enum, default_value_t = KernelName::Auto)]
    pub kernels: KernelName,
    /// When checksums are checked.
    #[arg(long, value_enum, default_value_t = Policy::Once)]
    pub verify: Policy,
}

/// Schedules by name, and the cuts of the arena that are compared with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScheduleName {
    /// A group is read when it is needed, and nothing meanwhile.
    OnDemand,
    /// Reads begin when the layer's routes are known.
    AfterRouting,
    /// Reads begin with the layer.
    Early,
    /// Reads begin as soon as a bank is free.
    CrossLayer,
    /// One read in flight, one expert a group, three banks.
    Naive,
    /// A group for each layer, two banks.
    #[value(name = "layer-2")]
    Layer2,
    /// A group and a bank for each layer.
    LayerAll,
    /// All experts are loaded once, when the pack is opened.
    Resident,
}

impl ScheduleName {
    /// The schedule itself.
    pub const fn schedule(self) -> Schedule {
        match self {
            Self::OnDemand => Schedule::OnDemand,
            Self::AfterRouting => Schedule::AfterRouting,
            Self::Early => Schedule::Early,
            Self::CrossLayer | Self::Naive | Self::Layer2 | Self::LayerAll => Schedule::CrossLayer,
            Self::Resident => Schedule::Resident,
        }
    }

    /// The arena and the reads in flight that belong to it, where they do.
    pub const fn cut(self) -> Option<(Arena, u32)> {
        match self {
            Self::Naive => Some((Arena::Group(1, Some(Banks::Count(3))), 1)),
            Self::Layer2 => Some((Arena::Layers(Banks::Count(2)), 2)),
            Self::LayerAll => Some((Arena::Layers(Banks::All), 2)),
            Self::OnDemand | Self::AfterRouting | Self::Early | Self::CrossLayer | Self::Resident => None,
        }
    }
}

/// Where dense weights are, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DenseName {
    /// As the tuner found, or as the arena suggests.
    Auto,
    /// In memory.
    Resident,
    /// Streamed through a window of two layers.
    Stream,
}

/// When expert calls are planned, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TopologyName {
    /// Once for each shape of expert.
    Fixed,
    /// For every call of every expert.
    PerExpert,
}

impl From<TopologyName> for Planning {
    fn from(name: TopologyName) -> Self {
        match name {
            TopologyName::Fixed => Self::Once,
            TopologyName::PerExpert => Self::PerExpert,
        }
    }
}

/// Kernel sets by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KernelName {
    /// The best that runs here.
    Auto,
    /// Portable scalar code.
    Scalar,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// Portable scalar code, products in integers.
    ScalarInt8,
    /// x86-64 with AVX2, products in integers.
    Avx2Int8,
    /// x86-64 with AVX-VNNI, products in integers.
    AvxVnni,
    /// x86-64 with AVX-512 VNNI, products in integers.
    Avx512Vnni,
    /// Hexagon's kernels over software models of its units: slow, and what a device computes to the bit.
    HmxModel,
    /// Hexagon's vector and matrix units.
    Hexagon,
}

/// What activations are rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Activations {
    /// As the kernels do it: two digits, or f32.
    Default,
    /// One int8 digit, as llama.cpp does; integer kernels only.
    Int8,
}

impl From<Activations> for KernelSet {
    fn from(activations: Activations) -> Self {
        match activations {
            Activations::Default => Self::empty(),
            Activations::Int8 => Self::ONE_DIGIT,
        }
    }
}

impl From<KernelName> for KernelSet {
    fn from(name: KernelName) -> Self {
        match name {
            KernelName::Auto => Self::empty(),
            KernelName::Scalar => Self::SCALAR,
            KernelName::Avx2 => Self::AVX2,
            KernelName::ScalarInt8 => Self::SCALAR_INT8,
            KernelName::Avx2Int8 => Self::AVX2_INT8,
            KernelName::AvxVnni => Self::AVX_VNNI,
            KernelName::Avx512Vnni => Self::AVX512_VNNI,
            KernelName::HmxModel => Self::HMX_MODEL,
            KernelName::Hexagon => Self::HEXAGON,
        }
    }
}

/// Checksum policies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// All bytes at the first open of a file, remembered beside it.
    Once,
    /// Every extent as it is read.
    Always,
    /// The header and its tables only.
    Never,
}

impl From<Policy> for Verify {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Once => Self::Once,
            Policy::Always => Self::Always,
            Policy::Never => Self::Never,
        }
    }
}

/// Formats that `synth` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A GGUF file.
    Gguf,
    /// A pack.
    Pack,
}

fn positive() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

fn banks(text: &str) -> Result<estream::Banks, String> {
    match text {
        "all" => Ok(estream::Banks::All),
        _ => match text.parse() {
            Ok(count) if count > 0 => Ok(estream::Banks::Count(count)),
            _ => Err(format!("{text:?} is neither a number of banks from 1 on nor \"all\"")),
        },
    }
}

/// Bytes of VTCM; 0 stands for a domain that refuses to say.
fn vtcm(text: &str) -> Result<u32, String> {
    if text == "refused" { Ok(0) } else { scratch(text) }
}

fn scratch(text: &str) -> Result<u32, String> {
    let bytes = size::parse(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| format!("{text:?} is not between 1 byte and 4 GiB"))
}

fn row_chunk(text: &str) -> Result<u32, String> {
    let rows: Option<u32> = text.parse().ok();
    rows.filter(|&rows| rows > 0 && rows.is_multiple_of(32))
        .ok_or_else(|| format!("{text:?} is not a multiple of 32"))
}

fn shape(text: &str) -> Result<Shape, String> {
    Shape::named(text).ok_or_else(|| format!("known shapes are {}", Shape::NAMES.join(", ")))
}

fn skew(text: &str) -> Result<f64, String> {
    let skew: Option<f64> = text.parse().ok();
    skew.filter(|skew| (0.0..=4.0).contains(skew))
        .ok_or_else(|| format!("{text:?} is not an exponent between 0 and 4"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_is_told_the_same() {
        let flags = "--device sim --group 4 --banks all --depth 3 --threads 2 --kernels scalar --activations int8 --verify never --scratch 2097152 \
                     --row-chunk 64 --schedule early --topology per-expert --dense stream --gap 65536 --merge 0 --sim-vtcm refused --sim-patience 9 --sim-qemu q \
                     --sim-guest g --sim-skel s --sim-counts";
        let parse = |flags: Vec<OsString>| {
            let words = ["estream", "run", "p", "--tokens", "1"].map(OsString::from).into_iter().chain(flags);
            match Cli::try_parse_from(words).expect("flags that are known").command {
                Command::Run(run) => run.machine,
                other => unreachable!("{other:?}"),
            }
        };
        let machine = parse(flags.split_whitespace().map(OsString::from).collect());
        assert_eq!(format!("{:?}", parse(machine.arguments())), format!("{machine:?}"));
        let sized = parse(["--arena", "3MiB"].map(OsString::from).to_vec());
        assert_eq!(parse(sized.arguments()).arena, Some(3 << 20));
    }
}
