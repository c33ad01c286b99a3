"""The methods of gradient compression, as dictionaries: a row each."""

from typing import Dict

Params = Dict[str, object]

ONEBIT: Params = {"compressor": "onebit", "scaling": True}
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
    "two bits": {"type": "2bit", "threshold": 0.005},
    "two bits, sums too": {"type": "2bit", "threshold": 0.005, "pull": "same"},
    "momentum": {"momentum": "nesterov", "mu": 0.9},
}
