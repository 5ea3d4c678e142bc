//! What a pack says about its model: the few numbers that limits, arena and tokens are checked against, read from the
//! header, recipe and directory alone, before anything large is allocated or verified. That header and directory agree
//! was checked when the pack was opened.

use crate::errors::{Error, Exit, Result};
use estream_host::{Pack, Verify};
use estream_idl::recipe::Recipe;
use std::path::Path;

/// A pack's model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// Vocabulary entries: ids are below it.
    pub vocab: u32,
    /// The longest request that the model was made for, in tokens.
    pub context: u32,
    /// Experts of the layer with most, E.
    pub experts: u32,
    /// W_e, bytes of the largest expert record.
    pub record_bytes: u64,
    /// Bytes of all expert records.
    pub expert_bytes: u64,
    /// Bytes of the weights that every token passes, the head among them.
    pub dense_bytes: u64,
    /// Experts of each layer that has any.
    pub layer_experts: Vec<u32>,
}

impl Model {
    /// Reads the model of a pack; only the header and the tables behind it are read and checked.
    ///
    /// # Errors
    /// Where the file cannot be read, is no pack or is damaged there.
    pub fn read(path: &Path) -> Result<Self> {
        Self::of(&Pack::open(path, Verify::Never, &|_, _| ())?).map_err(|error| error.in_file(path))
    }

    fn of(pack: &Pack) -> Result<Self> {
        let bad = |code, message: &str| Error::new(code, Exit::Input, message);
        let recipe = Recipe::decode(pack.recipe())
            .ok_or_else(|| bad("bad-recipe", "the recipe is damaged or made for another version"))?;
        let layer_experts: Vec<u32> = pack.tables().layers.iter().map(|layer| layer.experts).collect();
        let experts = layer_experts.iter().copied().max().unwrap_or(0);
        let header = pack.header();
        if experts == 0 || header.record_bytes == 0 {
            return Err(bad("no-experts", "the pack has no expert records"));
        }
        Ok(Self {
            vocab: recipe.vocab,
            context: recipe.context,
            experts,
            record_bytes: header.record_bytes,
            expert_bytes: header.experts.bytes,
            dense_bytes: header.dense.bytes,
            layer_experts,
        })
    }

    /// Groups of all layers together at G = `group`.
    #[must_use]
    pub fn groups(&self, group: u32) -> u32 {
        self.layer_experts.iter().map(|experts| experts.div_ceil(group)).fold(0, u32::saturating_add).max(1)
    }

    /// Checks one request's ids before anything runs. Ids are never clamped and requests never cut.
    ///
    /// # Errors
    /// `empty-request`, `too-many-tokens` or `bad-token` (exit 3), naming index, value and limit.
    pub fn check(&self, ids: &[u32]) -> Result<()> {
        if ids.is_empty() {
            return Err(empty());
        }
        if ids.len() > self.context as usize {
            return Err(too_many(ids.len(), self.context));
        }
        match ids.iter().position(|&id| id >= self.vocab) {
            Some(index) => Err(bad_token(index, &ids[index].to_string(), self.vocab)),
            None => Ok(()),
        }
    }

    /// A model with these layers, for the tests of rules that need no more.
    #[cfg(test)]
    pub(crate) fn for_tests(record_bytes: u64, layer_experts: &[u32]) -> Self {
        let records: u64 = layer_experts.iter().map(|&experts| u64::from(experts)).sum();
        Self {
            vocab: 512,
            context: 64,
            experts: layer_experts.iter().copied().max().unwrap_or(0),
            record_bytes,
            expert_bytes: records * record_bytes,
            dense_bytes: 0,
            layer_experts: layer_experts.to_vec(),
        }
    }
}

/// No ids at all.
#[must_use]
pub fn empty() -> Error {
    Error::new("empty-request", Exit::Input, "there are no token ids: a request needs at least one")
}

/// More ids than the context holds; the index of the first that is too many is the context itself.
#[must_use]
pub fn too_many(count: usize, context: u32) -> Error {
    let message = format!(
        "token {context} is one too many: the request has {count} tokens and the model's context is {context}"
    );
    Error::new("too-many-tokens", Exit::Input, message)
}

/// An id that the vocabulary does not have, or no id at all.
#[must_use]
pub fn bad_token(index: usize, text: &str, vocab: u32) -> Error {
    let message =
        format!("token {index} is {text:?}: ids of this model are 0 to {}", vocab.saturating_sub(1));
    Error::new("bad-token", Exit::Input, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked_against_vocabulary_and_context() {
        let model = Model::for_tests(4096, &[8]);
        assert!(model.check(&[0, 511]).is_ok());
        assert!(model.check(&[1; 64]).is_ok());
        assert_eq!(model.check(&[]).map_err(|e| e.code), Err("empty-request".into()));
        let error = model.check(&[1, 2, 512]).expect_err("beyond the vocabulary");
        assert_eq!(error.code, "bad-token");
        assert_eq!(error.message, "token 2 is \"512\": ids of this model are 0 to 511");
        let error = model.check(&[1; 65]).expect_err("beyond the context");
        assert_eq!(error.code, "too-many-tokens");
        assert!(error.message.contains("65 tokens") && error.message.contains("context is 64"));
    }
}
