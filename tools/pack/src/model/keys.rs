//! Typed access to an architecture's hyper-parameters, with errors that name the key.

use crate::error::{Error, Result};
use crate::gguf::{Gguf, Value};

pub(super) struct Keys<'a> {
    pub(super) gguf: &'a Gguf<'a>,
    pub(super) architecture: &'static str,
}

impl Keys<'_> {
    fn full(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn bad(&self, name: &str, wanted: &str) -> Error {
        let full = self.full(name);
        match self.gguf.entry(&full) {
            None => Error::input("missing-key", format!("the key {full} is missing")),
            Some(entry) => {
                let message = format!("the key {full} is {}, not {wanted}", entry.value.name());
                Error::input("bad-key", message).at(entry.start)
            }
        }
    }

    pub(super) fn value(&self, name: &str) -> Option<Value> {
        self.gguf.entry(&self.full(name)).map(|entry| entry.value)
    }

    pub(super) fn optional_u32(&self, name: &str) -> Result<Option<u32>> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let number = value.unsigned().and_then(|value| u32::try_from(value).ok());
        number.map(Some).ok_or_else(|| self.bad(name, "a 32-bit count"))
    }

    pub(super) fn u32(&self, name: &str) -> Result<u32> {
        self.optional_u32(name)?.ok_or_else(|| self.bad(name, "a 32-bit count"))
    }

    pub(super) fn optional_f32(&self, name: &str) -> Result<Option<f32>> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Float(value)) => Ok(Some(value as f32)),
            Some(_) => Err(self.bad(name, "a float")),
        }
    }

    pub(super) fn f32(&self, name: &str) -> Result<f32> {
        self.optional_f32(name)?.ok_or_else(|| self.bad(name, "a float"))
    }

    /// A count for each layer: one number for all, or an array.
    pub(super) fn per_layer(&self, name: &str, layers: usize) -> Result<Vec<u32>> {
        let Some(Value::Array { count, .. }) = self.value(name) else {
            return Ok(vec![self.u32(name)?; layers]);
        };
        let bad = || self.bad(name, "one count a layer");
        if count < layers as u64 {
            return Err(bad());
        }
        let values = self.gguf.integers(&self.full(name), 1 << 12)?.ok_or_else(bad)?;
        values.iter().take(layers).map(|&value| u32::try_from(value).map_err(|_| bad())).collect()
    }
}
