//! A GGUF file of any bytes.

use estream_pack::gguf::Gguf;
use estream_pack::model::{Matrix, Model};
use estream_pack::{Error, Result};

/// Reads the bytes as a GGUF and as a model.
pub fn gguf(bytes: &[u8]) {
    let source = bytes.to_vec();
    if let Some(gguf) = accepted(Gguf::read(&source)) {
        check(&gguf, &[bytes.len()]);
    }
}

/// A refusal blames the input; the machine has done nothing here.
pub(super) fn accepted<T>(result: Result<T>) -> Option<T> {
    let blames_the_input = |error: &Error| assert!(error.is_input(), "{error}");
    result.inspect_err(blames_the_input).ok()
}

/// What holds for metadata that was accepted, out of files of these lengths.
pub(super) fn check(gguf: &Gguf<'_>, lengths: &[usize]) {
    for tensor in &gguf.tensors {
        let end = tensor.data.checked_add(tensor.bytes).expect("checked when it was read");
        assert!(end <= lengths[tensor.shard] as u64, "{} ends at {end}", tensor.name);
        assert_eq!(tensor.elements() / tensor.ggml.block * tensor.ggml.bytes, tensor.bytes);
        let mut last = [0];
        gguf.read_data(tensor, tensor.bytes - 1, &mut last).expect("its data is in the file");
    }
    for entry in &gguf.entries {
        assert!(entry.start < entry.end && entry.end <= lengths[0] as u64, "{}", entry.key);
        accepted(gguf.string(&entry.key));
        accepted(gguf.integers(&entry.key, 1 << 16));
        accepted(gguf.visit_strings(&entry.key, |_| Ok(())));
    }
    let Some(model) = accepted(Model::of(gguf)) else { return };
    let inside = |matrix: &Matrix| {
        let tensor = &gguf.tensors[matrix.tensor];
        let rows = matrix.first_row + u64::from(matrix.n.max(1));
        assert!(rows <= tensor.elements() / tensor.dims[0], "{}: {rows} rows", tensor.name);
        assert_eq!(u64::from(matrix.k), tensor.dims[0]);
    };
    inside(&model.embedding);
    model.dense.iter().for_each(|dense| inside(&dense.matrix));
    for layer in &model.sparse {
        (0..layer.experts).for_each(|expert| layer.record(expert).iter().for_each(inside));
    }
}
