//! A split model: several GGUF files that say of themselves which shard of how many they are.
//!
//! The first shard has the keys, each has tensors of its own, and `split.tensors.count` is the count of them all. Shards
//! are numbered from 0 in their keys and from 1 in their names; what a shard says of itself decides, so that a renamed,
//! repeated or foreign file is refused rather than merged.

use super::{Gguf, MAX_TENSORS};
use crate::error::{Error, Result};
use crate::source::Source;

impl<'a> Gguf<'a> {
    /// Reads and checks a model that lies in one file or in several, given in order.
    ///
    /// # Errors
    /// As [`Self::read`], and an input error that names the file which is not the shard that it should be.
    pub fn read_all(sources: &[&'a dyn Source]) -> Result<Self> {
        let Some((&first, others)) = sources.split_first() else {
            return Err(Error::input("not-found", "no file was given"));
        };
        let mut gguf = Self::read(first).map_err(|error| error.in_source(first))?;
        gguf.check_shard(0, sources.len()).map_err(|error| error.in_source(first))?;
        for (shard, &source) in (1..).zip(others) {
            let read = Self::read(source).and_then(|other| {
                other.check_shard(shard, sources.len())?;
                gguf.adopt(other, shard)
            });
            read.map_err(|error| error.in_source(source))?;
            gguf.sources.push(source);
        }
        gguf.check_total().map_err(|error| error.in_source(first))?;
        Ok(gguf)
    }

    fn split_number(&self, key: &str) -> Option<u64> {
        self.entry(key)?.value.unsigned()
    }

    /// Refuses a file that says that it is another shard, or one of another number of shards.
    fn check_shard(&self, shard: usize, shards: usize) -> Result<()> {
        let count = self.split_number("split.count").unwrap_or(1);
        // A whole model has no number; with one, it is not believed to be whole either.
        let number = self.split_number("split.no").unwrap_or(0);
        if count == shards as u64 && number == shard as u64 {
            return Ok(());
        }
        let is = match count {
            0 | 1 => "a whole model".to_owned(),
            _ => format!("shard {} of a model split into {count} files", number.saturating_add(1)),
        };
        let message = if shards == 1 {
            format!(
                "this file is {is}, and its name does not say where the others are (NAME-00001-of-0000N.gguf)"
            )
        } else {
            format!("this file is {is}, but by its name it is shard {} of {shards}", shard + 1)
        };
        let error = Error::input("wrong-shard", message);
        Err(match self.entry("split.no").or(self.entry("split.count")) {
            Some(entry) => error.at(entry.start),
            None => error,
        })
    }

    /// Takes the tensors of shard `shard`.
    fn adopt(&mut self, other: Self, shard: usize) -> Result<()> {
        if (self.tensors.len() + other.tensors.len()) as u64 > MAX_TENSORS {
            let message = format!("the files so far hold more than {MAX_TENSORS} tensors");
            return Err(Error::input("metadata-too-large", message));
        }
        if other.split_number("split.tensors.count") != self.split_number("split.tensors.count") {
            let message =
                "it states another number of tensors than shard 1: the files are of different models";
            return Err(Error::input("wrong-shard", message));
        }
        for mut tensor in other.tensors {
            tensor.shard = shard;
            if self.names.insert(tensor.name.clone(), self.tensors.len()).is_some() {
                let message = "an earlier shard of the model has a tensor of this name";
                return Err(Error::input("duplicate-tensor", message).of(&tensor.name).at(tensor.record));
            }
            self.tensors.push(tensor);
        }
        Ok(())
    }

    fn check_total(&self) -> Result<()> {
        let found = self.tensors.len() as u64;
        match self.split_number("split.tensors.count") {
            Some(stated) if self.sources.len() > 1 && stated != found => {
                let message =
                    format!("the {} files hold {found} tensors, they state {stated}", self.sources.len());
                Err(Error::input("wrong-shard", message))
            }
            _ => Ok(()),
        }
    }
}
