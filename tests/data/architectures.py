"""Makes the small models of tests/data whose architectures are told in tools/pack alone, and llama.cpp's logits of them.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0 numpy llama-cpp-python==0.3.36
    venv/bin/python architectures.py

For each model there is NAME.gguf (random weights, matrices in Q4_0, embedding and head in Q8_0, no vocabulary),
NAME.ids.txt (a prompt) and NAME.logits.npy: float32 [tokens, vocabulary] by llama.cpp on the F32 twin, the same quantised
values stored as F32, with an F32 KV cache, no flash attention and the whole prompt in one batch.

Weights are scaled as those of the other random models: 1/sqrt(inputs) for matrices, less by sqrt(2 layers) where the result
is added to the residual stream, logits with a spread of about 3, router logits with one of 1.5. Where the embedding is the
head, layers add six times as much as it, or each token would be sure to follow itself.
"""

import pathlib
import sys
import tempfile

import numpy
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter
from gguf.quants import dequantize, quantize

FOLDER = pathlib.Path(__file__).parent
VOCABULARY, WIDTH, TOKENS = 512, 128, 64
LAYERS, HEADS, HEAD, EXPERTS, INNER, DENSE = 3, 4, 32, 12, 64, 192


class Model:
    def __init__(self, name, seed):
        self.name, self.random, self.keys, self.tensors = name, numpy.random.default_rng(seed), {}, {}

    def key(self, name, value):
        self.keys[name] = value

    def vector(self, name, size, mean, std):
        self.tensors[name] = (Type.F32, self.random.normal(mean, std, size).astype(numpy.float32))

    def matrix(self, name, shape, std=None, kind=Type.Q4_0):
        """Rows are outputs; the last extent is the inputs."""
        std = 1 / numpy.sqrt(shape[-1]) if std is None else std
        values = self.random.normal(0, std, shape).astype(numpy.float32)
        self.tensors[name] = (kind, quantize(values, kind) if kind != Type.F32 else values)

    def residual(self, name, shape):
        scale = 6 * 3 / numpy.sqrt(WIDTH) if self.tied else 1
        self.matrix(name, shape, scale / numpy.sqrt(shape[-1] * 2 * LAYERS))

    def unit(self, layer, suffix, inner, count=()):
        self.matrix(f"blk.{layer}.ffn_gate{suffix}.weight", (*count, inner, WIDTH))
        self.matrix(f"blk.{layer}.ffn_up{suffix}.weight", (*count, inner, WIDTH))
        self.residual(f"blk.{layer}.ffn_down{suffix}.weight", (*count, WIDTH, inner))

    def fill(self, tied, kv_heads, qk_norm, bias, shared):
        self.tied = tied
        spread = 3 / numpy.sqrt(WIDTH)
        self.matrix("token_embd.weight", (VOCABULARY, WIDTH), spread if tied else 1, Type.Q8_0)
        for layer in range(LAYERS):
            self.vector(f"blk.{layer}.attn_norm.weight", WIDTH, 1, 0.05)
            self.matrix(f"blk.{layer}.attn_q.weight", (HEADS * HEAD, WIDTH))
            self.matrix(f"blk.{layer}.attn_k.weight", (kv_heads * HEAD, WIDTH))
            self.matrix(f"blk.{layer}.attn_v.weight", (kv_heads * HEAD, WIDTH))
            self.residual(f"blk.{layer}.attn_output.weight", (WIDTH, HEADS * HEAD))
            if qk_norm:
                self.vector(f"blk.{layer}.attn_q_norm.weight", HEAD, 1, 0.05)
                self.vector(f"blk.{layer}.attn_k_norm.weight", HEAD, 1, 0.05)
            self.vector(f"blk.{layer}.ffn_norm.weight", WIDTH, 1, 0.05)
            if layer == 0:
                self.unit(layer, "", DENSE)
                continue
            self.matrix(f"blk.{layer}.ffn_gate_inp.weight", (EXPERTS, WIDTH), 1.5 / numpy.sqrt(WIDTH), Type.F32)
            self.vector(f"blk.{layer}.exp_probs_b.bias", EXPERTS, 0, bias)
            self.unit(layer, "_exps", INNER, (EXPERTS,))
            self.unit(layer, "_shexp", shared)
        self.vector("output_norm.weight", WIDTH, 1, 0.05)
        if not tied:
            self.matrix("output.weight", (VOCABULARY, WIDTH), spread, Type.Q8_0)
        for name, value in {
            "block_count": LAYERS,
            "context_length": 1024,
            "embedding_length": WIDTH,
            "feed_forward_length": DENSE,
            "vocab_size": VOCABULARY,
            "attention.head_count": HEADS,
            "attention.head_count_kv": kv_heads,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "rope.dimension_count": HEAD,
            "expert_count": EXPERTS,
            "expert_used_count": 4,
            "expert_feed_forward_length": INNER,
            "expert_shared_count": 2,
            "leading_dense_block_count": 1,
        }.items():
            self.key(name, value)

    def write(self, path, twin):
        writer = GGUFWriter(path, self.name)
        writer.add_type("model")
        writer.add_name(f"random {self.name}")
        writer.add_tokenizer_model("no_vocab")
        for name, value in self.keys.items():
            add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}[type(value)]
            add(f"{self.name}.{name}", value)
        for name, (kind, data) in self.tensors.items():
            if twin and kind != Type.F32:
                writer.add_tensor(name, dequantize(data, kind).astype(numpy.float32))
            else:
                writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def ernie():
    """ERNIE-4.5-21B-A3B: a softmax router with a selection bias, the shared unit's width in a key of its own."""
    model = Model("ernie4_5-moe", 31)
    model.fill(tied=True, kv_heads=2, qk_norm=False, bias=0.03, shared=96)
    model.key("rope.freq_base", 500000.0)
    model.key("attention.layer_norm_rms_epsilon", 1e-5)
    model.key("interleave_moe_layer_step", 1)
    model.key("expert_shared_feed_forward_length", 96)
    return model


def dots():
    """dots.llm1: a sigmoid router with a selection bias, weights divided by their sum and scaled by 2.5."""
    model = Model("dots1", 32)
    model.fill(tied=False, kv_heads=HEADS, qk_norm=True, bias=0.1, shared=2 * INNER)
    model.key("rope.freq_base", 10000000.0)
    model.key("attention.layer_norm_rms_epsilon", 1e-5)
    model.key("expert_gating_func", 2)
    model.key("expert_weights_norm", True)
    model.key("expert_weights_scale", 2.5)
    return model


def logits(path, ids):
    from llama_cpp import Llama

    llama = Llama(str(path), n_ctx=256, n_batch=256, n_ubatch=256, logits_all=True, type_k=0, type_v=0,
                  flash_attn=False, use_mmap=False, n_threads=2, verbose="-v" in sys.argv)
    llama.eval(ids)
    return llama.scores[: len(ids)].astype(numpy.float32)


for model in (ernie(), dots()):
    model.write(FOLDER / f"{model.name}.gguf", twin=False)
    ids = [int(i) for i in numpy.random.default_rng(7).integers(0, VOCABULARY, TOKENS)]
    (FOLDER / f"{model.name}.ids.txt").write_text(",".join(map(str, ids)) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        twin = pathlib.Path(folder) / "twin.gguf"
        model.write(twin, twin=True)
        values = logits(twin, ids)
    assert numpy.isfinite(values).all() and values.shape == (TOKENS, VOCABULARY)
    numpy.save(FOLDER / f"{model.name}.logits.npy", values)
    shares = numpy.exp(values - values.max(1, keepdims=True))
    print(model.name, "spread of logits", values.std(), "largest probability", (1 / shares.sum(1)).mean())
