"""The picture of a step: which one is drawn, as what, and what is refused."""

import json
import pathlib
import sys
from typing import Any, Dict, List, Tuple

import pytest
from click_runner import Runner

from bytescheduler import timeline
from bytescheduler._native import FIRST_BOOKKEEPING_KEY
from bytescheduler._timeline import plot, steps

Event = Dict[str, Any]


def about(rank: int) -> Event:
    args: Dict[str, Any] = {"version": 1, "role": "worker", "rank": rank, "host": "h"}
    args.update({"num_workers": 2, "num_servers": 1, "start_ns": 0})
    return {"name": "bytescheduler", "ph": "M", "pid": rank + 1, "tid": 0, "args": args}


def span(kind: str, when: Tuple[float, float], **about: int) -> Event:
    where = {"key": 7, "part": 0, "round": 1, "bytes": 100, "priority": -7, "server": 0}
    args = {**where, **about}
    begin, end = when
    return {
        "cat": kind,
        "ph": "X",
        "pid": 1,
        "ts": begin * 1e6,
        "dur": (end - begin) * 1e6,
        "args": args,
    }


def a_step(number: int, seconds: float) -> List[Event]:
    begin = number * 100.0
    return [
        span("push", (begin, begin + 1), round=number),
        span("pull", (begin, begin + seconds), round=number),
    ]


def timeline_of(path: pathlib.Path, *events: Event) -> str:
    lines = ",\n".join(json.dumps(event) for event in [about(0), *events])
    path.write_text(f"[\n{lines}\n]\n")
    return str(path)


def test_the_command_draws_the_median_step_or_the_one_named(tmp_path: pathlib.Path) -> None:
    file = timeline_of(tmp_path / "t.json", *a_step(1, 90), *a_step(2, 2), *a_step(3, 3))
    pictures = {}
    for name, more, title in [
        ("a.svg", [], "worker 0, step 3: 3000.00 ms"),
        ("b.svg", ["--step", "2", "--rank", "0"], "worker 0, step 2: 2000.00 ms"),
    ]:
        out = tmp_path / name
        done = Runner().invoke(timeline.timeline, [file, "--plot", str(out), *more])
        assert done.exit_code == 0, done.output
        assert "A step, medians in milliseconds" in done.output
        pictures[name] = out.read_text()
        assert f"<!-- {title} -->" in pictures[name]
        assert "<!-- waiting for other workers and the way back -->" in pictures[name]
    assert pictures["a.svg"] != pictures["b.svg"]
    assert "<!-- lost before the next forward -->" not in pictures["a.svg"]
    png = tmp_path / "c.png"
    assert Runner().invoke(timeline.timeline, [file, "--plot", str(png)]).exit_code == 0
    assert png.read_bytes().startswith(b"\x89PNG")


def test_the_picture_shows_the_time_lost_before_the_next_forward(tmp_path: pathlib.Path) -> None:
    front = span("front", (101, 102.5))
    file = timeline_of(tmp_path / "t.json", *a_step(1, 3), front)
    out = tmp_path / "a.svg"
    done = Runner().invoke(timeline.timeline, [file, "--plot", str(out)])
    assert done.exit_code == 0, done.output
    assert "<!-- lost before the next forward -->" in out.read_text()


def test_the_command_refuses_pictures_that_it_cannot_draw(tmp_path: pathlib.Path) -> None:
    file = timeline_of(tmp_path / "t.json", *a_step(1, 90))
    svg, full = str(tmp_path / "a.svg"), tmp_path / "full.svg"
    full.symlink_to("/dev/full")
    for arguments, message in [
        (["--plot", svg, "--step", "9"], "rank 0 made no step 9: its last is 1"),
        (["--plot", svg, "--rank", "1"], "there is no step of rank 1 in these files, only of 0"),
        (["--plot", str(tmp_path / "a.docx")], "a.docx: want a name that ends in .svg, .png or"),
        (["--plot", str(tmp_path / "a.pgf")], "a.pgf: want a name that ends in .svg, .png or .pdf"),
        (["--plot", str(tmp_path / "noext")], "noext: want a name that ends in .svg, .png or .pdf"),
        (["--plot", str(tmp_path / "a.")], "a.: want a name that ends in .svg, .png or .pdf"),
        (["--plot", str(tmp_path / ".png")], ".png: want a name that ends in .svg, .png or .pdf"),
        (["--plot", str(tmp_path / "no" / "a.svg")], "no/a.svg: No such file or directory"),
        (["--plot", str(full)], f"bytescheduler: {full}: No space left on device\n"),
        (["--plot", file], "is one of the files to read"),
        (["--plot", svg, "-o", svg], "a.svg: both the timeline and the picture"),
        (["--rank", "0"], "--plot FILE is missing"),
        (["--plot", svg, "--step", "0"], "0: want a whole number from 1"),
    ]:
        done = Runner().invoke(timeline.timeline, [file, *arguments])
        assert done.exit_code == 2, arguments
        assert message in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full.svg", "t.json"]


def test_a_picture_that_cannot_be_drawn_costs_neither_an_older_one_nor_a_timeline(
    tmp_path: pathlib.Path,
) -> None:
    file = timeline_of(tmp_path / "t.json", *a_step(1, 90))
    svg, out = tmp_path / "a.svg", tmp_path / "all.json"
    svg.write_text("an older one")
    out.write_text("an older one")
    words = [file, "--plot", str(svg), "-o", str(out), "--step", "9"]
    assert Runner().invoke(timeline.timeline, words).exit_code == 2
    assert svg.read_text() == out.read_text() == "an older one"


def test_a_name_in_capitals_is_the_name_of_the_picture(tmp_path: pathlib.Path) -> None:
    file = timeline_of(tmp_path / "t.json", *a_step(1, 90))
    out = tmp_path / "A.SVG"
    assert Runner().invoke(timeline.timeline, [file, "--plot", str(out)]).exit_code == 0
    assert "<svg" in out.read_text()


def test_files_of_servers_alone_have_nothing_to_draw(tmp_path: pathlib.Path) -> None:
    file = timeline_of(tmp_path / "t.json")
    done = Runner().invoke(timeline.timeline, [file, "--plot", str(tmp_path / "a.svg")])
    assert done.exit_code == 2
    assert "there is no step to draw" in done.output


def test_the_most_urgent_tensor_stands_at_the_top(tmp_path: pathlib.Path) -> None:
    step = [
        span(kind, when, key=key, priority=priority)
        for key, priority, when in [(31, -9, (1, 2)), (32, 0, (2, 4)), (33, -5, (1, 3))]
        for kind in ("queue", "push", "pull")
    ]
    out = tmp_path / "a.svg"
    file = timeline_of(tmp_path / "t.json", *step)
    assert Runner().invoke(timeline.timeline, [file, "--plot", str(out)]).exit_code == 0
    drawn = out.read_text()
    assert drawn.index("<!-- 32 -->") < drawn.index("<!-- 33 -->") < drawn.index("<!-- 31 -->")


def test_tensors_have_the_names_of_their_keys(tmp_path: pathlib.Path) -> None:
    name = {"name": "bytescheduler_key", "ph": "M", "pid": 1, "tid": 0}
    named = {**name, "args": {"key": 7, "name": "fc1_$weight$"}}
    file, out = timeline_of(tmp_path / "t.json", named, *a_step(1, 1)), tmp_path / "a.svg"
    assert Runner().invoke(timeline.timeline, [file, "--plot", str(out)]).exit_code == 0
    assert "<!-- fc1_$weight$ -->" in out.read_text()


@pytest.mark.parametrize("tensors", [1, 3, 20, 200])
def test_no_label_is_cut_however_few_tensors_there_are(tensors: int) -> None:
    rows = []
    for key in (*range(tensors), FIRST_BOOKKEEPING_KEY):
        rows.append((key, steps.Tensor()))
        rows[-1][1].add(span("push", (1, 2), key=key))
    names = {0: "resnetv10_stage1_batchnorm0_gamma"}
    figure = plot._figure(rows, (1, 2), names, "worker 0, step 2: 64.02 ms")
    figure.draw_without_rendering()
    width, height = figure.bbox.size
    (axes,) = figure.axes
    shown = [axes.xaxis.label, axes.yaxis.label, axes.title, *axes.get_yticklabels()]
    for text in shown:
        box = text.get_window_extent()
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= width, text
        assert box.y1 <= height, text


def test_agreements_of_workers_are_at_the_bottom(tmp_path: pathlib.Path) -> None:
    key = FIRST_BOOKKEEPING_KEY
    own = {**span("push", (101, 101.5), key=key, priority=5)}
    name = {"name": "bytescheduler_key", "ph": "M", "pid": 1, "tid": 0}
    named = {**name, "args": {"key": key, "name": "notes of optimizer"}}
    other = [span(kind, (101, 101.5), key=9) for kind in ("push", "pull")]
    file = timeline_of(tmp_path / "t.json", named, *a_step(1, 1), own, *other)
    out = tmp_path / "a.svg"
    assert Runner().invoke(timeline.timeline, [file, "--plot", str(out)]).exit_code == 0
    drawn = out.read_text()
    assert drawn.index("<!-- 7 -->") < drawn.index("<!-- 9 -->")
    assert drawn.index("<!-- 9 -->") < drawn.index("<!-- notes of optimizer -->")


def test_without_matplotlib_it_says_how_to_install_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    file = timeline_of(tmp_path / "t.json", *a_step(1, 1))
    done = Runner().invoke(timeline.timeline, [file, "--plot", str(tmp_path / "a.svg")])
    assert done.exit_code == 2
    assert "python -m pip install 'bytescheduler[plot]'" in done.output
