"""Draw step times of a replay as bars: python -m benchmarks.plot replay.json docs/gain.svg."""

import json
import pathlib
import sys
from typing import Any, Dict, List

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402 - after the choice of back end

NAMES = {
    "stock": "MXNet dist_sync",
    "p3": "MXNet P3",
    "ours-fifo": "bytescheduler, in pieces,\nfirst come first served",
    "kvstore": "bytescheduler,\non MXNet's own servers",
    "ours": "bytescheduler",
    "ours-tuned": "bytescheduler,\ntuned by itself",
}


def draw(axes: Any, cell: Dict[str, Any]) -> None:  # noqa: ANN401 - no types
    """Draw one model's bars, and a line at what is physically possible."""
    times = {NAMES[arm]: cell["step_s"][arm] for arm in NAMES if cell["step_s"].get(arm)}
    colours = ["#2a7f62" if name == NAMES["ours"] else "#b8bec4" for name in times]
    bars = axes.barh(list(times), list(times.values()), color=colours)
    axes.bar_label(bars, [f"{time:.2f} s" for time in times.values()], padding=4)
    axes.axvline(cell["ideal_s"], color="black", linestyle=":", linewidth=1)
    axes.set_xlim(0, max(times.values()) * 1.25)
    axes.set_title(cell["name"], fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def main(paths: List[str]) -> None:
    """Read a replay's JSON and write an SVG."""
    if len(paths) != 2:
        raise SystemExit(__doc__)
    replay = json.loads(pathlib.Path(paths[0]).read_text())
    cells = replay["cells"]
    matplotlib.rcParams["svg.hashsalt"] = "bytescheduler"  # the same bytes for the same figures
    columns = min(2, len(cells))
    rows = -(-len(cells) // columns)
    height = 0.5 + 0.35 * len(cells[0]["step_s"])
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(4.5 * columns, height * rows), sharey=True, squeeze=False
    )
    for axes in grid.flat[len(cells) :]:
        axes.set_visible(False)
    for axes, cell in zip(grid.flat, cells):
        draw(axes, cell)
    grid.flat[0].invert_yaxis()
    figure.supxlabel(
        f"seconds a training step, 2 workers, 2 servers, {replay['rate']} links "
        "(dotted: the physical limit)",
        fontsize=9,
    )
    figure.tight_layout()
    figure.savefig(paths[1], bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1:])
