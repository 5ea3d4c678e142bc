//! A model whose products leave a half's range: the pass fails by name and gives no number.

use crate::prompts::options;
use estream::{Engine, Request, Verify};
use estream_tests::gguf::Parts;
use estream_tests::{fixture, program};
use half::f16;
use std::path::{Path, PathBuf};

/// ggml's number for Q4_0, and the bytes of its block of a half and 32 nibbles.
const Q4_0: (u32, usize) = (2, 18);

/// The magnitude up to which weights are raised: halves themselves, so that what leaves the range is a product.
const LARGEST: f32 = 32768.0;

fn scale(block: &[u8]) -> f32 {
    f16::from_le_bytes([block[0], block[1]]).to_f32()
}

/// A pack of our golden whose tensors with `part` in their names are raised by a power of two, up to [`LARGEST`].
fn raised(folder: &Path, part: &str) -> PathBuf {
    let mut file = Parts::read(&std::fs::read(fixture::own().gguf).expect("the golden"));
    let mut pieces = 0;
    for piece in file.tensors.iter_mut().filter(|piece| piece.name.contains(part)) {
        assert_eq!(piece.kind, Q4_0.0, "{}", piece.name);
        let blocks = piece.data.chunks_exact(Q4_0.1);
        // 8 is the largest code.
        let largest = blocks.fold(0f32, |largest, block| largest.max(8.0 * scale(block).abs()));
        let power = (LARGEST / largest).log2().floor().exp2();
        for block in piece.data.chunks_exact_mut(Q4_0.1) {
            let raised = f16::from_f32(scale(block) * power);
            block[..2].copy_from_slice(&raised.to_le_bytes());
        }
        pieces += 1;
    }
    assert!(pieces > 0, "the golden has no {part}");
    let gguf = folder.join(format!("{part}.gguf"));
    std::fs::write(&gguf, file.write(32)).expect("a file can be written");
    fixture::pack(&gguf, folder, None)
}

#[test]
fn a_product_beyond_a_halfs_range_fails_the_call_and_gives_no_number() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    // Products before the activation, and behind it.
    for part in ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"] {
        let pack = raised(folder.path(), part);
        let logits = folder.path().join("logits.npy");
        let mut command = program::estream();
        command.arg("run").arg(&pack).args(["--tokens", "1,2,3", "--json", "--kernels", "hmx-model"]);
        let ended = program::finish(command.arg("--logits").arg(&logits));
        assert_eq!(ended.code, 1, "{part}: {}{}", ended.stdout, ended.stderr);
        let said: serde_json::Value = serde_json::from_str(&ended.stdout).expect("an object");
        assert_eq!(said["error"]["code"], "saturated", "{part}: {said}");
        assert!(said.get("top").is_none() && !logits.exists(), "{part}: {said}");
        // Kernels in f32 have the range, so it is the range that fails it.
        let mut command = program::estream();
        command.arg("run").arg(&pack).args(["--tokens", "1,2,3", "--kernels", "scalar"]);
        let _ = program::report(&mut command);
    }
}

#[test]
fn a_session_goes_on_after_a_saturated_call_and_says_so_again() {
    let folder = fixture::folder(env!("CARGO_TARGET_TMPDIR"));
    let pack = raised(folder.path(), "ffn_up_exps");
    let options = options().verify(Verify::Never).max_tokens(8).max_requests(1).max_outputs(1);
    let mut engine = Engine::open(&pack, options).expect("it opens");
    for _ in 0..2 {
        let refused = engine.prefill(&[Request::new([1, 2, 3])]).expect_err("products beyond the range");
        assert_eq!((refused.code.as_ref(), refused.exit), ("saturated", estream::Exit::Runtime), "{refused}");
    }
    engine.close().expect("the session ends well");
}
