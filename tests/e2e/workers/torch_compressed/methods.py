"""The methods of gradient compression, as dictionaries: a row each."""

from typing import Dict

Params = Dict[str, object]

ONEBIT: Params = {"compressor": "onebit", "scaling": True}
# Their draws follow from the keys, and each optimizer of a job has keys of its own.  So jobs are
# compared whose optimizers come in the same order.
RANDOM: Dict[str, Params] = {
    "randomk": {"compressor": "randomk", "k": 0.25, "seed": 5},
    "randomk, sparse": {"compressor": "randomk", "k": 0.25, "seed": 6, "ef": "sparse"},
    "dithering": {"compressor": "dithering", "k": 7, "bucket": 64, "seed": 7, "ef": "corrected"},
    "int8": {"compressor": "int8", "seed": 8},
}
METHODS: Dict[str, Params] = {
    "bf16": {"compressor": "bf16"},
    "bf16, sums plain": {"compressor": "bf16", "pull": "plain"},
    "fp16": {"compressor": "fp16"},
    "onebit": ONEBIT,
    "onebit, vanilla": {**ONEBIT, "ef": "vanilla"},
    "onebit, corrected": {**ONEBIT, "ef": "corrected"},
    "onebit, corrected, momentum": {
        **ONEBIT,
        "ef": "corrected",
        "momentum": "nesterov",
        "mu": 0.9,
    },
    "topk": {"compressor": "topk", "k": 0.25},
    "topk, whole k, halves, vanilla": {
        "compressor": "topk",
        "k": 16,
        "fp16": True,
        "ef": "vanilla",
    },
    "two bits": {"type": "2bit", "threshold": 0.005},
    "two bits, sums too": {"type": "2bit", "threshold": 0.005, "pull": "same"},
    "momentum": {"momentum": "nesterov", "mu": 0.9},
}
