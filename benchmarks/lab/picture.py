"""Pictures of what was measured, as SVG: the same bytes for the same figures. Needs matplotlib."""

from typing import Any


def subplots(*grid: int, **how: Any) -> Any:  # noqa: ANN401 - matplotlib has no types
    """Return a figure and its axes, as `pyplot.subplots` does."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "bytescheduler"
    return pyplot.subplots(*grid, **how)


def save(figure: Any, path: str) -> None:  # noqa: ANN401 - no types
    """Write the figure without frames."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
