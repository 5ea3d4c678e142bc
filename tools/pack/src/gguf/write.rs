//! The writing half: key-value records and tensor records as bytes, for synthetic models and the pack's tokenizer extent.

use super::types::GgmlType;
use super::value::kind;
use super::{DEFAULT_ALIGNMENT, MAGIC};

const VERSION: u32 = 3;

/// Metadata in the making.
#[derive(Default)]
pub(crate) struct Metadata {
    records: Vec<u8>,
    entries: u64,
    tensors: Vec<u8>,
    tensor_count: u64,
    data_bytes: u64,
}

impl Metadata {
    fn key(&mut self, key: &str, number: u32) {
        string(&mut self.records, key.as_bytes());
        self.records.extend(number.to_le_bytes());
        self.entries += 1;
    }

    /// Appends a whole record as another file holds it.
    pub(crate) fn record(&mut self, bytes: &[u8]) {
        self.records.extend(bytes);
        self.entries += 1;
    }

    pub(crate) fn u32(&mut self, key: &str, value: u32) {
        self.key(key, kind::UINT32);
        self.records.extend(value.to_le_bytes());
    }

    pub(crate) fn f32(&mut self, key: &str, value: f32) {
        self.key(key, kind::FLOAT32);
        self.records.extend(value.to_le_bytes());
    }

    pub(crate) fn bool(&mut self, key: &str, value: bool) {
        self.key(key, kind::BOOL);
        self.records.push(u8::from(value));
    }

    pub(crate) fn string(&mut self, key: &str, value: &str) {
        self.key(key, kind::STRING);
        string(&mut self.records, value.as_bytes());
    }

    fn array(&mut self, key: &str, number: u32, count: usize) {
        self.key(key, kind::ARRAY);
        self.records.extend(number.to_le_bytes());
        self.records.extend((count as u64).to_le_bytes());
    }

    pub(crate) fn strings(&mut self, key: &str, values: &[String]) {
        self.array(key, kind::STRING, values.len());
        for value in values {
            string(&mut self.records, value.as_bytes());
        }
    }

    pub(crate) fn i32s(&mut self, key: &str, values: &[i32]) {
        self.array(key, kind::INT32, values.len());
        self.records.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    pub(crate) fn f32s(&mut self, key: &str, values: &[f32]) {
        self.array(key, kind::FLOAT32, values.len());
        self.records.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    /// Appends a tensor behind the ones before it and returns the bytes of its data.
    pub(crate) fn tensor(&mut self, name: &str, dims: &[u64], ggml: &GgmlType) -> u64 {
        string(&mut self.tensors, name.as_bytes());
        self.tensors.extend((dims.len() as u32).to_le_bytes());
        self.tensors.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
        self.tensors.extend(ggml.id.to_le_bytes());
        self.tensors.extend(self.data_bytes.to_le_bytes());
        self.tensor_count += 1;
        let bytes = dims.iter().product::<u64>() / ggml.block * ggml.bytes;
        self.data_bytes += bytes.next_multiple_of(DEFAULT_ALIGNMENT);
        bytes
    }

    /// Bytes of the tensors' data area.
    pub(crate) const fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// The file up to the data area.
    pub(crate) fn finish(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.records.len() + self.tensors.len() + 64);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.tensor_count.to_le_bytes());
        bytes.extend(self.entries.to_le_bytes());
        bytes.extend(self.records);
        bytes.extend(self.tensors);
        if self.tensor_count > 0 {
            bytes.resize(bytes.len().next_multiple_of(DEFAULT_ALIGNMENT as usize), 0);
        }
        bytes
    }
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}
