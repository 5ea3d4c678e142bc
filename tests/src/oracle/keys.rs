//! The hyper-parameters of a file, by the names that they have behind the architecture's.

use super::Error;
use super::gguf::{Gguf, Value};

/// Access to one architecture's keys.
pub(super) struct Keys<'a> {
    pub(super) file: &'a Gguf,
    pub(super) architecture: &'a str,
}

impl<'a> Keys<'a> {
    fn full(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn absent(&self, name: &str) -> Error {
        Error::Model(format!("no {}", self.full(name)))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.file.get(&self.full(name)).is_some()
    }

    pub(super) fn count(&self, name: &str) -> Result<Option<usize>, Error> {
        self.file.integer(&self.full(name))
    }

    pub(super) fn needed(&self, name: &str) -> Result<usize, Error> {
        self.count(name)?.ok_or_else(|| self.absent(name))
    }

    pub(super) fn float(&self, name: &str) -> Result<Option<f64>, Error> {
        self.file.float(&self.full(name))
    }

    pub(super) fn needed_float(&self, name: &str) -> Result<f64, Error> {
        self.float(name)?.ok_or_else(|| self.absent(name))
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, Error> {
        let full = self.full(name);
        if self.has(name) { self.file.text(&full).map(Some) } else { Ok(None) }
    }

    /// A count of one layer: the same for all, or one of a list.
    pub(super) fn of_layer(&self, name: &str, layer: usize) -> Result<Option<usize>, Error> {
        match self.file.get(&self.full(name)) {
            Some(Value::List(list)) => match list.get(layer) {
                Some(&Value::Integer(value)) if value >= 0 => Ok(Some(value as usize)),
                other => Err(Error::Model(format!("{} is {other:?} at layer {layer}", self.full(name)))),
            },
            _ => self.count(name),
        }
    }

    /// The weights of a part of a layer.
    pub(super) fn part(&self, layer: usize, name: &str) -> Result<super::gguf::Values, Error> {
        self.file.tensor(&format!("blk.{layer}.{name}"))
    }

    pub(super) fn has_part(&self, layer: usize, name: &str) -> bool {
        self.file.has(&format!("blk.{layer}.{name}"))
    }
}
