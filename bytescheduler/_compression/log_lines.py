"""Lines of the log about gradient compression, for all frameworks."""

from typing import List, NamedTuple, Optional, Sequence

from bytescheduler._compression.params import Compression
from bytescheduler._native import Coding

__all__ = ["Size", "summary_line", "unsuited_line"]

_VERB = "compressed to "
_FLOAT_BYTES = 4
# Codecs that lose the size of a gradient, by their numbers, and optimizers that divide by it.
_LOSE_SIZE = {4: "onebit"}
_DIVIDE = ("adam", "adamw", "adamax", "lamb", "nadam", "radam", "rmsprop")


class Size(NamedTuple):
    """The size of a tensor."""

    elements: int
    size_bytes: int


def summary_line(compression: Compression, sizes: Sequence[Size]) -> str:
    """Return how much of a job's tensors is compressed, and how.

    Parameters
    ----------
    compression : Compression
        It has a coding.
    sizes : sequence of Size
        Those of all tensors.
    """
    coding = compression.coding
    assert coding is not None
    coded = [size for size in sizes if compression.coding_for(size.size_bytes) is not None]
    method = str(coding)[len(_VERB) :]
    if not coded:
        return (
            f"compressing none of {len(sizes)} tensors to {method}: all are below "
            f"BYTESCHEDULER_MIN_COMPRESS={compression.least_bytes}"
        )
    coded_bytes = sum(size.size_bytes for size in coded)
    all_bytes = sum(size.size_bytes for size in sizes)
    return (
        f"compressing {len(coded)} of {len(sizes)} tensors, "
        f"{100 * coded_bytes / all_bytes:.0f} % of the bytes: {method}: "
        f"{_shares(coding, coded, coded_bytes)}"
    )


def _shares(coding: Coding, coded: List[Size], coded_bytes: int) -> str:
    both = [coding.sizes(size.elements * _FLOAT_BYTES) for size in coded]
    pushed, pulled = (_share(sum(ways), coded_bytes) for ways in zip(*both))
    return f"{pushed} both ways" if pushed == pulled else f"{pushed} to the servers, {pulled} back"


def _share(sent_bytes: int, size_bytes: int) -> str:
    times = size_bytes / sent_bytes
    return "all" if times < 1.05 else f"1/{times:.2g}" if times < 10 else f"1/{times:.0f}"


def unsuited_line(coding: Optional[Coding], optimizer: str) -> Optional[str]:
    """Return a warning of a class of optimizers that `coding` suits badly; None: it suits."""
    name = None if coding is None else _LOSE_SIZE.get(coding.codec)
    if name is None or optimizer.lower() not in _DIVIDE:
        return None
    return (
        f"{optimizer} divides by the size of gradients, so what {name} loses may not come later as "
        "it does with SGD: watch the loss, or compress to 'bf16'"
    )
