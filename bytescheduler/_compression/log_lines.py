"""Lines of the log about gradient compression, for all frameworks."""

from typing import List, NamedTuple, Optional, Sequence

from bytescheduler._compression.params import Compression
from bytescheduler._native import Coding

__all__ = ["Size", "summary_line", "unsuited_line"]

_VERB = "compressed to "
_FLOAT_BYTES = 4
# Codecs that lose the size of a gradient, by their numbers, and optimizers that divide by it.
_LOSE_SIZE = {4: "onebit", 5: "topk"}
_DIVIDE = ("adam", "adamw", "adamax", "lamb", "nadam", "radam", "rmsprop")


class Size(NamedTuple):
    """The size of a tensor."""

    elements: int
    element_bytes: int
    is_plain: bool = False  # whatever its size

    @property
    def size_bytes(self) -> int:
        """The bytes of the tensor."""
        return self.elements * self.element_bytes


def summary_line(compression: Compression, sizes: Sequence[Size], *, one_way: bool = False) -> str:
    """Return how much of a job's tensors is compressed, and how.

    Parameters
    ----------
    compression : Compression
        It has a coding.
    sizes : sequence of Size
        Those of all tensors.
    one_way : bool
        Whether weights come back, and not sums.
    """
    method = str(compression.coding)[len(_VERB) :].replace(", ef ", ", ef=")
    coded: List[_Coded] = []
    for size in sizes:
        coding = compression.coding_for(size.size_bytes, size.element_bytes)
        if coding is not None and not size.is_plain:
            coded.append(_Coded(size, coding))
    if not coded:
        no_smaller = "" if compression.picks is None else ", or their codes are no smaller"
        return (
            f"compressing none of {len(sizes)} tensors to {method}: all are below "
            f"BYTESCHEDULER_MIN_COMPRESS={compression.least_bytes}{no_smaller}"
        )
    coded_bytes = sum(tensor.size.size_bytes for tensor in coded)
    all_bytes = sum(size.size_bytes for size in sizes)
    return (
        f"compressing {len(coded)} of {len(sizes)} tensors, "
        f"{100 * coded_bytes / all_bytes:.0f} % of the bytes: {method}: "
        f"{_shares(coded, coded_bytes, one_way=one_way)}"
    )


class _Coded(NamedTuple):
    size: Size
    coding: Coding


def _shares(coded: List[_Coded], coded_bytes: int, *, one_way: bool) -> str:
    both = [tensor.coding.sizes(tensor.size.elements * _FLOAT_BYTES) for tensor in coded]
    pushed, pulled = (_share(sum(ways), coded_bytes) for ways in zip(*both))
    if one_way:
        return f"{pushed} to the servers, weights back"
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
