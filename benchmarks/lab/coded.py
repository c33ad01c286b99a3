"""Arms whose gradients travel compressed: their choice, their ideal, their sums and their table."""

import argparse
import statistics
from itertools import accumulate
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

from benchmarks.lab import lab_job, options
from bytescheduler._advise import links, models
from bytescheduler._advise.coded import Coded, coded_job, coded_sizes
from bytescheduler._advise.shape import Shape
from bytescheduler._compression.params import Compression, compression_of
from bytescheduler._settings import Settings

PLAIN = "ours"
# Equal numbers, as a replay's gradients are, come out of these as they went in.
_KEEP_EQUAL_NUMBERS = ("onebit", "dithering", "int8", "bf16", "fp16")
_FLOAT32_BITS, _FLOAT32_BYTES = 24, 4
_BITS = {"bf16": 8, "fp16": 11}  # that are significant; others keep those of float32


def add_option(parser: argparse.ArgumentParser) -> None:
    """Let the caller choose methods; `args.compression` is a list of them, empty if none is."""
    names = ",".join(lab_job.METHODS)
    parser.add_argument(
        "--compression",
        type=options.names(lab_job.METHODS),
        default=[],
        metavar="METHOD,...",
        help=f"compare arms whose gradients are compressed with plain ones; of {names}",
    )


def arms_of(methods: Sequence[str], others: Sequence[str], plain: str = PLAIN) -> List[str]:
    """Return the arms of methods behind `others`; the plain arm stands first if it was left out."""
    coded = [f"{plain}-{method}" for method in methods]
    first = [plain] if coded and plain not in others else []
    return [*first, *others, *(arm for arm in coded if arm not in others)]


def sums_are_whole(params: Optional[Dict[str, object]]) -> bool:
    """Return whether sums of equal numbers come back whole, but for their `Rounding`.

    None: nothing is compressed.
    """
    return params is None or params.get("compressor") in _KEEP_EQUAL_NUMBERS


class Rounding(NamedTuple):
    """The significant bits that numbers keep on their way."""

    pushed: int = _FLOAT32_BITS
    pulled: int = _FLOAT32_BITS

    def sum_of(self, numbers: Iterable[int]) -> int:
        """Return the sum of whole numbers of the workers, as all of them get it."""
        return rounded(sum(rounded(number, self.pushed) for number in numbers), self.pulled)


def rounding_of(params: Optional[Dict[str, object]], size_bytes: int) -> Rounding:
    """Return the rounding of a tensor of that size; None: nothing is compressed."""
    if params is None:
        return Rounding()
    compression = compression_of(params, Settings.read().min_compress_bytes)
    if compression.coding_for(size_bytes, _FLOAT32_BYTES) is None:
        return Rounding()
    bits = _BITS.get(str(params.get("compressor")), _FLOAT32_BITS)
    pulled = {"same": bits, "plain": _FLOAT32_BITS, "bf16": _BITS["bf16"]}
    return Rounding(bits, pulled[str(params.get("pull", "same"))])


def rounded(number: int, bits: int) -> int:
    """Return a number from 0 on with that many significant bits; a tie goes to the even one."""
    unit = 1 << max(0, number.bit_length() - bits)
    below, rest = divmod(number, unit)
    is_up = 2 * rest > unit or (2 * rest == unit and below % 2 == 1)
    return (below + is_up) * unit


def ideals(
    steps: List[models.Step], arms: Sequence[str], shape: Shape, payload_bytes_per_s: float
) -> Dict[str, float]:
    """Return the shortest possible step of each arm that compresses, which counts its codes."""
    least_bytes = Settings.read().min_compress_bytes
    return {
        arm: _ideal_s(
            steps, compression_of(lab_job.COMPRESSION[arm], least_bytes), shape, payload_bytes_per_s
        )
        for arm in arms
        if arm in lab_job.COMPRESSION
    }


def _ideal_s(
    steps: List[models.Step], compression: Compression, shape: Shape, payload_bytes_per_s: float
) -> float:
    pushed, pulled = zip(*(coded_sizes(step, compression) for step in steps))
    crossed = zip(accumulate(pushed), accumulate(pulled))  # up to each layer
    seconds = [links.crossing_s(shape, payload_bytes_per_s, *sizes) for sizes in crossed]
    return models.shortest_s(steps, seconds)


def job_of(arm: str, steps: List[models.Step]) -> Optional[Coded]:
    """Return how layers travel; None if nothing is compressed."""
    if arm not in lab_job.COMPRESSION:
        return None
    params = lab_job.COMPRESSION[arm]
    compression = compression_of(params, Settings.read().min_compress_bytes)
    return coded_job(steps, compression, str(params.get("compressor", params.get("type"))))


def lines(result: Dict[str, Any]) -> List[str]:
    """Return a table of what compression brings, in Markdown; none if nothing was compressed."""
    cells = [cell for cell in result["cells"] if cell.get("coded_s")]
    if not cells:
        return []
    arms = list(cells[0]["coded_s"])
    rows = [["what compression brings", *arms]]
    for cell in cells:
        times = {arm: _median(runs) for arm, runs in cell["all_s"].items()}
        plain_s = times.get(PLAIN)
        rows.append([f"ours / arm: {cell['name']}", *(_ratio(plain_s, times[arm]) for arm in arms)])
        shares = (_ratio(cell["coded_s"][arm], times[arm]) for arm in arms)
        rows.append([f"ideal with codes / arm: {cell['name']}", *shares])
    table = ["| " + " | ".join(row) + " |" for row in rows]
    return ["", table[0], "|---" * len(rows[0]) + "|", *table[1:]]


def _median(runs: Sequence[Optional[float]]) -> Optional[float]:
    """Return that of the runs that ended; None: none did."""
    ended = [run for run in runs if run is not None]
    return statistics.median(ended) if ended else None


def _ratio(over: Optional[float], under: Optional[float]) -> str:
    return "–" if over is None or under is None else f"{over / under:.3f}"
