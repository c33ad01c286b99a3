"""Gradients that travel compressed: what of a model's layers crosses the links."""

from typing import Dict, List, Tuple

from bytescheduler._advise.models import Step
from bytescheduler._compression.params import Compression, compression_of
from bytescheduler._process.say import plain
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError

__all__ = ["coded_layers", "coded_sizes", "method_of"]

_FLOAT32_BYTES = 4
# The options of each method, and an example of its k if it needs one.
_METHODS: Dict[str, Tuple[Dict[str, object], str]] = {
    "bf16": ({}, ""),
    "fp16": ({}, ""),
    "int8": ({}, ""),
    "onebit": ({"scaling": True, "ef": "vanilla"}, ""),
    "topk": ({"ef": "vanilla"}, "0.01"),
    "randomk": ({"ef": "vanilla"}, "0.03"),
    "dithering": ({}, "7"),
}
_WANTED = ", ".join(f"{name}={k}" if k else name for name, (_, k) in _METHODS.items())


def method_of(text: str) -> Compression:
    """Return the compression that a method's name, with its k if it needs any, asks for.

    Raises
    ------
    ConfigError
        There is no such method, or its k makes no sense.
    """
    name, _, k = text.partition("=")
    options, example = _METHODS.get(name, ({}, ""))
    if name not in _METHODS or bool(k) is not bool(example):
        raise ConfigError(f"--compression {plain(text)}: want one of {_WANTED}", 1)
    params = {"compressor": name, **options, **({"k": k} if k else {})}
    return compression_of(params, Settings.read().min_compress_bytes)


def coded_sizes(layer: Step, compression: Compression) -> Tuple[int, int]:
    """Return the bytes that travel of a layer, as gradient and as sum; it is float32."""
    coding = compression.coding_for(layer.size_bytes, _FLOAT32_BYTES)
    if coding is None:
        return layer.size_bytes, layer.size_bytes
    return coding.sizes(layer.size_bytes - layer.size_bytes % _FLOAT32_BYTES)


def coded_layers(layers: List[Step], compression: Compression) -> List[Step]:
    """Return layers with the bytes that travel of them, the way that has more; all are float32."""
    return [layer._replace(size_bytes=max(coded_sizes(layer, compression))) for layer in layers]
