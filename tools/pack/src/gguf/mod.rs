//! GGUF, versions 2 and 3: the header, where each value stands, and tensors whose bytes are known to be in the file.
//!
//! A file is a claim until checked. After [`Gguf::read`] every tensor has a known type, a shape whose product fits, and a
//! byte range inside the file that overlaps no other; every count was compared with the bytes left before it was
//! believed. Nothing of the tensor data is read.

mod cursor;
mod merge;
mod tensors;
pub mod types;
pub(crate) mod value;
pub(crate) mod write;

use crate::error::{Error, Result};
use crate::source::Source;
use cursor::Cursor;
use std::collections::HashMap;
pub use tensors::Tensor;
pub(crate) use tensors::shape;
pub use value::{Entry, Value};

const MAGIC: [u8; 4] = *b"GGUF";
/// Limits of a sane file, far above any model: they bound the reader's memory, not the format.
const MAX_ENTRIES: u64 = 1 << 16;
const MAX_TENSORS: u64 = 1 << 16;
const KEY_LIMIT: usize = 4096;
const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 20;

/// The metadata of a GGUF file, or of a model that is split into several.
pub struct Gguf<'a> {
    /// The files; keys are the first's.
    sources: Vec<&'a dyn Source>,
    /// The format version.
    pub version: u32,
    /// Keys and values, in file order.
    pub entries: Vec<Entry>,
    /// Tensors, in file order.
    pub tensors: Vec<Tensor>,
    keys: HashMap<String, usize>,
    names: HashMap<String, usize>,
}

impl<'a> Gguf<'a> {
    /// Reads and checks everything but the tensors' data.
    ///
    /// # Errors
    /// An input error that names the part of the file, or the tensor, and the byte offset.
    pub fn read(source: &'a dyn Source) -> Result<Self> {
        let mut cursor = Cursor::new(source, 0);
        let version = read_version(&mut cursor)?;
        let counts_at = cursor.position();
        let (tensor_count, entry_count) = (cursor.u64()?, cursor.u64()?);
        // A tensor's record takes 24 bytes at least, a key's 13.
        check_count("tensors", tensor_count, 24, MAX_TENSORS, &cursor).map_err(|e| e.at(counts_at))?;
        check_count("keys", entry_count, 13, MAX_ENTRIES, &cursor).map_err(|e| e.at(counts_at + 8))?;

        let mut gguf = Self {
            sources: vec![source],
            version,
            entries: Vec::new(),
            tensors: Vec::new(),
            keys: HashMap::new(),
            names: HashMap::new(),
        };
        for index in 0..entry_count {
            gguf.read_entry(&mut cursor, index)?;
        }
        let alignment = gguf.alignment()?;
        // Types that nobody can read are refused at the end, so that the refusal names every tensor that has one.
        let mut unreadable: Option<Error> = None;
        for index in 0..tensor_count {
            let tensor = match Tensor::parse(&mut cursor, index, alignment) {
                Err(error) if tensors::is_of_type(&error) => {
                    match &mut unreadable {
                        None => unreadable = Some(error),
                        Some(first) => first.add(&error),
                    }
                    continue;
                }
                other => other?,
            };
            if gguf.names.insert(tensor.name.clone(), gguf.tensors.len()).is_some() {
                let message = "two tensors have this name";
                return Err(Error::input("duplicate-tensor", message).of(&tensor.name).at(tensor.record));
            }
            gguf.tensors.push(tensor);
        }
        if let Some(error) = unreadable {
            return Err(error);
        }
        let data = cursor.position().next_multiple_of(alignment);
        tensors::place(&mut gguf.tensors, data, source.bytes())?;
        Ok(gguf)
    }

    fn read_entry(&mut self, cursor: &mut Cursor<'_>, index: u64) -> Result<()> {
        let start = cursor.position();
        cursor.part = format!("key {index}");
        let key = cursor.kept_string(KEY_LIMIT)?;
        cursor.part = format!("the value of {key:?}");
        let number = cursor.u32()?;
        let value = Value::parse(cursor, number)?;
        if self.keys.insert(key.clone(), self.entries.len()).is_some() {
            return Err(Error::input("duplicate-key", format!("the key {key:?} stands twice")).at(start));
        }
        self.entries.push(Entry { key, start, end: cursor.position(), value });
        Ok(())
    }

    fn alignment(&self) -> Result<u64> {
        let key = "general.alignment";
        let Some(entry) = self.entry(key) else { return Ok(DEFAULT_ALIGNMENT) };
        let refused = |why: String| Error::input("bad-alignment", format!("{key} {why}")).at(entry.start);
        // The record is the key (8 + 17 bytes), the type and the value; the type must be UINT32 as the format says.
        let Value::Unsigned(alignment) = entry.value else {
            return Err(refused(format!("is {}, not UINT32", entry.value.name())));
        };
        if entry.end - entry.start != 8 + key.len() as u64 + 4 + 4 {
            return Err(refused("is an integer of another width than UINT32".to_owned()));
        }
        if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
            return Err(refused(format!("is {alignment}, not a power of two up to {MAX_ALIGNMENT}")));
        }
        Ok(alignment)
    }

    /// The entry of `key`.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.keys.get(key).map(|&index| &self.entries[index])
    }

    /// The number of the tensor called `name`.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// The string under `key`; `None` where it is missing or no string.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn string(&self, key: &str) -> Result<Option<String>> {
        match self.entry(key).map(|entry| entry.value) {
            Some(Value::String { at }) => value::read_string(self.source(), at).map(Some),
            _ => Ok(None),
        }
    }

    /// The integers of the array under `key`; `None` where it is missing, of another type or longer than `limit`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn integers(&self, key: &str, limit: u64) -> Result<Option<Vec<i64>>> {
        match self.entry(key) {
            Some(entry) => value::read_integers(self.source(), entry.value, limit),
            None => Ok(None),
        }
    }

    /// The floats of the array under `key`; `None` where it is missing, of another type or longer than `limit`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn floats(&self, key: &str, limit: u64) -> Result<Option<Vec<f32>>> {
        match self.entry(key) {
            Some(entry) => value::read_floats(self.source(), entry.value, limit),
            None => Ok(None),
        }
    }

    /// Elements of the array under `key`.
    #[must_use]
    pub fn array_len(&self, key: &str) -> Option<u64> {
        match self.entry(key)?.value {
            Value::Array { count, .. } => Some(count),
            _ => None,
        }
    }

    /// Visits the strings of the array under `key` in order; none where it is missing or of another type.
    ///
    /// # Errors
    /// When the file cannot be read, or what `visit` says.
    pub fn visit_strings(&self, key: &str, visit: impl FnMut(Vec<u8>) -> Result<()>) -> Result<()> {
        match self.entry(key).map(|entry| entry.value) {
            Some(Value::Array { kind: value::kind::STRING, count, at }) => {
                value::visit_strings(self.source(), at, count, visit)
            }
            _ => Ok(()),
        }
    }

    /// The bytes behind the keys.
    #[must_use]
    pub fn source(&self) -> &'a dyn Source {
        self.sources[0]
    }

    /// The file that holds `tensor`.
    pub(crate) fn source_of(&self, tensor: &Tensor) -> &'a dyn Source {
        self.sources[tensor.shard]
    }

    /// Fills `out` with the data of `tensor` from its byte `at` on.
    ///
    /// # Errors
    /// When the file cannot be read, or has become shorter than it was.
    pub fn read_data(&self, tensor: &Tensor, at: u64, out: &mut [u8]) -> Result<()> {
        let (source, offset) = (self.source_of(tensor), tensor.data + at);
        let read = source.read_at(offset, out);
        read.map_err(|error| Error::read(&error, offset).of(&tensor.name).in_source(source))
    }
}

/// Whether the first bytes are a GGUF's.
#[must_use]
pub fn has_magic(first: &[u8]) -> bool {
    first.starts_with(&MAGIC)
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32> {
    let magic: [u8; 4] = cursor.array()?;
    let big = || Error::input("big-endian", "a big-endian GGUF: convert it to little-endian first").at(0);
    match &magic {
        _ if magic == MAGIC => {}
        b"FUGG" => return Err(big()),
        b"lmgg" | b"fmgg" | b"tjgg" => {
            return Err(
                Error::input("old-format", "a ggml file from before GGUF: convert the model again").at(0)
            );
        }
        _ => {
            let message = format!("not a GGUF file: it begins with {:02x?}", magic);
            return Err(Error::input("not-gguf", message).at(0));
        }
    }
    match cursor.u32()? {
        version @ (2 | 3) => Ok(version),
        version if (1..=0xff).contains(&version.swap_bytes()) => Err(big().at(4)),
        version => {
            let message = format!("GGUF version {version}; this program reads 2 and 3");
            Err(Error::input("unsupported-version", message).at(4))
        }
    }
}

fn check_count(what: &str, count: u64, least: u64, most: u64, cursor: &Cursor<'_>) -> Result<()> {
    let left = cursor.left();
    if count.checked_mul(least).is_none_or(|bytes| bytes > left) {
        let message = format!("the header announces {count} {what}, and {left} bytes follow");
        return Err(Error::input("truncated", message));
    }
    if count > most {
        return Err(Error::input("metadata-too-large", format!("{count} {what}, more than {most}")));
    }
    Ok(())
}
