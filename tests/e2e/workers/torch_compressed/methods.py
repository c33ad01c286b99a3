"""The methods of gradient compression, as dictionaries: a row each."""

from typing import Dict

Params = Dict[str, object]

ONEBIT: Params = {"compressor": "onebit", "scaling": True}
# randomk, dithering and int8 are not here: their draws follow from the keys, and each optimizer of
# a job has keys of its own, so two optimizers that should do the same draw otherwise.
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
