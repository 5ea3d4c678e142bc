//! Golden models and the packs made of them.
//!
//! `tests/data` is always there. The wider set lies beside the workspace or where `ESTREAM_SHARED` says; without it tests
//! say "skipped:" and run on what they have, and `ESTREAM_REQUIRE_SHARED=1` turns that into a failure.

use crate::compare;
use crate::random::Random;
use ndarray::{Array2, Axis};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Goldens of the wider set whose architecture and types the packer takes today.
const SHARED: [&str; 7] =
    ["olmoe", "olmoe-skew", "olmoe-q8head", "qwen3moe", "qwen3moe-skew", "mixtral", "mixtral-q8"];

/// A model with a prompt and llama.cpp's logits for it.
#[derive(Clone, Debug)]
pub struct Golden {
    /// The file's name without extensions.
    pub name: String,
    /// The model.
    pub gguf: PathBuf,
    /// Prompts and logits, the short one first.
    pub prompts: Vec<Prompt>,
}

/// A prompt and the logits for it.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Positions that there are logits for.
    pub positions: Vec<usize>,
    npy: PathBuf,
}

impl Prompt {
    /// llama.cpp's logits, `[positions, vocabulary]`.
    ///
    /// # Panics
    /// When the file is damaged.
    #[must_use]
    pub fn logits(&self) -> Array2<f32> {
        compare::read_npy(&self.npy).unwrap_or_else(|error| panic!("{}: {error}", self.npy.display()))
    }

    /// The rows of full logits that llama.cpp's are for.
    #[must_use]
    pub fn select(&self, full: &Array2<f32>) -> Array2<f32> {
        full.select(Axis(0), &self.positions)
    }
}

impl Golden {
    /// The golden `name` in `folder`, with its long prompt where there is one.
    ///
    /// # Panics
    /// When a file is missing or damaged.
    #[must_use]
    pub fn load(folder: &Path, name: &str) -> Self {
        let file = |suffix: &str| folder.join(format!("{name}.{suffix}"));
        let ids = numbers(&file("ids.txt"));
        let positions = (0..ids.len()).collect();
        let mut prompts = vec![Prompt { ids, positions, npy: file("logits.npy") }];
        if file("long.npy").exists() {
            let positions =
                numbers(&file("long.pos.txt")).into_iter().map(|position| position as usize).collect();
            prompts.push(Prompt { ids: numbers(&file("long.ids.txt")), positions, npy: file("long.npy") });
        }
        Self { name: name.into(), gguf: file("gguf"), prompts }
    }
}

fn numbers(path: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.trim().split(',').map(|number| number.trim().parse().expect("a number")).collect()
}

/// The golden of `tests/data`.
#[must_use]
pub fn own() -> Golden {
    Golden::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data"), "olmoe")
}

/// The folder of shared material, or `None` (said aloud) where there is none.
///
/// # Panics
/// When there is none and `ESTREAM_REQUIRE_SHARED=1`.
#[must_use]
pub fn shared() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let folder = std::env::var_os("ESTREAM_SHARED").map_or(beside, PathBuf::from);
    if folder.join("goldens/random").is_dir() {
        return Some(folder);
    }
    let required = std::env::var_os("ESTREAM_REQUIRE_SHARED").is_some_and(|value| value == "1");
    assert!(!required, "{} has no goldens, and ESTREAM_REQUIRE_SHARED=1", folder.display());
    eprintln!("skipped: the goldens of {} (not there)", folder.display());
    None
}

/// All goldens that can be packed: those of the shared folder, or else our own. `ESTREAM_GOLDENS=a,b` takes these alone,
/// so that a whole grid can be cut over several runs.
#[must_use]
pub fn goldens() -> Vec<Golden> {
    let asked = std::env::var("ESTREAM_GOLDENS").ok();
    let wanted =
        |name: &&&str| asked.as_ref().is_none_or(|list| list.split(',').any(|asked| asked == **name));
    match shared() {
        Some(folder) => {
            let load = |name: &&str| Golden::load(&folder.join("goldens/random"), name);
            SHARED.iter().filter(wanted).map(load).collect()
        }
        None => vec![own()],
    }
}

/// Whether the whole grids are wanted in place of covers.
#[must_use]
pub fn full() -> bool {
    std::env::var_os("ESTREAM_FULL").is_some_and(|value| value == "1")
}

/// A folder that vanishes with the value, below `parent` (a test's `CARGO_TARGET_TMPDIR`: a real disk, where the
/// system's temporary folder may be memory that refuses O_DIRECT).
///
/// # Panics
/// When it cannot be made.
#[must_use]
pub fn folder(parent: &str) -> TempDir {
    std::fs::create_dir_all(parent).expect("the parent folder can be made");
    TempDir::new_in(parent).expect("a folder can be made")
}

/// A random storage order for `layers` of `experts`, as the packer's `--order` takes it.
#[must_use]
pub fn random_order(layers: usize, experts: usize, seed: u64) -> String {
    let mut random = Random::new(seed);
    let lists: Vec<_> = (0..layers).map(|_| random.permutation(experts)).collect();
    serde_json::Value::from(lists).to_string()
}

/// Packs `gguf` into `folder` through the library, with an order or without.
///
/// # Panics
/// When it is refused.
#[must_use]
pub fn pack(gguf: &Path, folder: &Path, order: Option<&str>) -> PathBuf {
    let stem = gguf.file_stem().unwrap_or_default().to_string_lossy();
    let output = folder.join(format!("{stem}{}.estream", if order.is_some() { "-ordered" } else { "" }));
    let order = order.map(|text| {
        let path = folder.join("order.json");
        std::fs::write(&path, text).expect("the order can be written");
        path
    });
    let options = estream_pack::Options { order, progress: &|_, _| () };
    estream_pack::convert(gguf, &output, &options)
        .unwrap_or_else(|error| panic!("{}: {error}", gguf.display()));
    output
}
