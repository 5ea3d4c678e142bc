//! A writer of GGUF bytes that is free to lie: for files that no converter would make.
//! [`Parts`] takes a sound one apart instead.

mod parts;

pub use parts::{Parts, Piece};

/// Bytes of a GGUF as they are put together, in file order.
#[derive(Clone, Debug, Default)]
pub struct Bytes(pub Vec<u8>);

/// ggml's number for f32.
pub const F32: u32 = 0;

impl Bytes {
    /// Magic, version 3 and the two counts, whatever follows.
    #[must_use]
    pub fn header(tensors: u64, keys: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(tensors).u64(keys)
    }

    /// A raw number.
    #[must_use]
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A raw number.
    #[must_use]
    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A string with its length.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self = self.u64(text.len() as u64);
        self.0.extend(text.as_bytes());
        self
    }

    /// A key of type string.
    #[must_use]
    pub fn text_key(self, key: &str, value: &str) -> Self {
        self.text(key).u32(8).text(value)
    }

    /// A key of type u32.
    #[must_use]
    pub fn u32_key(self, key: &str, value: u32) -> Self {
        self.text(key).u32(4).u32(value)
    }

    /// A tensor's entry.
    #[must_use]
    pub fn tensor(self, name: &str, shape: &[u64], kind: u32, offset: u64) -> Self {
        let mut bytes = self.text(name).u32(shape.len() as u32);
        for &dimension in shape {
            bytes = bytes.u64(dimension);
        }
        bytes.u32(kind).u64(offset)
    }

    /// Zeros up to `alignment` and then `count` more: a data part.
    #[must_use]
    pub fn data(mut self, alignment: usize, count: usize) -> Self {
        let aligned = self.0.len().next_multiple_of(alignment);
        self.0.resize(aligned + count, 0);
        self
    }
}
