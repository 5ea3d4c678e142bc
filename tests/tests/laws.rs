//! Law 1, streamed = resident, bit for bit: whatever the arena, the group, the depth, the threads, the chunk or the
//! budget, the logits of a pack and a backend are the same bytes.
//!
//! One golden of each family runs a pairwise cover of the settings (by scalar kernels only our own); `ESTREAM_FULL=1` runs
//! the whole grid on all. The reference keeps every group
//! of every layer resident and runs on one thread with everything else left to the defaults. Runs are made through the
//! library in this process, since hundreds of them are made.

use estream::{Arena, Banks, Engine, KernelSet, Options, Request};
use estream_tests::collect::Collector;
use estream_tests::fixture::{self, Golden};
use estream_tests::native::{assert_same, backends, logits, slow};
use estream_tests::pairwise::{cover, grid};

const GROUPS: [u32; 5] = [1, 2, 4, 8, 16];
const BANKS: [Banks; 4] = [Banks::Count(1), Banks::Count(2), Banks::Count(3), Banks::All];
const DEPTHS: [u32; 3] = [1, 2, 4];
const THREADS: [u32; 2] = [1, 2];
/// Rows of a chunk; 0 leaves it to the planner.
const CHUNKS: [u32; 4] = [0, 32, 64, 96];
/// Scratch budgets in bytes.
const BUDGETS: [u32; 3] = [2 << 20, 4 << 20, 8 << 20];
/// Tokens of the prompt: the longer one gives a common expert more rows than a chunk, a rare one fewer.
const TOKENS: [usize; 2] = [1, 200];

fn resident(kernels: KernelSet) -> Options {
    Options::new().kernels(kernels).arena(Arena::Group(16, Some(Banks::All))).depth(1).threads(1)
}

/// The golden's ids over and over: the law needs no reference but the product itself.
fn prompt(golden: &Golden, tokens: usize) -> Vec<u32> {
    golden.prompts[0].ids.iter().copied().cycle().take(tokens).collect()
}

#[test]
fn streamed_is_resident_for_every_setting() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let levels =
        [GROUPS.len(), BANKS.len(), DEPTHS.len(), THREADS.len(), CHUNKS.len(), BUDGETS.len(), TOKENS.len()];
    let settings = if fixture::full() { grid(&levels) } else { cover(&levels) };
    println!("{} settings", settings.len());
    let goldens = if fixture::full() { fixture::goldens() } else { fixture::families() };
    for golden in goldens {
        let pack = fixture::pack(&golden.gguf, folder.path(), None);
        for (kernels, _) in backends() {
            if slow(kernels) && !fixture::full() && !fixture::is_own(&golden) {
                continue;
            }
            let prompts = TOKENS.map(|tokens| prompt(&golden, tokens));
            let references = prompts.each_ref().map(|ids| logits(&pack, &[ids], resident(kernels)).remove(0));
            for setting in &settings {
                let &[g, b, q, t, c, s, n] = setting.as_slice() else { panic!("seven settings") };
                let options = Options::new()
                    .kernels(kernels)
                    .arena(Arena::Group(GROUPS[g], Some(BANKS[b])))
                    .depth(DEPTHS[q])
                    .threads(THREADS[t])
                    .row_chunk(CHUNKS[c])
                    .scratch(BUDGETS[s]);
                let what = (&golden.name, prompts[n].len(), &options);
                let streamed = logits(&pack, &[&prompts[n]], options.clone()).remove(0);
                assert_same(&references[n], &streamed, what);
            }
            println!("{} {}: {} settings, the same bytes", golden.name, kernels.name(), settings.len());
        }
    }
}

#[test]
fn an_arena_of_one_slot_is_enough_and_less_is_refused_with_the_bytes_of_one() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let ids = &prompt(&golden, 96)[..];
    for (kernels, _) in backends() {
        let reference = logits(&pack, &[ids], resident(kernels)).remove(0);
        let model = Engine::open(&pack, resident(kernels)).expect("the engine opens").model().clone();
        for bytes in [model.record_bytes, 2 * model.record_bytes - 1, 5 * model.record_bytes] {
            let options = Options::new().kernels(kernels).arena(Arena::Bytes(bytes));
            assert_same(&reference, &logits(&pack, &[ids], options)[0], bytes);
        }
        for bytes in [0, 1, model.record_bytes - 1] {
            let options = Options::new().kernels(kernels).arena(Arena::Bytes(bytes));
            let error = Engine::open(&pack, options).expect_err("no slot fits");
            assert_eq!(error.code, "arena-too-small");
            assert!(error.message.contains(&model.record_bytes.to_string()), "{error}");
        }
    }
}

#[test]
fn a_request_alone_is_the_request_among_others() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let ids = &prompt(&golden, 96)[..];
    let together: [&[u32]; 4] = [&ids[..1], &ids[10..80], &ids[..33], &ids[40..41]];
    for (kernels, _) in backends() {
        let options =
            || Options::new().kernels(kernels).arena(Arena::Group(2, Some(Banks::Count(3)))).threads(2);
        let packed = logits(&pack, &together, options());
        for (index, ids) in together.iter().enumerate() {
            assert_same(&logits(&pack, &[ids], resident(kernels))[0], &packed[index], index);
        }
    }
}

#[test]
fn an_engine_gives_the_same_bytes_at_every_call() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let ids = &prompt(&golden, 96)[..];
    let options = Options::new().arena(Arena::Group(4, Some(Banks::Count(2)))).rows(true).max_tokens(96);
    let mut engine = Engine::open(&pack, options).expect("the engine opens");
    let mut calls = [ids, &ids[..1], ids].map(|ids| {
        let mut collector = Collector::new(&[ids.len()], engine.model().vocab as usize);
        engine.prefill_into(&[Request::new(ids).with_rows()], &mut collector).expect("the pass runs");
        collector.finish().remove(0)
    });
    let first = std::mem::take(&mut calls[0]);
    assert_same(&first, &calls[2], "the third call");
    assert_eq!(first.row(0), calls[1].row(0), "a short call between them");
}

#[test]
fn settings_take_effect() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let golden = fixture::own();
    let pack = fixture::pack(&golden.gguf, folder.path(), None);
    let options = |group, banks| Options::new().arena(Arena::Group(group, Some(banks))).max_tokens(256);
    let open = |options| Engine::open(&pack, options).expect("the engine opens");
    let plan = *open(options(4, Banks::Count(3)).depth(4).threads(2).row_chunk(64)).plan();
    assert_eq!((plan.group, plan.banks, plan.depth, plan.threads, plan.row_chunk), (4, 3, 3, 2, 64));
    let plan = *open(options(2, Banks::All).depth(2).threads(1)).plan();
    assert_eq!((plan.group, plan.banks, plan.depth, plan.threads), (2, 32, 2, 1));
    let engine = open(options(1, Banks::Count(1)));
    assert_eq!(engine.memory().arena_bytes, engine.model().record_bytes);
}
