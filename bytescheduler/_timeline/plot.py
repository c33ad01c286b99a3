"""A step of a worker as a picture: when each tensor was queued, sent, and waited for."""

import io
import math
import os
from typing import TYPE_CHECKING, List, Mapping, Optional, Tuple

from bytescheduler._process.say import plain
from bytescheduler._timeline.files import TimelineError, is_bookkeeping
from bytescheduler._timeline.steps import Interval, Step, Tensor, union

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "kind_of"]

_MOST_LABELS = 40
_MOST_CHARACTERS = 40  # in a label
_ROW_INCHES = 0.12
_LEAST_INCHES = 3.6  # the labels of the axes need as much
# The three bars in a tensor's row: the attribute, its meaning, its colour.
_BARS = (
    ("queued", "queued for something more urgent, or for credit", "#b8bec4"),
    ("sent", "on the wire", "#2a7f62"),
    ("waited", "waiting for other workers and the way back", "#d98a29"),
)
_LOST = "#f3d4d4"
_LOST_NAME = "lost before the next forward"


def kind_of(path: str) -> str:
    """Return the kind of picture by the end of a file's name: svg, png, pdf.

    Raises TimelineError for another name, or if matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise TimelineError(
            "a plot needs matplotlib: python -m pip install 'bytescheduler[plot]'"
        ) from None
    kind = os.path.splitext(path)[1][1:].lower()
    if kind not in ("svg", "png", "pdf"):
        raise TimelineError(f"{path}: want a name that ends in .svg, .png or .pdf")
    return kind


def draw(
    step: Step, wait: Optional[Interval], names: Mapping[int, str], title: str, kind: str
) -> bytes:
    """Return the picture, with the time lost in the critical `wait` if that is known.

    Tensors have the names of `names`, or else their keys.
    """
    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = "bytescheduler"  # the same bytes for the same times
    rows = sorted(
        step.items(),
        key=lambda item: (is_bookkeeping(item[0]), -item[1].priority, item[0]),
    )
    figure = _figure(rows, wait, names, title)
    picture = io.BytesIO()
    figure.savefig(picture, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return picture.getvalue()


def _figure(
    rows: List[Tuple[int, Tensor]], wait: Optional[Interval], names: Mapping[int, str], title: str
) -> "Figure":
    """Return the picture of tensors in this order."""
    from matplotlib.figure import Figure

    zero = min(tensor.begin for _, tensor in rows)
    figure = Figure(figsize=(9, min(12.0, max(_LEAST_INCHES, 1.2 + _ROW_INCHES * len(rows)))))
    axes = figure.subplots()
    for bar, (name, meaning, colour) in enumerate(_BARS):
        bars = [
            ((begin - zero) * 1e3, row + bar / 3, (end - begin) * 1e3)
            for row, (_, tensor) in enumerate(rows)
            for begin, end in union(getattr(tensor, name))
        ]
        left, bottom, width = zip(*bars) if bars else ((), (), ())
        axes.barh(bottom, width, 1 / 3, left, align="edge", color=colour, label=meaning)
    if wait is not None:
        since, until = ((when - zero) * 1e3 for when in wait)
        axes.axvspan(since, until, color=_LOST, zorder=0, lw=0, label=_LOST_NAME)
    shown = range(0, len(rows), math.ceil(len(rows) / _MOST_LABELS))
    labels = [_label(names.get(rows[row][0], str(rows[row][0]))) for row in shown]
    axes.set_yticks([row + 0.5 for row in shown], labels)
    axes.tick_params(axis="y", labelsize=6, length=0)
    axes.set_ylim(len(rows), 0)
    axes.set_xlim(0, (max(tensor.end for _, tensor in rows) - zero) * 1e3)
    axes.set_xlabel("ms since the step's first gradient")
    axes.set_ylabel("key, the most urgent at the top")
    internal_rows = sum(is_bookkeeping(key) for key, _ in rows)
    if internal_rows:  # apart from the tensors of the script
        axes.axhline(len(rows) - internal_rows, color="black", lw=0.6)
    axes.set_title(title, fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, fontsize=7, frameon=False)
    figure.set_layout_engine("constrained")
    return figure


def _label(name: str) -> str:
    """Return a name without formulas of matplotlib, and not too long."""
    shown = plain(name if len(name) <= _MOST_CHARACTERS else f"{name[:_MOST_CHARACTERS]}…")
    return shown.replace("$", r"\$")
