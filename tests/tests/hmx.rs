//! Hexagon's kernels over the models of its units (`hmx-model`): near llama.cpp, the same bytes for every setting, and the
//! skel's bytes.
//!
//! Halves round more than f32, so a choice of experts that hangs on less may fall otherwise, and everything after it
//! differs: a prompt is held to the bound up to its first flip, and a flip is allowed only where the oracle's own choice is
//! doubtful. Each setting runs our own golden; `ESTREAM_FULL=1` runs the whole set.

use estream::{Arena, Banks, Device, KernelSet, Options, Simulator};
use estream_tests::compare::{compare, kl};
use estream_tests::fixture::{self, Golden};
use estream_tests::native::{assert_same, logits};
use estream_tests::oracle::Model;
use estream_tests::program;
use estream_tests::simulator::{simulator, skel};
use ndarray::s;

/// The bound of the mean KL over positions before the first flip.
const KL: f64 = 2e-5;
/// The oracle's margin up to which a choice may fall otherwise.
const MARGIN: f64 = 2e-4;
/// Where more is allowed, and known: lfm2moe's logistic gate is up to four times as steep in its logit as a softmax over
/// sixteen experts, and its convolution multiplies three products that are each rounded to halves. Measured: 6.4e-4.
const WIDER: (&str, f64) = ("lfm2moe", 8e-4);
/// What no rounding of halves reaches, and every flip does.
const FLIP: f64 = 5e-4;

fn options() -> Options {
    Options::new().kernels(KernelSet::HMX_MODEL).arena(Arena::Group(4, Some(Banks::Count(3)))).threads(2)
}

/// The goldens to run: the families of the shared folder, or our own.
fn goldens() -> Vec<Golden> {
    if fixture::full() { fixture::goldens() } else { fixture::families() }
}

#[test]
fn goldens_are_near_up_to_their_first_flip_and_flip_no_firm_route() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let mut failed = Vec::new();
    for golden in goldens() {
        let pack = fixture::pack(&golden.gguf, folder.path(), None);
        let model = Model::open(&golden.gguf).expect("a golden");
        let prompt = &golden.prompts[0];
        let oracle = model.forward(&prompt.ids);
        let ours = logits(&pack, &[&prompt.ids], options()).remove(0);
        let mut rows = oracle.logits.rows().into_iter().zip(ours.rows());
        let flip = rows.position(|(p, q)| kl(p, q) > FLIP).unwrap_or(prompt.ids.len());
        // The choice that fell otherwise is among those of that position, in some layer.
        let margins = oracle.routing.iter().filter_map(|layer| layer.get(flip)).map(|choice| choice.margin);
        let margin = margins.fold(f64::INFINITY, f64::min);
        let before = s![..flip.max(1), ..];
        let agreement = compare(oracle.logits.slice(before), ours.slice(before));
        let what = format!("{}: first flip at {flip} of {}", golden.name, prompt.ids.len());
        let what = format!("{what}, whose margin is {margin:.1e}; before it {agreement:?}");
        println!("{what}");
        let allowed = if golden.name.starts_with(WIDER.0) { WIDER.1 } else { MARGIN };
        let firm = oracle.first_doubtful(allowed).unwrap_or(prompt.ids.len());
        if flip < firm || flip == 0 || agreement.kl_mean.is_nan() || agreement.kl_mean > KL {
            failed.push(what);
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn no_setting_changes_a_byte() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let ids: Vec<u32> = golden.prompts[0].ids.iter().copied().cycle().take(110).collect();
    let resident = options().arena(Arena::Group(16, Some(Banks::All))).depth(1).threads(1);
    let reference = logits(&pack, &[&ids], resident).remove(0);
    let settings = [
        (1, Banks::Count(1), 1, 1, 32, 2 << 20),
        (2, Banks::Count(3), 2, 2, 64, 4 << 20),
        (8, Banks::Count(2), 4, 3, 96, 8 << 20),
        (4, Banks::All, 2, 2, 0, 1 << 20),
    ];
    for (group, banks, depth, threads, rows, scratch) in settings {
        let options = options()
            .arena(Arena::Group(group, Some(banks)))
            .depth(depth)
            .threads(threads)
            .row_chunk(rows)
            .scratch(scratch);
        let other = logits(&pack, &[&ids], options.clone()).remove(0);
        assert_same(&reference, &other, options);
    }
    let together: [&[u32]; 3] = [&ids[..1], &ids[10..80], &ids[..33]];
    let packed = logits(&pack, &together, options());
    for (ids, packed) in together.iter().zip(&packed) {
        assert_same(&logits(&pack, &[ids], options())[0], packed, ids.len());
    }
}

#[test]
fn a_scratchpad_that_is_too_small_is_refused_with_the_bytes_needed() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = fixture::pack(&fixture::own().gguf, folder.path(), None);
    let open = |bytes: u32| {
        estream::Engine::open(&pack, options().scratch(bytes).max_tokens(64))
            .map(|engine| engine.plan().scratch_bytes)
    };
    let refused = open(16 << 10).expect_err("16 KiB hold no tile of anything");
    assert_eq!(refused.code, "scratch-too-small");
    assert_eq!(open(2 << 20).expect("2 MiB are enough"), 2 << 20);
}

#[test]
fn the_program_names_the_kernels_and_their_activations() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let mut command = program::estream();
    command.arg("run").arg(&pack).args(["--tokens", "1,2,3", "--kernels", "hmx-model"]);
    let report = program::report(&mut command);
    assert_eq!(
        (report["kernels"].as_str(), report["activations"].as_str()),
        (Some("hmx-model"), Some("fp16"))
    );
}

/// The skel's kernels in the simulator, whose models serve the words that the emulator does not know.
#[test]
fn the_skel_computes_the_models_bytes() {
    let Some(simulator) = simulator() else { return };
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let ids = &golden.prompts[0].ids[..if fixture::full() { golden.prompts[0].ids.len() } else { 8 }];
    let reference = logits(&pack, &[ids], options()).remove(0);
    let vtcms: &[u32] = if fixture::full() { &[8 << 20, 2 << 20] } else { &[4 << 20] };
    for &vtcm in vtcms {
        let device = Device::Sim(Simulator { vtcm, ..simulator.clone() });
        let options = options().device(device).kernels(KernelSet::HEXAGON);
        assert_same(&reference, &logits(&pack, &[ids], options).remove(0), vtcm);
    }
}

/// v75 and later add products in larger groups, v79 and later compute floats by IEEE: near v73, and not its bits.
#[test]
fn the_skels_of_other_revisions_are_near() {
    let Some(simulator) = simulator() else { return };
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let ids = &golden.prompts[0].ids[..4];
    let reference = logits(&pack, &[ids], options()).remove(0);
    for architecture in ["v75", "v79", "v81"] {
        let Some(skel) = skel(architecture) else {
            eprintln!("skipped: the skel of {architecture} (not built)");
            continue;
        };
        let device = Device::Sim(Simulator { skel, ..simulator.clone() });
        let options = options().device(device).kernels(KernelSet::HEXAGON);
        let other = logits(&pack, &[ids], options).remove(0);
        let agreement = compare(reference.view(), other.view());
        println!("{architecture}: {agreement:?}");
        assert!(agreement.kl_mean <= KL, "{architecture}: {agreement:?}");
    }
}
