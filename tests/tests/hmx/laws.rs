//! Law 1 on the matrix path: the same bytes whatever the chunk, the VTCM, the arena, the depth and the threads.
//!
//! Our own golden runs a pairwise cover of the settings over the models, and two of them in the simulator;
//! `ESTREAM_FULL=1` runs the whole grid and the whole cover.

use crate::prompts::options;
use estream::{Arena, Banks, Device, KernelSet, Options, Simulator};
use estream_tests::fixture;
use estream_tests::native::{assert_same, logits};
use estream_tests::pairwise::{cover, grid};
use estream_tests::simulator::simulator;

const CHUNKS: [u32; 3] = [32, 64, 96];
const VTCMS: [u32; 3] = [2 << 20, 4 << 20, 8 << 20];
const DEPTHS: [u32; 2] = [1, 3];
const GROUPS: [u32; 3] = [1, 4, 16];
const BANKS: [Banks; 3] = [Banks::Count(1), Banks::Count(3), Banks::All];
const THREADS: [u32; 2] = [1, 3];
const LEVELS: [usize; 6] =
    [CHUNKS.len(), VTCMS.len(), DEPTHS.len(), GROUPS.len(), BANKS.len(), THREADS.len()];

/// Two ids in turns: a router that sees little else sends more rows than a chunk of 32 to a few experts.
fn prompt(tokens: usize) -> Vec<u32> {
    let ids = &fixture::own().prompts[0].ids;
    (0..tokens).map(|token| ids[usize::from(token % 9 == 4)]).collect()
}

/// The options of a setting, and its budget.
fn set(setting: &[usize]) -> (Options, u32) {
    let &[c, v, q, g, b, t] = setting else { panic!("six settings") };
    let options = options().arena(Arena::Group(GROUPS[g], Some(BANKS[b])));
    (options.depth(DEPTHS[q]).threads(THREADS[t]).row_chunk(CHUNKS[c]), VTCMS[v])
}

fn resident() -> Options {
    options().arena(Arena::Group(16, Some(Banks::All))).depth(1).threads(1)
}

#[test]
fn no_setting_changes_a_byte() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = fixture::pack(&fixture::own().gguf, folder.path(), None);
    let ids = prompt(70);
    let reference = logits(&pack, &[&ids], resident()).remove(0);
    let settings = if fixture::full() { grid(&LEVELS) } else { cover(&LEVELS) };
    for setting in &settings {
        let (options, vtcm) = set(setting);
        let options = options.scratch(vtcm);
        assert_same(&reference, &logits(&pack, &[&ids], options.clone()).remove(0), options);
    }
    println!("{} settings, the same bytes", settings.len());
}

#[test]
fn a_request_alone_is_the_request_among_others() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let ids: Vec<u32> = golden.prompts[0].ids.iter().copied().cycle().take(110).collect();
    let together: [&[u32]; 3] = [&ids[..1], &ids[10..80], &ids[..33]];
    let packed = logits(&pack, &together, options());
    for (ids, packed) in together.iter().zip(&packed) {
        assert_same(&logits(&pack, &[ids], options())[0], packed, ids.len());
    }
}

#[test]
fn no_setting_changes_a_byte_in_the_simulator() {
    let Some(simulator) = simulator() else { return };
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = fixture::pack(&fixture::own().gguf, folder.path(), None);
    let ids = prompt(34);
    let reference = logits(&pack, &[&ids], resident()).remove(0);
    // Two chunks and one, the smallest and the largest VTCM, one thread and three, the arena in pieces and whole.
    let few = [[0, 0, 1, 1, 1, 1], [2, 2, 0, 2, 2, 0]].map(Vec::from);
    let settings = if fixture::full() { cover(&LEVELS) } else { few.to_vec() };
    for setting in &settings {
        let (options, vtcm) = set(setting);
        let device = Device::Sim(Simulator { vtcm, ..simulator.clone() });
        let options = options.device(device).kernels(KernelSet::HEXAGON);
        assert_same(&reference, &logits(&pack, &[&ids], options.clone()).remove(0), options);
    }
}
