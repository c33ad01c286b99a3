"""Pictures of what was measured, as SVG: the same bytes for the same figures. Needs matplotlib."""

from typing import Any, List, Sequence

_LABEL_POINTS = 8  # the size of a curve's label
_GAP_POINTS = 10  # from one label to the next


def subplots(*grid: int, **how: Any) -> Any:  # noqa: ANN401 - matplotlib has no types
    """Return a figure and its axes, as `pyplot.subplots` does."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "bytescheduler"
    return pyplot.subplots(*grid, **how)


def apart(places: Sequence[float], gap: float) -> List[float]:
    """Return the nearest places that are in the same order and at least `gap` apart.

    Places that are too near form a group, whose middle stays; groups that meet become one.
    """
    order = sorted(range(len(places)), key=lambda number: places[number])
    groups: List[List[float]] = []  # the places of each, as if there were no gap
    for rank, number in enumerate(order):
        groups.append([places[number] - rank * gap])
        while len(groups) > 1 and _mean(groups[-2]) > _mean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    packed = [_mean(group) for group in groups for _ in group]
    found = [0.0] * len(places)
    for rank, number in enumerate(order):
        found[number] = packed[rank] + rank * gap
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def label_ends(axes: Any) -> None:  # noqa: ANN401 - no types
    """Write the label of each curve beside its right end, in its colour; no label hides another."""
    axes.figure.tight_layout()  # the height of the axes stays, so the places of ends do
    points = 72 / axes.figure.dpi  # in a pixel
    curves = [curve for curve in axes.get_lines() if len(curve.get_xdata())]
    ends = [(curve.get_xdata()[-1], curve.get_ydata()[-1]) for curve in curves]
    heights = [points * axes.transData.transform(end)[1] for end in ends]
    for curve, end, height, place in zip(curves, ends, heights, apart(heights, _GAP_POINTS)):
        axes.annotate(
            curve.get_label(),
            end,
            (6, place - height),
            textcoords="offset points",
            color=curve.get_color(),
            fontsize=_LABEL_POINTS,
            va="center",
        )


def save(figure: Any, path: str) -> None:  # noqa: ANN401 - no types
    """Write the figure without frames."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
