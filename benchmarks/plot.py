"""Draw step times of replays as bars: python -m benchmarks.plot REPLAY.json... docs/gain.svg."""

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
}


def draw(axes: Any, replay: Dict[str, Any]) -> None:  # noqa: ANN401 - no types
    """Draw one model's bars, and a line at what is physically possible."""
    arms = [arm for arm in NAMES if arm in replay["step_s"]]
    times = [replay["step_s"][arm] for arm in arms]
    colours = ["#2a7f62" if arm == "ours" else "#b8bec4" for arm in arms]
    bars = axes.barh([NAMES[arm] for arm in arms], times, color=colours)
    axes.bar_label(bars, [f"{time:.2f} s" for time in times], padding=4)
    axes.axvline(replay["ideal_s"], color="black", linestyle=":", linewidth=1)
    axes.set_xlim(0, max(times) * 1.25)
    axes.set_title(f"{replay['model']}, 1/{replay['scale']} of its parameters", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def main(paths: List[str]) -> None:
    """Read replays' JSON and write an SVG."""
    if len(paths) < 2:
        raise SystemExit(__doc__)
    replays = [json.loads(pathlib.Path(path).read_text()) for path in paths[:-1]]
    matplotlib.rcParams["svg.hashsalt"] = "bytescheduler"  # the same bytes for the same figures
    columns = min(2, len(replays))
    rows = -(-len(replays) // columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(4.5 * columns, 2.2 * rows), sharey=True, squeeze=False
    )
    for axes in grid.flat[len(replays) :]:
        axes.set_visible(False)
    for axes, replay in zip(grid.flat, replays):
        draw(axes, replay)
    grid.flat[0].invert_yaxis()
    figure.supxlabel(
        f"seconds a training step, 2 workers, 2 servers, {replays[0]['rate']} links "
        "(dotted: the physical limit)",
        fontsize=9,
    )
    figure.tight_layout()
    figure.savefig(paths[-1], bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main(sys.argv[1:])
