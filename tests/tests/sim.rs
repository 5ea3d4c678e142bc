//! The skel that ships, in the simulator, against the native device: the same bytes.
//!
//! Both run the scalar kernels of one source, on IEEE arithmetic, so nothing may differ. Simulated floats cost about fifty
//! nanoseconds each: the golden runs whole once, the other settings on its first tokens.

use estream::{Arena, Banks, Device, Engine, KernelSet, Options, Request, Simulator, Verify};
use estream_host::Transport;
use estream_host::transport::{Native, Sim};
use estream_idl::PROTOCOL;
use estream_idl::call::{self, Config, Prepare, Reply};
use estream_idl::fastrpc::{CALL, from_return};
use estream_idl::status::Status;
use estream_tests::collect::Collector;
use estream_tests::compare::{compare, read_npy};
use estream_tests::fixture::{self, Golden};
use estream_tests::program;
use estream_tests::simulator::{flags, simulator};
use ndarray::Array2;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The bound of the mean KL against llama.cpp's logits, that of the native scalar kernels.
const KL: f64 = 1e-7;
/// Tokens of the prompts that are run with many settings.
const TOKENS: usize = 12;

/// Runs the program; its report, and the bytes of the logits file.
fn run(pack: &Path, golden: &Golden, folder: &Path, arguments: &[String]) -> (Value, Vec<u8>) {
    let npy = folder.join("logits.npy");
    let mut command = program::estream();
    command
        .arg("run")
        .arg(pack)
        .args(["--tokens", &program::ids(&golden.prompts[0].ids)])
        .arg("--logits")
        .arg(&npy);
    let report = program::report(
        command.args(["--kernels", "scalar", "--group", "2", "--banks", "3"]).args(arguments),
    );
    (report, std::fs::read(&npy).expect("the logits file can be read"))
}

#[test]
fn the_golden_gives_the_native_bytes_and_names_the_skel() {
    let Some(simulator) = simulator() else { return };
    let (golden, folder) = (fixture::own(), fixture::folder(env!("CARGO_TARGET_TMPDIR")));
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let (native, expected) = run(&pack, &golden, folder.path(), &[]);
    let (simulated, logits) = run(&pack, &golden, folder.path(), &flags(&simulator));
    assert!(logits == expected, "the logits differ");
    assert_eq!(simulated["routing"], native["routing"]);
    assert_eq!(simulated["top"], native["top"]);
    assert_eq!(simulated["device"], "sim");
    assert_eq!(simulated["skel"]["arch"], "v73");
    assert_eq!(native["skel"], Value::Null);

    let sum = Command::new("sha256sum").arg(&simulator.skel).output().expect("coreutils").stdout;
    let sum = String::from_utf8(sum).expect("hexadecimal digits");
    assert_eq!(simulated["skel"]["sha256"].as_str(), sum.split_whitespace().next());

    let logits = read_npy(&folder.path().join("logits.npy")).expect("the logits file is NumPy's");
    let prompt = &golden.prompts[0];
    let agreement = compare(prompt.logits().view(), prompt.select(&logits).view());
    println!("{agreement:?}");
    assert!(agreement.kl_mean <= KL, "{agreement:?}");
}

/// The logits of a prompt by the library.
fn logits(pack: &Path, ids: &[u32], options: Options) -> Array2<f32> {
    let options = options.kernels(KernelSet::SCALAR).max_tokens(ids.len() as u32).max_requests(1).rows(true);
    let mut engine = Engine::open(pack, options.verify(Verify::Never)).expect("the engine opens");
    let mut collector = Collector::new(&[ids.len()], engine.model().vocab as usize);
    engine.prefill_into(&[Request::new(ids).with_rows()], &mut collector).expect("the pass runs");
    engine.close().expect("the session ends well");
    collector.finish().remove(0)
}

fn bits(logits: &Array2<f32>) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

/// A pack of the golden, its first tokens, and what the native device makes of them.
fn reference(folder: &Path) -> (std::path::PathBuf, Vec<u32>, Vec<u32>) {
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder, None);
    let ids = golden.prompts[0].ids[..TOKENS].to_vec();
    let expected = bits(&logits(&pack, &ids, Options::new().threads(1)));
    (pack, ids, expected)
}

#[test]
fn streamed_is_resident_in_the_simulator() {
    let Some(simulator) = simulator() else { return };
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let (pack, ids, expected) = reference(folder.path());
    let settings = [
        (1, 1, Banks::Count(1), 1, 8 << 20),
        (2, 2, Banks::Count(3), 2, 8 << 20),
        (4, 1, Banks::Count(5), 3, 4 << 20),
        (2, 8, Banks::Count(2), 1, 2 << 20),
        (1, 16, Banks::All, 2, 8 << 20),
    ];
    for (depth, group, banks, threads, vtcm) in settings {
        let device = Device::Sim(Simulator { vtcm, ..simulator.clone() });
        let options = Options::new()
            .device(device)
            .arena(Arena::Group(group, Some(banks)))
            .depth(depth)
            .threads(threads);
        assert_eq!(
            bits(&logits(&pack, &ids, options)),
            expected,
            "Q {depth}, G {group}, {banks:?}, VTCM {vtcm}"
        );
    }
}

#[test]
fn imports_that_some_images_lack_are_done_without() {
    let Some(simulator) = simulator() else { return };
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let (pack, ids, expected) = reference(folder.path());
    for without in [
        &["qurt_futex_wait", "qurt_futex_wake"][..],
        &["memalign", "free"],
        &["__wrap_memalign", "__wrap_free", "HAP_debug"],
    ] {
        let without = without.iter().map(ToString::to_string).collect();
        let device = Device::Sim(Simulator { without, ..simulator.clone() });
        assert_eq!(bits(&logits(&pack, &ids, Options::new().device(device.clone()))), expected, "{device:?}");
    }
}

#[test]
fn native_firmware_and_skel_answer_the_same_calls_alike() {
    let Some(simulator) = simulator() else { return };
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = fixture::pack(&fixture::own().gguf, folder.path(), None);
    let pack = estream_host::Pack::open(&pack, Verify::Never, &|_, _| ()).expect("the pack opens");
    let mut native = Native::open(estream_dsp::FIRMWARE).expect("a session");
    let mut sim = Sim::open(&simulator).expect("a domain");
    let config = Config {
        max_tokens: 64,
        max_requests: 2,
        max_outputs: 4,
        top_k: 3,
        rows: true,
        group: 3,
        banks: 2,
        depth: 9,
        threads: 1,
        kernels: KernelSet::SCALAR,
        scratch: 1 << 20,
        row_chunk: 32,
        streaming: estream_idl::streaming::Streaming::default(),
    };
    let (recipe, directory) = (pack.recipe(), pack.directory());
    let prepare = Prepare { config, recipe, directory };
    let requests = [
        call::Request::Hello { protocol: PROTOCOL },
        call::Request::Hello { protocol: PROTOCOL + 1 },
        call::Request::Plan(prepare),
        call::Request::Plan(Prepare { config: Config { max_tokens: 0, ..config }, ..prepare }),
        call::Request::Plan(Prepare { config: Config { row_chunk: 33, ..config }, ..prepare }),
        call::Request::Plan(Prepare { recipe: &recipe[..recipe.len() / 2], ..prepare }),
        call::Request::Plan(Prepare { directory: &directory[..directory.len() - 1], ..prepare }),
        call::Request::Start(prepare),
        call::Request::Stop,
    ];
    for request in &requests {
        // What depends on the width of a pointer or on the machine is set to the native value.
        let expected = native.call(request).expect("an answer");
        let answer = match (sim.call(request).expect("an answer"), expected) {
            (Reply::Hello(hello), Reply::Hello(native)) => {
                Reply::Hello(call::Hello { protocol: hello.protocol, ..native })
            }
            (Reply::Plan(plan), Reply::Plan(native)) => {
                let call::Plan { private_bytes, stack_bytes, .. } = native;
                Reply::Plan(call::Plan { private_bytes, stack_bytes, ..plan })
            }
            (answer, _) => answer,
        };
        let shown = format!("{request:.60?}");
        assert_eq!(answer, expected, "{shown}");
    }

    for bytes in [&[][..], &[0], &[9, 9, 9], &[255; 40], &[2, 0, 0]] {
        let handle = (estream_dsp::FIRMWARE.open)().expect("a session");
        let mut reply = [0; call::REPLY_BYTES];
        let expected = (estream_dsp::FIRMWARE.call)(handle, bytes, &mut reply);
        (estream_dsp::FIRMWARE.close)(handle).expect("it was open");
        let lengths = [bytes.len() as u32, call::REPLY_BYTES as u32].map(u32::to_le_bytes).concat();
        let returned = sim
            .invoke(sim.handle(), CALL, &[&lengths, bytes], &[4, call::REPLY_BYTES as u32], &[])
            .expect("an answer");
        let status = expected.map_or_else(|status| status, |_| Status::Ok);
        assert_eq!(from_return(returned.value), Some(status), "{bytes:?}");
    }
}
