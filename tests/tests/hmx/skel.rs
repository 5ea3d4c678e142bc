//! The skel in the simulator: the models' bytes for every family and codec, and everything on the unit that it is for.
//!
//! The program runs a golden's first tokens on the device `sim` with the Hexagon kernels and tells what its units did. The
//! logits are the native models' to the bit; the matrix unit has multiplied exactly the tiles that shapes and routing come
//! to, padded, so that nothing was computed elsewhere, on the host or by other kernels; and each operator of the model has
//! done its floats, copies and stores. Tokens are cut before the first choice of experts that halves may take otherwise,
//! since the routing is the oracle's.

use crate::prompts::{goldens, margin, options};
use estream::{Device, KernelSet, Simulator};
use estream_tests::compare::read_npy;
use estream_tests::counts::Counts;
use estream_tests::fixture::{self, Golden};
use estream_tests::gguf::{Parts, Piece};
use estream_tests::native::{assert_same, logits};
use estream_tests::oracle::{self, Mixer, Model};
use estream_tests::padded::Tiles;
use estream_tests::program;
use estream_tests::simulator::{flags, simulator};
use half::f16;
use std::path::Path;

/// Tokens of a prompt; a float of the simulator costs microseconds. More of them, for their bytes alone, in a long run.
const TOKENS: usize = 6;
const FULL_TOKENS: usize = 40;
/// What fewer firm tokens would show too little with.
const LEAST: usize = 3;
/// Tiles of the session's self-test, whose pieces of work name themselves: one strip of 64 inputs.
const SELF_TEST: u64 = 2;
/// Operators of every model, each with the kinds of work that it cannot do without.
const ALWAYS: [(&str, &[&str]); 9] = [
    ("norm", &["float"]),
    ("router", &["float"]),
    ("gather", &["float"]),
    ("fetch", &["descriptors", "bytes"]),
    ("decode", &["float"]),
    ("multiply", &["pairs", "tiles", "stores"]),
    ("activate", &["float"]),
    ("scatter", &["float"]),
    ("head", &["float"]),
];
/// Those of attention of either kind, of the one with rotated heads, and of short convolution. What is rotated of a latent
/// key goes with the vector it stands behind, and has no mark of its own.
const ATTENDING: [(&str, &[&str]); 2] =
    [("attention", &["float", "pairs", "tiles", "stores"]), ("softmax", &["float"])];
const ROTATING: [(&str, &[&str]); 1] = [("rope", &["float"])];
const CONVOLVING: [(&str, &[&str]); 1] = [("convolution", &["float"])];
/// What the self-test, whose pieces name themselves as a pass's do, counts of one kind at most: a pass does more.
const SELF_TESTS_MOST: u64 = 200;
/// A float word at least for each of a decoded tile's vectors.
const TILE_VECTORS: u64 = 16;

/// Compares the logits of the models with those of the units.
fn same_bytes(name: &str, pack: &Path, ids: &[u32], simulator: &Simulator) {
    let device = options().device(Device::Sim(simulator.clone())).kernels(KernelSet::HEXAGON);
    let [native, simulated] = [options(), device].map(|options| logits(pack, &[ids], options).remove(0));
    assert_same(&native, &simulated, name);
}

/// At its whole length the golden has several tiles of rows and blocks of keys.
#[test]
fn the_whole_golden_gives_the_models_bytes() {
    let Some(simulator) = simulator() else { return };
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    same_bytes(&golden.name, &pack, &golden.prompts[0].ids, &simulator);
}

/// Runs a golden in the simulator and holds logits and counts to what they must be.
fn check(golden: &Golden, folder: &Path) {
    let Some(simulator) = simulator() else { return };
    let name = &golden.name;
    let (model, pack) =
        (Model::open(&golden.gguf).expect("a golden"), fixture::pack(&golden.gguf, folder, None));
    let ids = &golden.prompts[0].ids;
    if fixture::full() {
        same_bytes(name, &pack, &ids[..ids.len().min(FULL_TOKENS)], &simulator);
    }
    let oracle = model.forward(&ids[..TOKENS]);
    let firm = oracle.first_doubtful(margin(golden)).unwrap_or(TOKENS);
    if fixture::full() && firm < LEAST {
        return println!("{name}: bytes alone, the choice at {firm} is doubtful");
    }
    assert!(firm >= LEAST, "{name}: the choice at {firm} is doubtful");
    let ids = &ids[..firm];

    let npy = folder.join(format!("{name}.npy"));
    let mut command = program::estream();
    command.arg("run").arg(&pack).args(["--tokens", &program::ids(ids), "--logits"]).arg(&npy);
    command.args(["--kernels", "hexagon", "--group", "4", "--banks", "3", "--threads", "2", "--json"]);
    let ended = program::finish(command.args(flags(&simulator)).arg("--sim-counts"));
    assert_eq!(ended.code, 0, "{name}: {}{}", ended.stdout, ended.stderr);
    let native = logits(&pack, &[ids], options()).remove(0);
    assert_same(&native, &read_npy(&npy).expect("the logits"), name);

    let counts = Counts::read(&ended.stderr);
    let mixers = |is: fn(&Mixer) -> bool| model.layers.iter().any(|layer| is(&layer.mixer));
    let parts = [
        (true, SELF_TESTS_MOST, &ALWAYS[..]),
        (mixers(|mixer| !matches!(mixer, Mixer::Convolution(_))), 0, &ATTENDING),
        (mixers(|mixer| matches!(mixer, Mixer::Attention(_))), 0, &ROTATING),
        (mixers(|mixer| matches!(mixer, Mixer::Convolution(_))), 0, &CONVOLVING),
    ];
    for (_, most, needed) in parts.into_iter().filter(|(has, ..)| *has) {
        for (operator, kinds) in needed {
            for kind in *kinds {
                let count = counts.of(operator, kind);
                assert!(count > most, "{name}: {count} {kind} of {operator}: {counts:?}");
            }
        }
    }
    let file = Parts::read(&std::fs::read(&golden.gguf).expect("the golden"));
    let mut expected = Tiles::of(&file, &model, &oracle.routing, ids.len());
    // The program asks for the last position's candidates beside the rows of logits; the self-test comes first.
    expected.products += expected.head + SELF_TEST;
    let counted = [counts.of("multiply", "tiles"), counts.of("attention", "tiles")];
    assert_eq!(counted, [expected.products, expected.attention], "{name}: tiles of {} tokens", ids.len());
    let floats = counts.of("decode", "float");
    assert!(floats >= TILE_VECTORS * expected.decoded, "{name}: {floats} for {} tiles", expected.decoded);
    let elsewhere = counts.total("tiles", "self-test") - counted.iter().sum::<u64>();
    assert_eq!(elsewhere, 0, "{name}: tiles of other operators: {counts:?}");
    assert_eq!(counts.total("saturations", "self-test"), 0, "{name}");
    println!("{name}: {} tokens, {counted:?} tiles", ids.len());
}

#[test]
fn every_family_gives_the_models_bytes_on_the_units_alone() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    goldens().iter().for_each(|golden| check(golden, folder.path()));
}

/// ggml's numbers for the types that experts are stored as anew.
const F16: u32 = 1;
const Q8_0: u32 = 8;

/// Our golden with its experts stored as another type; lossy or not, it is a model like any other.
fn stored_as(kind: u32, folder: &Path) -> Golden {
    let own = fixture::own();
    let mut file = Parts::read(&std::fs::read(&own.gguf).expect("the golden"));
    for piece in file.tensors.iter_mut().filter(|piece| piece.name.contains("_exps.")) {
        let values = oracle::dequantise(piece.kind, &piece.data).expect("a type that the oracle knows");
        let data = match kind {
            F16 => values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect(),
            _ => values.chunks_exact(32).flat_map(block_of_bytes).collect(),
        };
        *piece = Piece::new(&piece.name, &piece.shape, kind, data);
    }
    let golden = Golden { name: format!("{}-{kind}", own.name), ..own };
    let gguf = folder.join(format!("{}.gguf", golden.name));
    std::fs::write(&gguf, file.write(32)).expect("a file can be written");
    Golden { gguf, ..golden }
}

/// A block of Q8_0: a half, then 32 signed bytes that it is a factor of.
fn block_of_bytes(values: &[f32]) -> Vec<u8> {
    let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let scale = f16::from_f32(largest / 127.0);
    let code =
        |&value: &f32| (value / scale.to_f32().max(f32::MIN_POSITIVE)).round().clamp(-127.0, 127.0) as i8;
    let codes = values.iter().map(|value| code(value).cast_unsigned());
    scale.to_le_bytes().into_iter().chain(codes).collect()
}

/// Q4_0 and Q6_K are in every family; here are the other codecs' ways to store experts.
#[test]
fn every_codec_gives_the_models_bytes_on_the_units_alone() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    for kind in [F16, Q8_0] {
        check(&stored_as(kind, folder.path()), folder.path());
    }
    // Super-blocks; the whole set of mixes in a long run.
    let wanted = |golden: &&Golden| fixture::full() || golden.name == "olmoe.Q4_K_M";
    fixture::wild().iter().filter(wanted).for_each(|golden| check(golden, folder.path()));
}
