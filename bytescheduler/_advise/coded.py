"""Gradients that travel compressed: what of a model's layers crosses the links, and coding it."""

from typing import Dict, List, NamedTuple, Tuple

from bytescheduler._advise.models import Step
from bytescheduler._compression.params import Compression, compression_of
from bytescheduler._process.say import plain
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError

__all__ = [
    "NO_CODING",
    "SPEEDS",
    "Coded",
    "CodingSeconds",
    "coded_job",
    "coded_layers",
    "coded_sizes",
    "method_of",
]

_FLOAT32_BYTES = 4
# The engine's rules: how coded keys are cut, and how codes count (src/codec/codec.cc).
_UNIT_BYTES = 65536 * _FLOAT32_BYTES
_MOST_CODED_SHARE = 8
_LEAST_PARTITION = 64  # so few codes take no time; predictions refuse less (src/predict)
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
_SUMS_AS_FLOAT32, _SUMS_IN_BF16 = 0, 2  # Coding.pull
_WANTED = ", ".join(f"{name}={k}" if k else name for name, (_, k) in _METHODS.items())
# The float32 that a core codes, GB a second, with a residual (kept) and without (alone): the
# figures of docs/results/coding.json.  The data's are those of a normal distribution.
SPEEDS = {
    "encode/2bit/kept": 3.86,
    "encode/bf16/alone": 7.79,
    "encode/fp16/alone": 8.09,
    "encode/int8/alone": 4.63,
    "encode/int8/kept": 3.19,
    "encode/onebit/alone": 4.91,
    "encode/onebit/kept": 4.1,
    "encode/topk/alone": 4.15,
    "encode/topk/kept": 3.11,
    "encode/randomk/alone": 7.33,
    "encode/randomk/kept": 4.32,
    "encode/dithering/alone": 4.59,
    "encode/dithering/kept": 3.36,
    "add/2bit": 15.41,
    "add/bf16": 39.28,
    "add/fp16": 40.19,
    "add/int8": 15.79,
    "add/onebit": 37.92,
    "add/topk": 367.54,
    "add/randomk": 70.88,
    "add/dithering": 40.65,
    "decode/2bit": 7.31,
    "decode/bf16": 8.11,
    "decode/fp16": 7.57,
    "decode/int8": 7.91,
    "decode/onebit": 8.12,
    "decode/topk": 10.98,
    "decode/randomk": 9.82,
    "decode/dithering": 8.24,
}


# The seconds of a core for each byte that travels: a worker codes gradients, a server adds them,
# it codes the sum once, and a worker decodes that.
CodingSeconds = Tuple[float, float, float, float]
NO_CODING: CodingSeconds = (0.0, 0.0, 0.0, 0.0)


class Coded(NamedTuple):
    """A model that travels compressed."""

    layers: List[Step]  # with the bytes that travel of them
    coding_s: CodingSeconds
    unit_bytes: int  # the codes of a unit

    def sizes(self, partition_bytes: int, credit_bytes: int) -> Tuple[int, int]:
        """Return partition and credit, in codes, of a job that has these for what is not coded."""
        counted = max(self.unit_bytes, _UNIT_BYTES // _MOST_CODED_SHARE)
        units = max(1, partition_bytes // _UNIT_BYTES)
        partition = max(_LEAST_PARTITION, units * self.unit_bytes)
        return partition, max(1, credit_bytes * self.unit_bytes // counted)


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


def coded_job(layers: List[Step], compression: Compression, method: str) -> Coded:
    """Return a model that travels compressed by a method, such as "topk"; layers are float32."""
    coding = compression.coding
    assert coding is not None
    travelling = coded_layers(layers, compression)
    coded_bytes = sum(
        layer.size_bytes
        for layer in layers
        if compression.coding_for(layer.size_bytes, _FLOAT32_BYTES) is not None
    )
    share = coded_bytes / max(1, sum(layer.size_bytes for layer in travelling))
    kept, alone = f"encode/{method}/kept", f"encode/{method}/alone"
    encode_s = _seconds(kept if coding.feedback or alone not in SPEEDS else alone)
    encode_sum_s, decode_s = encode_s, _seconds(f"decode/{method}")
    if coding.pull == _SUMS_AS_FLOAT32:
        encode_sum_s = decode_s = 0.0
    elif coding.pull == _SUMS_IN_BF16:
        encode_sum_s, decode_s = _seconds("encode/bf16/alone"), _seconds("decode/bf16")
    return Coded(
        travelling,
        (
            share * encode_s,
            share * _seconds(f"add/{method}"),
            share * encode_sum_s,
            share * decode_s,
        ),
        max(coding.sizes(_UNIT_BYTES)),
    )


def _seconds(speed: str) -> float:
    """Return those for a byte of float32."""
    return 1 / (1e9 * SPEEDS[speed])
