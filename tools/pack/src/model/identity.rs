//! What a GGUF is, before its tensors matter: a MoE model of a known architecture, or something else by name.

use super::architecture::{ARCHITECTURES, Architecture};
use crate::error::{Error, Result};
use crate::gguf::Gguf;

/// The architecture of a MoE model that this crate can pack.
pub(super) fn identify(gguf: &Gguf<'_>) -> Result<&'static Architecture> {
    if let Some(what) = other_kind(gguf)? {
        return Err(Error::input("not-moe", format!("not a MoE model: {what}")));
    }
    let Some(name) = gguf.string("general.architecture")? else {
        return Err(Error::input("missing-key", "the key general.architecture is missing"));
    };
    let experts =
        gguf.entry(&format!("{name}.expert_count")).and_then(|entry| entry.value.unsigned()).unwrap_or(0);
    if experts == 0 && !gguf.tensors.iter().any(|tensor| tensor.name.contains("_exps.")) {
        let what = if gguf.tensors.is_empty() { "holds no tensors" } else { "dense, it has no experts" };
        return Err(Error::input("not-moe", format!("not a MoE model: this {name} file is {what}")));
    }
    ARCHITECTURES.iter().find(|known| known.name == name).ok_or_else(|| {
        let known: Vec<&str> = ARCHITECTURES.iter().map(|known| known.name).collect();
        let message =
            format!("the architecture {name:?} is not supported; supported are {}", known.join(", "));
        Error::input("unsupported-architecture", message)
    })
}

/// Names a GGUF that is no language model at all.
fn other_kind(gguf: &Gguf<'_>) -> Result<Option<&'static str>> {
    let general = gguf.string("general.type")?.unwrap_or_default();
    let architecture = gguf.string("general.architecture")?.unwrap_or_default();
    let imatrix_tensor = |name: &str| name.ends_with(".in_sum2") || name.ends_with(".counts");
    let imatrix = general == "imatrix"
        || gguf.entry("imatrix.chunk_count").is_some()
        || (!gguf.tensors.is_empty() && gguf.tensors.iter().all(|tensor| imatrix_tensor(&tensor.name)));
    Ok(if imatrix {
        Some("this is an importance matrix (imatrix) file")
    } else if general == "adapter" {
        Some("this is an adapter (LoRA), to be merged into its model first")
    } else if general == "mmproj" || architecture == "clip" {
        Some("this is a projector of images or sound (mmproj)")
    } else if general == "vocab"
        || (gguf.tensors.is_empty() && gguf.array_len("tokenizer.ggml.tokens").is_some())
    {
        Some("this file holds only a vocabulary")
    } else {
        None
    })
}
