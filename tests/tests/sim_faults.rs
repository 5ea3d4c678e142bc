//! What goes wrong with a device, in the simulator: each case a named error and exit 4 (it could not be started) or 1 (it
//! failed later), within a stated time, with no number before it and no process left behind.

use estream_host::transport::{Returned, Sim, Simulator};
use estream_host::{Error, Exit, Output, Pack, Request, RowSink, Session, Transport, Verify};
use estream_idl::call::{self, Config, KernelSet, REPLY_BYTES};
use estream_idl::carrier::MEMORY_FD;
use estream_idl::fastrpc::{ATTACH, BAD_ARGUMENTS, CALL, CLOSE, UNKNOWN_METHOD, from_return, scalars};
use estream_idl::message::Rows;
use estream_idl::status::Status;
use estream_tests::child::Ended;
use estream_tests::simulator::{Outside, flags, simulator, skel};
use estream_tests::{fixture, program};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long the program may take to refuse a device that cannot be started, and a session to notice that its domain died.
const SOON: Duration = Duration::from_secs(1);
/// Room for a busy machine on top of a stated time.
const SLACK: Duration = Duration::from_secs(2);
/// The silence that the tests allow: the firmware beats at every bank, and what lies between two of them takes a simulator
/// on a busy machine up to a second with this many tokens.
const SILENCE: Duration = Duration::from_secs(4);
const TOKENS: usize = 48;

// Words of the control segment, written out from the table in the contract: lines of 32 words.
const TO_DSP_HEAD: usize = 0;
const TO_HOST_TAIL: usize = 32;
const TO_DSP_TAIL: usize = 4 * 32;
const TO_HOST_HEAD: usize = 5 * 32;
const HEARTBEAT: usize = 8 * 32;

fn packed() -> (TempDir, PathBuf) {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = fixture::pack(&fixture::own().gguf, folder.path(), None);
    (folder, pack)
}

/// Runs the program on a simulator; it must not get as far as a number.
fn fails(pack: &Path, simulator: &Simulator, code: i32) -> String {
    let mut command = program::estream();
    let Ended { code: exit, stdout, stderr, time, .. } =
        program::finish(command.arg("run").arg(pack).args(["--tokens", "1,2,3"]).args(flags(simulator)));
    assert_eq!((exit, stdout.as_str()), (code, ""), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert!(time < SOON + SLACK, "refused after {time:?}");
    stderr
}

#[test]
fn a_part_that_is_missing_is_named() {
    let Some(simulator) = simulator() else { return };
    let (folder, pack) = packed();
    let nowhere = folder.path().join("nowhere");
    let missing = |change: fn(&mut Simulator, PathBuf)| {
        let mut simulator = simulator.clone();
        change(&mut simulator, nowhere.clone());
        let message = fails(&pack, &simulator, 4);
        assert!(message.contains("nowhere"), "{message}");
        message
    };
    assert!(missing(|simulator, path| simulator.qemu = path).contains("qemu-hexagon"));
    assert!(missing(|simulator, path| simulator.guest = path).contains("guest"));
    assert!(missing(|simulator, path| simulator.skel = path).contains("skel"));
    // Parts that are there and are not what they should be.
    std::fs::write(&nowhere, "no program\n").expect("a file can be written");
    fails(&pack, &Simulator { qemu: nowhere.clone(), ..simulator.clone() }, 4);
    fails(&pack, &Simulator { guest: nowhere, ..simulator }, 4);
}

#[test]
fn another_architecture_runs_and_is_named() {
    let Some(simulator) = simulator() else { return };
    let (folder, pack) = packed();
    let other = skel("v75").unwrap_or_else(|| {
        // A v75 skel that is not built differs from ours in its flags word at least.
        let mut bytes = std::fs::read(&simulator.skel).expect("the skel can be read");
        bytes[36] = 0x75;
        let path = folder.path().join("v75.so");
        std::fs::write(&path, bytes).expect("a file can be written");
        path
    });
    let mut command = program::estream();
    let report = program::report(
        command
            .arg("run")
            .arg(&pack)
            .args(["--tokens", "1,2,3"])
            .args(flags(&Simulator { skel: other, ..simulator })),
    );
    assert_eq!(report["skel"]["arch"], "v75");
}

#[test]
fn an_import_that_the_domain_lacks_is_refused_by_name() {
    let Some(simulator) = simulator() else { return };
    for name in ["HAP_mmap_get", "qurt_thread_create", "qurt_sleep"] {
        let begun = Instant::now();
        let error =
            Sim::open(&Simulator { without: vec![name.into()], ..simulator.clone() }).expect_err("a refusal");
        assert!(begun.elapsed() < SOON + SLACK);
        assert_eq!((error.code, error.exit), ("bad_skel", Exit::Device), "{error}");
        assert!(error.message.contains(name), "{error}");
        assert_eq!(error.file.as_ref(), Some(&simulator.skel));
    }
}

#[test]
fn a_damaged_skel_is_refused_and_no_skel_hangs() {
    let Some(simulator) = simulator() else { return };
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let whole = std::fs::read(&simulator.skel).expect("the skel can be read");
    let path = folder.path().join("damaged.so");
    let open = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("a file can be written");
        let patience = Duration::from_secs(5);
        Sim::open(&Simulator { skel: path.clone(), patience, ..simulator.clone() })
    };
    for length in [0, 4, 51, 52, 100, 300, 4096, whole.len() / 2] {
        let error = open(&whole[..length]).expect_err("a refusal");
        assert_eq!((error.code, error.exit), ("bad_skel", Exit::Device), "{length} bytes: {error}");
    }
    // Headers and tables at the start of the file: whatever they say, the loader follows nothing outside.
    for at in (16..600).step_by(19) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x84;
        if let Err(error) = open(&bytes) {
            assert_eq!(error.exit, Exit::Device, "byte {at}: {error}");
            assert_ne!(error.code, "silent", "byte {at}");
        }
    }
}

#[test]
fn vtcm_may_be_smaller_and_below_the_minimum_it_is_refused_with_the_bytes() {
    let Some(simulator) = simulator() else { return };
    let (folder, pack) = packed();
    let mut outputs = Vec::new();
    for mebibytes in [8, 4, 2] {
        let (npy, vtcm) = (folder.path().join("logits.npy"), mebibytes << 20);
        let mut command = program::estream();
        command.arg("run").arg(&pack).args(["--tokens", "1,2,3"]).arg("--logits").arg(&npy);
        let report = program::report(command.args(flags(&Simulator { vtcm, ..simulator.clone() })));
        assert!(program::number(&report, "scratch_bytes") <= u64::from(vtcm));
        outputs.push(std::fs::read(npy).expect("the logits file can be read"));
    }
    assert!(outputs.iter().all(|output| *output == outputs[0]), "the size of the VTCM changes results");
    for vtcm in [4096, 0] {
        let message = fails(&pack, &Simulator { vtcm, ..simulator.clone() }, 1);
        assert!(message.contains("scratchpad") && message.contains(&format!("has {vtcm}")), "{message}");
    }
}

/// A sink for passes that end before a row: they fail.
struct NoRows;

impl RowSink for NoRows {
    fn rows(&mut self, _: &Rows, _: &[f32]) -> std::io::Result<()> {
        Err(std::io::Error::other("no row was asked for"))
    }
}

/// A session in the simulator that takes the golden's prompt, and its domain seen from outside.
fn session(simulator: &Simulator, pack: &Path) -> (Session, Outside) {
    let sim = Sim::open(simulator).expect("a domain");
    let outside = Outside::of(&sim);
    let pack = Pack::open(pack, Verify::Never, &|_, _| ()).expect("the pack opens");
    let config = Config {
        max_tokens: TOKENS as u32,
        max_requests: 1,
        max_outputs: 1,
        top_k: 3,
        rows: false,
        group: 2,
        banks: 3,
        depth: 2,
        threads: 2,
        kernels: KernelSet::SCALAR,
        scratch: 0,
        row_chunk: 0,
        streaming: estream_idl::streaming::Streaming::default(),
    };
    let mut session = Session::open(pack, Box::new(sim), config).expect("a session");
    session.set_silence_limit(SILENCE);
    (session, outside)
}

/// A pass over the golden's prompt, which takes seconds in the simulator and must fail; its error, twice.
fn pass(session: &mut Session) -> Error {
    let golden = fixture::own();
    let outputs = [Output { position: TOKENS as u32 - 1, target: None }];
    let requests = [Request { ids: &golden.prompts[0].ids[..TOKENS], outputs: &outputs, rows: false }];
    let error = session.prefill(&requests, &mut NoRows).expect_err("the pass fails");
    let again = session.prefill(&requests, &mut NoRows).expect_err("a session fails once");
    assert_eq!((again.code, &again.message), (error.code, &error.message));
    assert_eq!(error.exit, Exit::Runtime);
    error
}

/// Runs a pass and, as soon as its heartbeat moves, `then`; the error, and the time from then on.
fn interrupted(session: &mut Session, outside: &Outside, then: impl FnOnce() + Send) -> (Error, Duration) {
    let beat = outside.word(HEARTBEAT + 1);
    thread::scope(|scope| {
        let interrupt = scope.spawn(move || {
            // Word 1 is the layer: the pass is at its second one.
            while outside.word(HEARTBEAT + 1) == beat {
                thread::sleep(Duration::from_millis(1));
            }
            then();
            Instant::now()
        });
        let error = pass(session);
        let ended = Instant::now();
        (error, ended.saturating_duration_since(interrupt.join().expect("the interruption ran")))
    })
}

#[test]
fn a_domain_that_dies_in_a_pass_is_noticed_within_a_second() {
    let Some(simulator) = simulator() else { return };
    let (_folder, pack) = packed();
    for signal in ["KILL", "SEGV"] {
        let (mut session, outside) = session(&simulator, &pack);
        let (error, time) = interrupted(&mut session, &outside, || outside.signal(signal));
        assert_eq!(error.code, "died", "{error}");
        assert!(error.message.contains(signal), "{error}");
        assert!(time < SOON, "noticed after {time:?}");
        assert!(session.close().is_err());
        assert!(outside.gone());
    }
}

#[test]
fn a_domain_that_falls_silent_in_a_pass_is_given_up_and_ended() {
    let Some(simulator) = simulator() else { return };
    let (_folder, pack) = packed();
    let (mut session, outside) = session(&simulator, &pack);
    let (error, time) = interrupted(&mut session, &outside, || outside.signal("STOP"));
    assert_eq!(error.code, "silent", "{error}");
    assert!(time < SILENCE + SLACK, "given up after {time:?}");
    assert!(session.close().is_err());
    assert!(outside.gone(), "a stopped process is left behind");
}

#[test]
fn a_domain_that_dies_or_falls_silent_in_a_call_is_noticed() {
    let Some(simulator) = simulator() else { return };
    for (signal, code, limit) in [("STOP", "silent", SILENCE + SLACK), ("KILL", "died", SOON)] {
        let mut sim = Sim::open(&Simulator { patience: SILENCE, ..simulator.clone() }).expect("a domain");
        let outside = Outside::of(&sim);
        outside.signal(signal);
        let begun = Instant::now();
        let error =
            sim.call(&call::Request::Hello { protocol: estream_idl::PROTOCOL }).expect_err("no answer");
        assert_eq!((error.code, error.exit), (code, Exit::Runtime), "{error}");
        assert!(begun.elapsed() < limit);
        drop(sim);
        assert!(outside.gone());
    }
}

/// Waits until the dense weights are in: as long as loads go to and fro, the host writes its indices anew.
fn quiet(outside: &Outside) {
    let indices = || [TO_DSP_HEAD, TO_HOST_TAIL, TO_HOST_HEAD].map(|word| outside.word(word));
    let mut last = indices();
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_millis(300) {
        thread::sleep(Duration::from_millis(10));
        let now = indices();
        if now != last || now[0] == 0 {
            (last, since) = (now, Instant::now());
        }
    }
}

#[test]
fn a_ring_that_either_side_corrupts_ends_the_session() {
    let Some(simulator) = simulator() else { return };
    let (_folder, pack) = packed();
    // What the host must find: indices that the firmware owns, while it cannot put them right.
    for word in [TO_HOST_HEAD, TO_DSP_TAIL] {
        let (mut session, outside) = session(&simulator, &pack);
        outside.signal("STOP");
        outside.scribble(word, outside.word(word).wrapping_add(100_000));
        let begun = Instant::now();
        let error = pass(&mut session);
        assert_eq!(error.code, "protocol", "word {word}: {error}");
        assert!(begun.elapsed() < SOON, "word {word}: {:?}", begun.elapsed());
        assert!(session.close().is_err());
        assert!(outside.gone());
    }
    // What the firmware must find: indices that the host owns.
    for word in [TO_DSP_HEAD, TO_HOST_TAIL] {
        let (mut session, outside) = session(&simulator, &pack);
        quiet(&outside);
        outside.scribble(word, outside.word(word).wrapping_add(100_000));
        // The host writes its head anew with the next message; the firmware looks before that.
        thread::sleep(Duration::from_millis(200));
        let begun = Instant::now();
        // It says so where a ring is left that carries it; otherwise the heartbeat tells.
        let error = pass(&mut session);
        assert!(["protocol", "silent"].contains(&error.code), "word {word}: {error}");
        assert!(begun.elapsed() < SILENCE + SLACK, "word {word}: {:?}", begun.elapsed());
        assert!(session.close().is_err());
        assert!(outside.gone());
    }
}

#[test]
fn more_shared_memory_than_the_address_space_has_is_refused() {
    let Some(simulator) = simulator() else { return };
    let mut sim = Sim::open(&simulator).expect("a domain");
    let file = sim.memory_file().expect("the memory is a file").try_clone_to_owned().expect("a descriptor");
    let file = std::fs::File::from(file);
    // Five pages of segments at the start of a sparse file; what is mapped is the file.
    let block = [MEMORY_FD, 1, 1, 1, 1, 1].map(i32::to_le_bytes).concat();
    let mut attach = |mebibytes: u64| {
        file.set_len(mebibytes << 20).expect("a sparse file");
        let returned = sim.invoke(sim.handle(), ATTACH, &[&block], &[], &[]).expect("an answer");
        from_return(returned.value)
    };
    assert_eq!(attach(3001), Some(Status::NoMemory));
    assert_eq!(attach(2048), Some(Status::Ok), "what fits is mapped");
}

#[test]
fn handles_that_were_never_opened_and_calls_of_another_shape_are_refused() {
    let Some(simulator) = simulator() else { return };
    let mut sim = Sim::open(&simulator).expect("a domain");
    let lengths = [1u32, REPLY_BYTES as u32].map(u32::to_le_bytes).concat();
    let capacities = [4, REPLY_BYTES as u32];
    let status = |returned: Returned| from_return(returned.value);
    let own = sim.handle();
    for handle in [0, 1, own ^ 1, own ^ 1 << 16, own ^ 1 << 40, u64::MAX] {
        let call = sim.invoke(handle, CALL, &[&lengths, &[0]], &capacities, &[]).expect("an answer");
        assert_eq!(status(call), Some(Status::BadHandle), "{handle:#x}");
        let attach = sim.invoke(handle, ATTACH, &[&[1; 24]], &[], &[]).expect("an answer");
        assert_ne!(attach.value, 0, "{handle:#x}");
        let close = sim.invoke(own, CLOSE, &[], &[], &[handle]).expect("an answer");
        assert_eq!(status(close), Some(Status::BadHandle), "{handle:#x}");
    }
    let short = sim.invoke(own, CALL, &[&lengths[..7], &[0]], &capacities, &[]).expect("an answer");
    assert_eq!(short.value, BAD_ARGUMENTS);
    let beyond = [2u32, 8].map(u32::to_le_bytes).concat();
    let beyond = sim.invoke(own, CALL, &[&beyond, &[0]], &capacities, &[]).expect("an answer");
    assert_ne!(beyond.value, 0, "more bytes than the buffer has");
    let other = sim.invoke(own, scalars(3, 1, 0, 0, 0), &[&lengths], &[], &[]).expect("an answer");
    assert_eq!(other.value, BAD_ARGUMENTS);
    let unknown = sim.invoke(own, scalars(9, 1, 0, 0, 0), &[&lengths], &[], &[]).expect("an answer");
    assert_eq!(unknown.value, UNKNOWN_METHOD);
    let nothing = sim.invoke(own, ATTACH, &[&[0xff; 24]], &[], &[]).expect("an answer");
    assert_ne!(nothing.value, 0, "a descriptor that is no buffer");
    let hello = sim.call(&call::Request::Hello { protocol: estream_idl::PROTOCOL });
    assert!(hello.is_ok(), "the session is as it was: {hello:?}");
}
