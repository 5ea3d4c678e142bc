//! A sound GGUF taken apart, so that the same weights can be put together in another way: split, realigned, with holes,
//! one tensor an expert, gate and up fused.

use super::{Bytes, F32};
use crate::oracle;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A sound GGUF in pieces.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Keys, each with its type and value as they stand in a file.
    pub keys: Vec<(String, Vec<u8>)>,
    /// Tensors.
    pub tensors: Vec<Piece>,
}

/// One tensor.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Its name.
    pub name: String,
    /// Extents, the contiguous one first.
    pub shape: Vec<u64>,
    /// ggml's number for its type.
    pub kind: u32,
    /// Its bytes.
    pub data: Vec<u8>,
}

struct Reader<'a>(&'a [u8], usize);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        self.1 += count;
        &self.0[self.1 - count..self.1]
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().expect("eight bytes"))
    }

    fn text(&mut self) -> String {
        let length = self.u64() as usize;
        String::from_utf8_lossy(self.take(length)).into_owned()
    }

    fn skip_value(&mut self, kind: u32) {
        match kind {
            0 | 1 | 7 => self.1 += 1,
            2 | 3 => self.1 += 2,
            4..=6 => self.1 += 4,
            8 => drop(self.text()),
            9 => {
                let (kind, count) = (self.u32(), self.u64());
                (0..count).for_each(|_| self.skip_value(kind));
            }
            _ => self.1 += 8,
        }
    }
}

impl Piece {
    /// A tensor with its bytes.
    ///
    /// # Panics
    /// For a type that the oracle does not know, or bytes of another size than the shape says.
    #[must_use]
    pub fn new(name: &str, shape: &[u64], kind: u32, data: Vec<u8>) -> Self {
        let piece = Self { name: name.to_owned(), shape: shape.to_vec(), kind, data };
        assert_eq!(piece.data.len(), piece.bytes(), "{name} has another size than its shape says");
        piece
    }

    fn bytes(&self) -> usize {
        let (weights, bytes) = oracle::block_size(self.kind).expect("a type that the oracle knows");
        self.shape.iter().product::<u64>() as usize / weights * bytes
    }
}

impl Parts {
    /// Takes a file apart.
    ///
    /// # Panics
    /// When it is not sound.
    #[must_use]
    pub fn read(file: &[u8]) -> Self {
        let mut reader = Reader(file, 8);
        let (tensors, keys) = (reader.u64(), reader.u64());
        let mut parts = Self::default();
        let mut alignment = 32;
        for _ in 0..keys {
            let (name, start) = (reader.text(), reader.1);
            let kind = reader.u32();
            if name == "general.alignment" {
                alignment = Reader(file, reader.1).u32() as usize;
            }
            reader.skip_value(kind);
            parts.keys.push((name, file[start..reader.1].to_vec()));
        }
        let mut offsets = Vec::new();
        for _ in 0..tensors {
            let name = reader.text();
            let dimensions = reader.u32();
            let shape = (0..dimensions).map(|_| reader.u64()).collect();
            parts.tensors.push(Piece { name, shape, kind: reader.u32(), data: Vec::new() });
            offsets.push(reader.u64() as usize);
        }
        let data = reader.1.next_multiple_of(alignment);
        for (piece, offset) in parts.tensors.iter_mut().zip(offsets) {
            piece.data = file[data + offset..][..piece.bytes()].to_vec();
        }
        parts
    }

    /// Adds a key of type u32, or replaces it.
    pub fn set(&mut self, key: &str, value: u32) {
        self.put(key, 4, &value.to_le_bytes());
    }

    /// Adds a key of type f32, or replaces it.
    pub fn set_float(&mut self, key: &str, value: f32) {
        self.put(key, 6, &value.to_le_bytes());
    }

    /// Adds a key of type bool, or replaces it.
    pub fn set_flag(&mut self, key: &str, value: bool) {
        self.put(key, 7, &[value.into()]);
    }

    /// Adds a key of type string, or replaces it.
    pub fn set_text(&mut self, key: &str, value: &str) {
        self.put(key, 8, &[&(value.len() as u64).to_le_bytes(), value.as_bytes()].concat());
    }

    fn put(&mut self, key: &str, kind: u32, value: &[u8]) {
        self.keys.retain(|(name, _)| name != key);
        self.keys.push((key.to_owned(), [&kind.to_le_bytes(), value].concat()));
    }

    /// The tensor of this name.
    ///
    /// # Panics
    /// When there is none.
    pub fn tensor(&mut self, name: &str) -> &mut Piece {
        self.tensors.iter_mut().find(|piece| piece.name == name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// Puts f32 values in the place of a tensor's, whose shape may be another.
    pub fn replace(&mut self, name: &str, shape: &[u64], values: &[f32]) {
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        *self.tensor(name) = Piece::new(name, shape, F32, data);
    }

    /// The bytes of everything before the data, which begins at the next multiple of `alignment`, and the tensors'
    /// offsets in the data; each begins `gap` bytes or more after the end of the one before it.
    fn head(&self, alignment: usize, gap: u64) -> (Vec<u8>, Vec<u64>) {
        let mut bytes = Bytes::header(self.tensors.len() as u64, self.keys.len() as u64);
        for (name, value) in &self.keys {
            bytes = bytes.text(name);
            bytes.0.extend(value);
        }
        let (mut offsets, mut at) = (Vec::new(), 0u64);
        for piece in &self.tensors {
            bytes = bytes.tensor(&piece.name, &piece.shape, piece.kind, at);
            offsets.push(at);
            at = (at + piece.data.len() as u64 + gap).next_multiple_of(alignment as u64);
        }
        bytes.0.resize(bytes.0.len().next_multiple_of(alignment), 0);
        (bytes.0, offsets)
    }

    /// The file, its last tensor unpadded.
    #[must_use]
    pub fn write(&self, alignment: usize) -> Vec<u8> {
        let (mut file, offsets) = self.head(alignment, 0);
        let data = file.len();
        for (piece, offset) in self.tensors.iter().zip(offsets) {
            file.resize(data + offset as usize, 0);
            file.extend(&piece.data);
        }
        file
    }

    /// Writes the file with `gap` bytes of hole after each tensor.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_sparse(&self, path: &Path, gap: u64) -> io::Result<()> {
        let (head, offsets) = self.head(32, gap);
        let file = File::create(path)?;
        file.write_all_at(&head, 0)?;
        for (piece, offset) in self.tensors.iter().zip(offsets) {
            file.write_all_at(&piece.data, head.len() as u64 + offset)?;
        }
        Ok(())
    }

    /// The model as files whose tensors begin at these numbers, as llama.cpp's splitter makes them: the first has the keys.
    #[must_use]
    pub fn split(&self, starts: &[usize]) -> Vec<Self> {
        let count = starts.len();
        (0..count)
            .map(|shard| {
                let end = starts.get(shard + 1).copied().unwrap_or(self.tensors.len());
                let mut part = Self {
                    keys: if shard == 0 { self.keys.clone() } else { Vec::new() },
                    tensors: self.tensors[starts[shard]..end].to_vec(),
                };
                part.set("split.no", shard as u32);
                part.set("split.count", count as u32);
                part.set("split.tensors.count", self.tensors.len() as u32);
                part
            })
            .collect()
    }

    /// The same experts as files of early 2024 hold them: one tensor an expert.
    #[must_use]
    pub fn one_tensor_an_expert(&self) -> Self {
        let mut parts = Self { keys: self.keys.clone(), tensors: Vec::new() };
        for piece in &self.tensors {
            match piece.name.strip_suffix("_exps.weight") {
                None => parts.tensors.push(piece.clone()),
                Some(stem) => {
                    let experts = piece.shape[2] as usize;
                    let each = piece.data.len() / experts;
                    for (expert, data) in piece.data.chunks_exact(each).enumerate() {
                        let name = format!("{stem}.{expert}.weight");
                        parts.tensors.push(Piece::new(&name, &piece.shape[..2], piece.kind, data.to_vec()));
                    }
                }
            }
        }
        parts
    }

    /// The same experts with gate and up in one tensor, each expert's gate rows before its up rows.
    ///
    /// # Panics
    /// When a gate has no up of its type.
    #[must_use]
    pub fn fused_gate_and_up(&self) -> Self {
        let mut parts = Self { keys: self.keys.clone(), tensors: Vec::new() };
        for piece in &self.tensors {
            let Some(stem) = piece.name.strip_suffix("ffn_gate_exps.weight") else {
                if !piece.name.ends_with("ffn_up_exps.weight") {
                    parts.tensors.push(piece.clone());
                }
                continue;
            };
            let up = self.tensors.iter().find(|other| other.name == format!("{stem}ffn_up_exps.weight"));
            let up = up.expect("a gate has an up");
            assert_eq!(up.kind, piece.kind, "gate and up can be fused");
            let each = piece.data.len() / piece.shape[2] as usize;
            let pairs = piece.data.chunks_exact(each).zip(up.data.chunks_exact(each));
            let data = pairs.flat_map(|(gate, up)| [gate, up].concat()).collect();
            let shape = [piece.shape[0], 2 * piece.shape[1], piece.shape[2]];
            parts.tensors.push(Piece::new(
                &format!("{stem}ffn_gate_up_exps.weight"),
                &shape,
                piece.kind,
                data,
            ));
        }
        parts
    }
}
