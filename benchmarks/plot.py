"""Draw the step times of a replay as bars: python -m benchmarks.plot replay.json docs/gain.svg."""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402 - after the choice of back end

NAMES = {
    "stock": "MXNet dist_sync",
    "p3": "MXNet P3",
    "ours-fifo": "bytescheduler,\npartitioned but first come first served",
    "ours": "bytescheduler",
}


def main() -> None:
    """Read the replay's JSON and write an SVG."""
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    replay = json.loads(pathlib.Path(sys.argv[1]).read_text())
    matplotlib.rcParams["svg.hashsalt"] = "bytescheduler"  # the same bytes for the same figures
    figure, axes = pyplot.subplots(figsize=(8, 2.6))
    arms = [arm for arm in NAMES if arm in replay["step_s"]]
    times = [replay["step_s"][arm] for arm in arms]
    colours = ["#2a7f62" if arm == "ours" else "#b8bec4" for arm in arms]
    bars = axes.barh([NAMES[arm] for arm in arms], times, color=colours)
    axes.bar_label(bars, [f"{time:.2f} s" for time in times], padding=4)
    axes.axvline(replay["ideal_s"], color="black", linestyle=":", linewidth=1)
    axes.set_xlim(0, max(times) * 1.12)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(
        f"seconds a training step, {replay['model'].upper()} with 1/{replay['scale']} of its "
        f"parameters, 2 workers, 2 servers, {replay['rate']} links (dotted: the physical limit)"
    )
    figure.savefig(sys.argv[2], bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main()
