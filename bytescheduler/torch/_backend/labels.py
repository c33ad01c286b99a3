"""Texts that ranks compare: the call, its number, its group, dtypes and shapes."""

import hashlib
from typing import Iterable, List, Sequence

import torch

__all__ = ["dtype_text", "label_of", "tensors_text"]

_MOST_BYTES = 200  # that the engine compares
_HEAD_BYTES = 176


def dtype_text(dtype: torch.dtype) -> str:
    """Return the name of a dtype, such as float32."""
    return str(dtype).replace("torch.", "")


def _shape(tensor: torch.Tensor) -> str:
    return f"{dtype_text(tensor.dtype)} {list(tensor.shape)}"


def tensors_text(tensors: Sequence[torch.Tensor]) -> str:
    """Return dtypes and shapes; equal neighbours are counted."""
    runs: List[List[object]] = []
    for text in map(_shape, tensors):
        if runs and runs[-1][1] == text:
            runs[-1][0] = int(str(runs[-1][0])) + 1
        else:
            runs.append([1, text])
    return ", ".join(str(text) if count == 1 else f"{count} of {text}" for count, text in runs)


def label_of(parts: Iterable[str]) -> str:
    """Join the parts of a label; a long label ends with a digest, so that it stays distinct."""
    text = ", ".join(part for part in parts if part)
    data = text.encode()
    if len(data) <= _MOST_BYTES:
        return text
    head = data[:_HEAD_BYTES].decode(errors="ignore")
    return f"{head}... {hashlib.blake2b(data, digest_size=8).hexdigest()}"
