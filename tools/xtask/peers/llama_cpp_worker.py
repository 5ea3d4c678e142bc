"""One process of llama.cpp: loads a GGUF with one setting, prefills prompts, prints one JSON object.

Runs in the private environment that `cargo xtask peers` makes. Times are seconds of the monotonic clock; `loaded` is counted
from the interpreter's start of this file, so that a caller who times the whole process can tell the two apart.
"""

import json
import sys
import time

START = time.monotonic()

import ctypes  # noqa: E402

import llama_cpp as llama  # noqa: E402

LOAD_MODES = {"none": llama.LLAMA_LOAD_MODE_NONE, "mmap": llama.LLAMA_LOAD_MODE_MMAP, "direct": llama.LLAMA_LOAD_MODE_DIRECT_IO}


def prompt(count, vocab):
    """The ids of `estream bench`: a Weyl sequence over the vocabulary."""
    return [((i * 0x9E3779B9 & 0xFFFFFFFF) * vocab) >> 32 for i in range(1, count + 1)]


def peak_bytes():
    """VmHWM of this process."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def main():
    request = json.loads(sys.argv[1])
    llama.llama_backend_init()
    silent = llama.llama_log_callback(lambda level, text, data: None)
    llama.llama_log_set(silent, ctypes.c_void_p(0))
    model_params = llama.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model_params.use_extra_bufts = request["repack"]
    model_params.load_mode = LOAD_MODES[request["load"]]
    model = llama.llama_model_load_from_file(request["gguf"].encode(), model_params)
    if not model:
        raise SystemExit("the model cannot be loaded")
    vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    longest = max(request["prompts"])
    params = llama.llama_context_default_params()
    params.n_ctx = longest
    params.n_batch = longest
    params.n_ubatch = min(request["ubatch"], longest)
    params.n_threads = params.n_threads_batch = request["threads"]
    params.flash_attn_type = int(request["flash"])
    params.no_perf = True
    context = llama.llama_init_from_model(model, params)
    if not context:
        raise SystemExit("the context cannot be made")
    loaded = time.monotonic() - START
    rows = []
    for count in request["prompts"]:
        ids = (llama.llama_token * count)(*prompt(count, vocab))
        seconds = []
        if request["warm"]:
            # Enough tokens to touch nearly every expert once, at the cost of few.
            llama.llama_memory_clear(llama.llama_get_memory(context), True)
            first = min(count, request["warm"])
            llama.llama_decode(context, llama.llama_batch_get_one(ids, first))
        for _ in range(request["runs"]):
            llama.llama_memory_clear(llama.llama_get_memory(context), True)
            begin = time.monotonic()
            # One batch: logits of the last token only, as a prefill wants them.
            if llama.llama_decode(context, llama.llama_batch_get_one(ids, count)) != 0:
                raise SystemExit(f"prefill of {count} tokens failed")
            logits = llama.llama_get_logits_ith(context, -1)
            logits[0]
            seconds.append(time.monotonic() - begin)
        top = max(range(vocab), key=logits.__getitem__)
        rows.append({"tokens": count, "seconds": seconds, "top": top})
    print(json.dumps({"loaded": loaded, "rows": rows, "peak_bytes": peak_bytes()}))


main()
