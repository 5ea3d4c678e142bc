//! A minimal GGUF reader of the oracle's own: metadata and tensor tables of a small file held whole in memory.

use super::{Error, dequant};
use std::collections::BTreeMap;
use std::path::Path;

/// A metadata value; integers of every width are one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any integer or bool.
    Integer(i128),
    /// Either float.
    Float(f64),
    /// A string, lossy.
    Text(String),
    /// An array.
    List(Vec<Value>),
}

/// Where a tensor lies and what it is.
#[derive(Clone, Debug)]
struct Tensor {
    /// Columns (contiguous), rows, experts; absent ones are 1.
    shape: Vec<usize>,
    kind: u32,
    /// Byte offset in the file.
    at: usize,
}

/// A GGUF in memory.
#[derive(Debug)]
pub struct Gguf {
    bytes: Vec<u8>,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, Tensor>,
}

/// A tensor's values: `data[row · columns + column]`, experts one after another.
#[derive(Clone, Debug)]
pub struct Values {
    /// Columns, rows, experts.
    pub shape: Vec<usize>,
    /// Dequantised elements.
    pub data: Vec<f32>,
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn fail<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        Err(Error::Format { offset: self.at, message: message.into() })
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        match self.at.checked_add(count).and_then(|end| self.bytes.get(self.at..end)) {
            Some(bytes) => {
                self.at += count;
                Ok(bytes)
            }
            None => self.fail(format!("{count} bytes reach past the end")),
        }
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        Ok(self.take(N)?.try_into().expect("take returns N bytes"))
    }

    fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.number()?))
    }

    fn length(&mut self) -> Result<usize, Error> {
        let length = u64::from_le_bytes(self.number()?);
        // Every counted thing takes at least a byte, so a length beyond the file is damage and never an allocation.
        if length > self.bytes.len() as u64 {
            return self.fail(format!("length {length} is beyond the file"));
        }
        Ok(length as usize)
    }

    fn text(&mut self) -> Result<String, Error> {
        let length = self.length()?;
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    fn value(&mut self, kind: u32) -> Result<Value, Error> {
        Ok(match kind {
            0 => Value::Integer(i128::from(u8::from_le_bytes(self.number()?))),
            1 => Value::Integer(i128::from(i8::from_le_bytes(self.number()?))),
            2 => Value::Integer(i128::from(u16::from_le_bytes(self.number()?))),
            3 => Value::Integer(i128::from(i16::from_le_bytes(self.number()?))),
            4 => Value::Integer(i128::from(u32::from_le_bytes(self.number()?))),
            5 => Value::Integer(i128::from(i32::from_le_bytes(self.number()?))),
            6 => Value::Float(f64::from(f32::from_le_bytes(self.number()?))),
            7 => Value::Integer(i128::from(u8::from_le_bytes(self.number()?))),
            8 => Value::Text(self.text()?),
            9 => {
                let (kind, length) = (self.u32()?, self.length()?);
                if kind == 9 {
                    return self.fail("nested arrays are not used by any model");
                }
                Value::List((0..length).map(|_| self.value(kind)).collect::<Result<_, _>>()?)
            }
            10 => Value::Integer(i128::from(u64::from_le_bytes(self.number()?))),
            11 => Value::Integer(i128::from(i64::from_le_bytes(self.number()?))),
            12 => Value::Float(f64::from_le_bytes(self.number()?)),
            other => return self.fail(format!("metadata type {other}")),
        })
    }

    fn tensor(&mut self) -> Result<(String, Tensor), Error> {
        let name = self.text()?;
        let dimensions = self.u32()?;
        if dimensions > 4 {
            return self.fail(format!("{name} has {dimensions} dimensions"));
        }
        let shape = (0..dimensions).map(|_| self.length()).collect::<Result<_, _>>()?;
        let kind = self.u32()?;
        let at = self.length()?;
        Ok((name, Tensor { shape, kind, at }))
    }
}

impl Gguf {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or is not a GGUF.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let bytes = std::fs::read(path).map_err(|error| Error::Io { path: path.into(), error })?;
        Self::parse(bytes)
    }

    /// Takes a GGUF's bytes.
    ///
    /// # Errors
    /// When they are not a GGUF.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, Error> {
        let mut cursor = Cursor { bytes: &bytes, at: 0 };
        if cursor.take(4)? != b"GGUF" {
            return cursor.fail("no GGUF magic");
        }
        let version = cursor.u32()?;
        if !matches!(version, 2 | 3) {
            return cursor.fail(format!("GGUF version {version}"));
        }
        let (tensor_count, key_count) = (cursor.length()?, cursor.length()?);
        let mut metadata = BTreeMap::new();
        for _ in 0..key_count {
            let key = cursor.text()?;
            let kind = cursor.u32()?;
            let value = cursor.value(kind)?;
            metadata.insert(key, value);
        }
        let mut tensors = BTreeMap::new();
        for _ in 0..tensor_count {
            let (name, tensor) = cursor.tensor()?;
            tensors.insert(name, tensor);
        }
        let alignment = match metadata.get("general.alignment") {
            Some(&Value::Integer(alignment)) => alignment as usize,
            _ => 32,
        };
        let data = cursor.at.next_multiple_of(alignment.max(1));
        for tensor in tensors.values_mut() {
            tensor.at += data;
        }
        Ok(Self { bytes, metadata, tensors })
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// The string of a key.
    ///
    /// # Errors
    /// When it is absent or not a string.
    pub fn text(&self, key: &str) -> Result<&str, Error> {
        match self.get(key) {
            Some(Value::Text(text)) => Ok(text),
            other => Err(Error::Model(format!("{key} is {other:?}, not a string"))),
        }
    }

    /// The integer of a key, or `None` where the key is absent.
    ///
    /// # Errors
    /// When it is something else than an integer.
    pub fn integer(&self, key: &str) -> Result<Option<usize>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(&Value::Integer(value)) if value >= 0 => Ok(Some(value as usize)),
            other => Err(Error::Model(format!("{key} is {other:?}, not a count"))),
        }
    }

    /// The float of a key, or `None` where the key is absent.
    ///
    /// # Errors
    /// When it is something else than a float.
    pub fn float(&self, key: &str) -> Result<Option<f64>, Error> {
        match self.get(key) {
            None => Ok(None),
            Some(&Value::Float(value)) => Ok(Some(value)),
            other => Err(Error::Model(format!("{key} is {other:?}, not a float"))),
        }
    }

    /// Whether there is a tensor of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// A tensor, dequantised.
    ///
    /// # Errors
    /// When it is absent, of a type that the oracle does not know, or reaches past the file.
    pub fn tensor(&self, name: &str) -> Result<Values, Error> {
        let tensor = self.tensors.get(name).ok_or_else(|| Error::Model(format!("no tensor {name}")))?;
        let columns = tensor.shape.first().copied().unwrap_or(1);
        let elements = tensor.shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        let block = dequant::block(tensor.kind)
            .ok_or_else(|| Error::Model(format!("{name} has ggml type {}", tensor.kind)))?;
        let elements = elements
            .filter(|_| columns.is_multiple_of(block.weights))
            .ok_or_else(|| Error::Model(format!("{name} has shape {:?}", tensor.shape)))?;
        let size = elements / block.weights * block.bytes;
        let stored = self.bytes.get(tensor.at..).and_then(|rest| rest.get(..size)).ok_or_else(|| {
            Error::Format { offset: tensor.at, message: format!("{name} reaches past the end") }
        })?;
        let mut data = vec![0.0; elements];
        for (bytes, out) in stored.chunks_exact(block.bytes).zip(data.chunks_exact_mut(block.weights)) {
            (block.decode)(bytes, out);
        }
        Ok(Values { shape: tensor.shape.clone(), data })
    }
}
