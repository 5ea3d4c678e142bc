"""Makes tests/data/codecs: blocks of every ggml type that has a codec, and the values that the PyPI package `gguf`
dequantises them to.

    python3 -m venv venv && venv/bin/pip install gguf numpy
    venv/bin/python codecs.py

For each type there is TYPE.bin, the rows of all widths end to end as a GGUF stores them, and TYPE.npy, their float32
values. Bytes are random but for the halves, which are kept finite. Widths and rows are also listed in
`tests/tests/codecs.rs`.
"""

import pathlib

import numpy
from gguf import GGMLQuantizationType as Type
from gguf import GGML_QUANT_SIZES
from gguf.quants import dequantize

SMALL = [(32, 33), (96, 5), (288, 3), (2880, 1)]
SUPER = [(256, 33), (768, 2), (2304, 1)]
# Byte offsets of halves in a block.
HALVES = {
    "F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "MXFP4": [], "F32": [], "BF16": [],
}

folder = pathlib.Path(__file__).parent / "codecs"
folder.mkdir(exist_ok=True)
random = numpy.random.default_rng(1)
for name, halves in HALVES.items():
    kind = Type[name]
    block, size = GGML_QUANT_SIZES[kind]
    rows, values = [], []
    for width, count in SUPER if block == 256 else SMALL:
        blocks = random.integers(0, 256, (count * width // block, size), dtype=numpy.uint8)
        for at in halves:
            half = random.normal(0, 0.02, len(blocks)).astype(numpy.float16)
            blocks[:, at : at + 2] = half.view(numpy.uint8).reshape(-1, 2)
        if name in ("F32", "BF16"):
            plain = random.normal(0, 1, len(blocks)).astype(numpy.float32).view(numpy.uint8).reshape(-1, 4)
            blocks = plain[:, 4 - size :].copy()
        if name == "MXFP4":
            # From the smallest exponent that the doubled table can state to the largest that stays finite.
            blocks[:, 0] = random.integers(1, 252, len(blocks))
            blocks[:8, 0] = [1, 2, 120, 125, 126, 127, 128, 251]
        rows.append(blocks.tobytes())
        raw = blocks.reshape(count, -1)
        values.append(dequantize(raw.view(numpy.float16 if name == "F16" else numpy.float32)
                                 if name in ("F16", "F32") else raw, kind).astype(numpy.float32).reshape(-1))
    (folder / f"{name}.bin").write_bytes(b"".join(rows))
    numpy.save(folder / f"{name}.npy", numpy.concatenate(values))
