//! Golden models and the packs made of them.
//!
//! `tests/data` is always there. The wider set lies beside the workspace or where `ESTREAM_SHARED` says; without it tests
//! say "skipped:" and run on what they have, and `ESTREAM_REQUIRE_SHARED=1` turns that into a failure.

use crate::compare;
use crate::random::Random;
use ndarray::{Array2, Axis};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Models of `tests/data`.
const OWN: [&str; 3] = ["olmoe", "ernie4_5-moe", "dots1"];
/// The wider set of random models.
const SHARED: [&str; 13] = [
    "olmoe",
    "olmoe-skew",
    "olmoe-q8head",
    "qwen3moe",
    "qwen3moe-skew",
    "mixtral",
    "mixtral-q8",
    "lfm2moe",
    "lfm2moe-skew",
    "deepseek2-new",
    "deepseek2-old",
    "deepseek2-27l",
    "deepseek2-q4mla",
];

/// One of [`SHARED`] for each family, latent attention in both layouts of its tensors.
const FAMILIES: [&str; 6] = ["olmoe", "qwen3moe", "mixtral", "lfm2moe", "deepseek2-new", "deepseek2-old"];

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

/// Our own golden.
#[must_use]
pub fn own() -> Golden {
    data(OWN[0])
}

fn data(name: &str) -> Golden {
    Golden::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data"), name)
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

/// All random models. `ESTREAM_GOLDENS=a,b` takes these alone, so that a whole grid can be cut over several runs.
#[must_use]
pub fn goldens() -> Vec<Golden> {
    chosen(&SHARED)
}

/// One random model of each family; `ESTREAM_GOLDENS` is heeded too.
#[must_use]
pub fn families() -> Vec<Golden> {
    chosen(&FAMILIES)
}

/// Models of these names, and our own that are not among them by another copy.
fn chosen(names: &[&str]) -> Vec<Golden> {
    let folder = shared().map(|shared| shared.join("goldens/random"));
    let asked = std::env::var("ESTREAM_GOLDENS").ok();
    let wanted = |name: &str| asked.as_ref().is_none_or(|list| list.split(',').any(|asked| asked == name));
    let names = if asked.is_some() { &SHARED[..] } else { names };
    let mut goldens = Vec::new();
    if let Some(folder) = folder {
        goldens.extend(names.iter().filter(|name| wanted(name)).map(|name| Golden::load(&folder, name)));
    }
    for name in OWN {
        if wanted(name) && goldens.iter().all(|golden| golden.name != name) {
            goldens.push(data(name));
        }
    }
    goldens
}

/// Whether a golden is one of our own.
#[must_use]
pub fn is_own(golden: &Golden) -> bool {
    OWN.contains(&golden.name.as_str())
}

/// The golden of this name, or `None` (said aloud) where it is not ours and there is no shared folder.
#[must_use]
pub fn golden(name: &str) -> Option<Golden> {
    if OWN.contains(&name) {
        return Some(data(name));
    }
    shared().map(|shared| Golden::load(&shared.join("goldens/random"), name))
}

/// The goldens that llama.cpp's own quantiser made, each of several types; none where there is no shared folder.
///
/// # Panics
/// When the folder holds less than it did.
#[must_use]
pub fn wild() -> Vec<Golden> {
    let Some(folder) = shared().map(|shared| shared.join("goldens/wild")) else { return Vec::new() };
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .expect("the goldens")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter_map(|name| name.strip_suffix(".gguf").map(str::to_owned))
        .collect();
    names.sort();
    assert!(names.len() >= 11, "{names:?}");
    names.iter().map(|name| Golden::load(&folder, name)).collect()
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

/// A random storage order for layers with so many experts each, as the packer's `--order` takes it.
#[must_use]
pub fn random_order(experts: &[usize], seed: u64) -> String {
    let mut random = Random::new(seed);
    let lists: Vec<_> = experts.iter().map(|&count| random.permutation(count)).collect();
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
