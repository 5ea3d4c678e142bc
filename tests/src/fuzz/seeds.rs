//! Sound inputs, from which fuzzing starts: made here and not kept, so that they follow the formats.

use crate::codecs::{self, Rows};
use crate::fixture;
use crate::gguf::Bytes;
use estream_idl::PROTOCOL;
use estream_idl::call::{Config, KernelSet, Prepare, Request};
use estream_idl::pack::Header;
use zerocopy::FromBytes;

/// An input: its target, its name and its bytes.
pub type Seed = (&'static str, &'static str, Vec<u8>);

/// All seeds; packs are made in a folder below `scratch`.
///
/// # Panics
/// When a sound model is refused.
#[must_use]
pub fn seeds(scratch: &str) -> Vec<Seed> {
    let rows = |name: &str| codecs::rows(name).swap_remove(0);
    let first = |name: &str, count: usize| rows(name).cycle(count);
    let [plain, mixed]: [Rows; 2] = [first("F16", 4), first("Q4_1", 32)];
    let models = [codecs::model(&plain, false), codecs::model(&mixed, true)];
    let mut seeds: Vec<Seed> = vec![
        ("gguf", "plain", models[0].write(32)),
        ("gguf", "deep", models[1].write(64)),
        ("gguf", "fused", models[0].fused_gate_and_up().write(32)),
        ("gguf", "each", models[0].one_tensor_an_expert().write(32)),
        ("gguf", "keys", keys()),
    ];
    let shards: Vec<Vec<u8>> = models[0].split(&[0, 0, 9]).iter().map(|shard| shard.write(32)).collect();
    let mut split = vec![shards.len() as u8];
    for shard in &shards[..2] {
        split.extend((shard.len() as u32).to_le_bytes());
        split.extend(shard);
    }
    split.extend(&shards[2]);
    seeds.push(("split", "three", split));
    seeds.push(("split", "one", [&[1], models[0].write(32).as_slice()].concat()));
    for (name, model) in ["plain", "deep"].into_iter().zip(&models) {
        seeds.extend(of_pack(name, &packed(&model.write(32), scratch)));
    }
    seeds.extend([
        ("call", "hello", encoded(&Request::Hello { protocol: PROTOCOL })),
        ("call", "stop", encoded(&Request::Stop)),
        ("ring", "load-and-return", vec![0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 4]),
        ("ring", "two-loads", [&[0; 10][..], &[2, 1, 0, 0, 0, 4, 2, 0, 0, 0, 0, 4, 4]].concat()),
        ("ring", "commands", [&[1, 1, 0, 0, 0][..], &[9; 60], &[4, 1, 2, 0, 0, 0], &[7; 60], &[4]].concat()),
        ("ring", "impossible-index", vec![3, 0, 0, 0, 0, 255, 255, 255, 255, 4]),
    ]);
    seeds
}

/// A key of every type.
fn keys() -> Vec<u8> {
    let mut bytes = Bytes::header(0, 4).text_key("general.architecture", "olmoe").u32_key("a.number", 7);
    bytes = bytes.text("a.list").u32(9).u32(8).u64(2).text("one").text("two");
    bytes.text("a.vector").u32(9).u32(5).u64(3).u32(1).u32(2).u32(3).0
}

fn packed(model: &[u8], scratch: &str) -> Vec<u8> {
    let folder = fixture::folder(scratch);
    let gguf = folder.path().join("seed.gguf");
    std::fs::write(&gguf, model).expect("the seed can be written");
    std::fs::read(fixture::pack(&gguf, folder.path(), None)).expect("the pack")
}

/// The tables of a pack without its weights, and the calls that its tables go into.
fn of_pack(name: &'static str, pack: &[u8]) -> [Seed; 3] {
    let header = Header::read_from_prefix(pack).expect("a header").0;
    let bytes = |at: u64, bytes: u32| &pack[at as usize..][..bytes as usize];
    let recipe = bytes(header.recipe.file, header.recipe.bytes);
    let directory = bytes(header.directory.file, header.directory.bytes);
    let config = Config {
        max_tokens: 64,
        max_requests: 2,
        max_outputs: 2,
        top_k: 5,
        rows: true,
        group: 1,
        banks: 2,
        depth: 1,
        threads: 1,
        kernels: KernelSet::SCALAR,
        scratch: 0,
        row_chunk: 0,
        streaming: estream_idl::streaming::Streaming::default(),
    };
    let prepare = Prepare { config, recipe, directory };
    let (plan, start) =
        if name == "deep" { ("plan-deep", "start-deep") } else { ("plan-plain", "start-plain") };
    [
        ("pack", name, pack[..header.dense.file as usize].to_vec()),
        ("call", plan, encoded(&Request::Plan(prepare))),
        ("call", start, encoded(&Request::Start(prepare))),
    ]
}

fn encoded(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 10];
    postcard::to_slice(request, &mut bytes).expect("a small request").to_vec()
}
