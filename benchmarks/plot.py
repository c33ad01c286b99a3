"""Draw what a benchmark's JSON says: python -m benchmarks.plot replay.json docs/gain.svg.

Of a replay step times; of `benchmarks.small` and `benchmarks.train` each figure's medians by arm;
of `benchmarks.scale` a step over the number of workers.
"""

import json
import pathlib
import sys
from typing import Any, Callable, Dict, List, Tuple

from . import picture

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
    best = (NAMES["ours"], NAMES["ours-tuned"])
    colours = ["#2a7f62" if name in best else "#b8bec4" for name in times]
    bars = axes.barh(list(times), list(times.values()), color=colours)
    axes.bar_label(bars, [f"{time:.2f} s" for time in times.values()], padding=4)
    axes.axvline(cell["ideal_s"], color="black", linestyle=":", linewidth=1)
    axes.set_xlim(0, max(times.values()) * 1.25)
    axes.set_title(cell["name"], fontsize=9)


def of_replay(replay: Dict[str, Any]) -> Any:  # noqa: ANN401 - no types
    """Draw each model of a replay."""
    cells = replay["cells"]
    columns = min(2, len(cells))
    rows = -(-len(cells) // columns)
    height = 0.5 + 0.35 * len(cells[0]["step_s"])
    figure, grid = picture.subplots(
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
    return figure


def of_medians(result: Dict[str, Any]) -> Any:  # noqa: ANN401 - no types
    """Draw bars of the arms for each figure of the first of them, which some may lack."""
    arms = {arm: of_arm for arm, of_arm in result["medians"].items() if of_arm}
    names = [
        name for name, value in next(iter(arms.values())).items() if isinstance(value, (int, float))
    ]
    size = (3.4 * len(names), 0.8 + 0.3 * len(arms))
    figure, grid = picture.subplots(1, len(names), figsize=size, sharey=True, squeeze=False)
    for axes, name in zip(grid.flat, names):
        values = [of_arm.get(name, 0) for of_arm in arms.values()]
        bars = axes.barh(list(arms), values, color="#2a7f62")
        axes.bar_label(bars, [f"{value:.4g}" if value else "" for value in values], padding=4)
        axes.set_xlim(0, max(values) * 1.3)
        axes.set_title(name.replace("_", " "), fontsize=9)
    grid.flat[0].invert_yaxis()
    return figure


def of_scale(result: Dict[str, Any]) -> Any:  # noqa: ANN401 - no types
    """Draw how long a step takes with more and more workers, and the ideal."""
    rows = result["rows"]
    figure, axes = picture.subplots(figsize=(4.5, 3))
    workers = [row["workers"] for row in rows]
    axes.loglog(workers, [row["step_s"] for row in rows], "o-", color="#2a7f62", label="a step")
    axes.loglog(workers, [row["ideal_s"] for row in rows], "k:", label="the physical limit")
    axes.set_xlabel("workers")
    axes.set_ylabel("seconds, simulated")
    axes.legend(frameon=False)
    return figure


KINDS: Tuple[Tuple[str, Callable[[Dict[str, Any]], Any]], ...] = (
    ("cells", of_replay),
    ("medians", of_medians),
    ("rows", of_scale),
)


def main(paths: List[str]) -> None:
    """Read a benchmark's JSON and write an SVG."""
    if len(paths) != 2:
        raise SystemExit(__doc__)
    result = json.loads(pathlib.Path(paths[0]).read_text())
    drawn = next((of_kind for name, of_kind in KINDS if name in result), None)
    if drawn is None:
        raise SystemExit(f"{paths[0]}: of none of the benchmarks that this draws\n{__doc__}")
    picture.save(drawn(result), paths[1])


if __name__ == "__main__":
    main(sys.argv[1:])
