//! Files for the tests: a small sound GGUF that the crate itself makes, cut and bent byte by byte by each case.

use estream_pack::{Options, Report, Result, Shape, SynthFormat, SynthOptions, convert, synth};
use std::path::{Path, PathBuf};

/// No progress is shown.
pub fn quiet(_: u64, _: u64) {}

/// Two layers of width 64: small enough to be bent thousands of times.
pub fn small() -> Shape {
    Shape {
        layers: 2,
        width: 64,
        heads: 2,
        kv_heads: 2,
        head_width: 32,
        expert_width: 96,
        experts: 4,
        chosen: 2,
        vocab: 300,
        ..Shape::tiny()
    }
}

/// Writes a synthetic GGUF.
pub fn gguf(shape: Shape, path: &Path) {
    let options = SynthOptions {
        shape,
        layers: None,
        seed: 1,
        skew: 0.0,
        format: SynthFormat::Gguf,
        output: path.to_path_buf(),
        progress: &quiet,
    };
    synth(&options).expect("a sound shape is written");
}

/// Packs with the default options.
pub fn pack(input: &Path, output: &Path) -> Result<Report> {
    convert(input, output, &Options { order: None, progress: &quiet })
}

/// The folder with material that is not part of the repository, if it is there.
pub fn shared() -> Option<PathBuf> {
    let path = std::env::var_os("ESTREAM_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    if path.is_dir() {
        return Some(path);
    }
    assert!(
        std::env::var_os("ESTREAM_REQUIRE_SHARED").is_none_or(|v| v != "1"),
        "{} is missing",
        path.display()
    );
    eprintln!("skipped: {} is missing", path.display());
    None
}

/// A GGUF spelled out record by record, for files that no writer would make.
#[derive(Default)]
pub struct Raw {
    pub version: u32,
    pub tensor_count: Option<u64>,
    pub entry_count: Option<u64>,
    pub entries: Vec<Vec<u8>>,
    pub tensors: Vec<Vec<u8>>,
    pub data: Vec<u8>,
}

pub fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

impl Raw {
    pub fn new() -> Self {
        Self { version: 3, ..Self::default() }
    }

    /// Appends a key with a value given as its type number and bytes.
    pub fn entry(mut self, key: &str, number: u32, value: &[u8]) -> Self {
        self.entries.push([string(key.as_bytes()), number.to_le_bytes().to_vec(), value.to_vec()].concat());
        self
    }

    pub fn text(self, key: &str, value: &str) -> Self {
        let value = string(value.as_bytes());
        self.entry(key, 8, &value)
    }

    pub fn number(self, key: &str, value: u32) -> Self {
        self.entry(key, 4, &value.to_le_bytes())
    }

    pub fn tensor(mut self, name: &str, dims: &[u64], number: u32, offset: u64) -> Self {
        let dims_bytes: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
        self.tensors.push(
            [
                string(name.as_bytes()),
                (dims.len() as u32).to_le_bytes().to_vec(),
                dims_bytes,
                number.to_le_bytes().to_vec(),
                offset.to_le_bytes().to_vec(),
            ]
            .concat(),
        );
        self
    }

    pub fn bytes(&self, alignment: usize) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        bytes.extend(self.entry_count.unwrap_or(self.entries.len() as u64).to_le_bytes());
        bytes.extend(self.entries.concat());
        bytes.extend(self.tensors.concat());
        if !self.data.is_empty() {
            bytes.resize(bytes.len().next_multiple_of(alignment), 0);
            bytes.extend(&self.data);
        }
        bytes
    }
}

/// Where `pattern` stands first.
pub fn find(bytes: &[u8], pattern: &[u8]) -> usize {
    bytes.windows(pattern.len()).position(|window| window == pattern).expect("the pattern is there")
}
