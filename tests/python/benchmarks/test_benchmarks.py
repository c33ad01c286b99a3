"""What the benchmarks make of what their programs print."""

import contextlib
import ctypes
import json
import pathlib
import re
import subprocess
import sys
import types
from typing import Any, Dict, List, Tuple

import pytest
from inline_snapshot import snapshot
from sentences import masked

from benchmarks.engine import reduce, scheduler
from benchmarks.jobs import advise, footprint, fusion, native, scale, sweep, train, tuning, urgent
from benchmarks.lab import lab_job, local_job, options
from bytescheduler._advise import models


def rows(name: str, *speeds: float) -> "List[Dict[str, Any]]":
    runs: List[Dict[str, Any]] = [
        {"run_name": name, "run_type": "iteration", "bytes_per_second": speed * 1e9}
        for speed in speeds
    ]
    mean = {"run_name": name, "run_type": "aggregate", "aggregate_name": "mean"}
    return [*runs, {**mean, "bytes_per_second": 1e12}]


def reduce_run(scale: float = 1) -> "Dict[str, Any]":
    speeds = {
        "stream/copy/memory": 9,
        "stream/add/memory": 10,
        "copy/memcpy/memory": 11,
        "copy/streaming/memory": 16,
        "copy/ours/cache": 90,
        "sum2/avx2/float32/memory": 8,
        "sum2/scalar/float32/memory": 1,
        "sum2/avx2/float16/cache": 60,
        "sum2/avx2/float32/cache": 80,
        "sum/scalar/float32/memory": 2,
        "sum/avx2/float32/memory": 12,
        "sum/avx2/bfloat16/memory": 9,
        "inputs/pairwise/4/float16/memory": 5,
        "inputs/fused/4/float16/memory": 8,
    }
    return {
        "benchmarks": [row for name, speed in speeds.items() for row in rows(name, speed * scale)]
    }


REDUCED = {
    "of_streaming_copy": 0.75,
    "of_float32": {
        "sum": {"memory": {"bfloat16": 1.5}},
        "sum2": {"memory": {}, "cache": {"float16": 1.5}},
    },
    "of_pairwise": {"fused": {"4": {"float16": 1.6}}},
    "of_stream_add": {"float32": 0.8},
    "gbytes_per_s": {
        "stream": {"copy": 9, "add": 10},
        "copy": {"memory": {"memcpy": 11, "streaming": 16}, "cache": {"ours": 90}},
        "sum2": {
            "memory": {"scalar": {"float32": 1}, "avx2": {"float32": 8}},
            "cache": {"avx2": {"float32": 80, "float16": 60}},
        },
        "sum": {"memory": {"scalar": {"float32": 2}, "avx2": {"float32": 12, "bfloat16": 9}}},
        "inputs": {"pairwise": {"4": {"float16": 5}}, "fused": {"4": {"float16": 8}}},
    },
}


def test_reduce_gives_medians_over_runs_and_their_ratios() -> None:
    runs = [reduce_run(), reduce_run(0.5), reduce_run(7)]
    result = reduce.summary(runs)
    assert result == {"runs": 3, **REDUCED}
    # The program runs them in any order; a table and a plot want one.
    speeds = result["gbytes_per_s"]
    assert list(speeds["sum2"]) == ["memory", "cache"]
    assert list(speeds["sum2"]["memory"]) == ["scalar", "avx2"]
    assert list(speeds["sum2"]["cache"]["avx2"]) == ["float32", "float16"]


def test_reduce_keeps_finished_runs_when_a_run_is_cut_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    runs = iter([reduce_run()])

    def run_once(binary: str) -> "Dict[str, Any]":
        assert binary == "some/binary"
        try:
            return next(runs)
        except StopIteration:
            raise KeyboardInterrupt from None

    out = tmp_path / "reduce.json"
    monkeypatch.setattr(reduce, "run_once", run_once)
    monkeypatch.setattr(sys, "argv", ["reduce", "--binary", "some/binary", "--out", str(out)])
    with pytest.raises(KeyboardInterrupt):
        reduce.main()
    assert json.loads(out.read_text()) == {"runs": 1, **REDUCED}


def test_reduce_draws_its_measurements(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    result = reduce.summary([reduce_run()])
    for way in result["gbytes_per_s"]["inputs"].values():
        way["4"]["float32"] = 1
    reduce.draw(result, str(tmp_path / "reduce.svg"))
    assert "streaming copy" in (tmp_path / "reduce.svg").read_text()


def test_scheduler_tells_every_run_in_the_order_of_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    def run_once(binary: str, seconds: float) -> "Dict[str, Any]":
        assert (binary, seconds) == ("some/binary", scheduler.SECONDS)
        names = [("Drain/16", 1, 0), ("Hold/256", 0, 1), ("Hold/16", 0, 0)]
        return {
            "benchmarks": [
                {
                    "run_name": name,
                    "family_index": family,
                    "per_family_instance_index": place,
                    "items_per_second": 10 * family + place + 0.6,
                }
                for name, family, place in names
            ]
        }

    out = tmp_path / "scheduler.json"
    monkeypatch.setattr(scheduler, "run_once", run_once)
    words = ["--repeats", "2", "--binary", "some/binary", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["scheduler", *words])
    scheduler.main()
    found = json.loads(out.read_text())["items_per_second"]
    assert list(found.items()) == [
        ("Hold/16", [1, 1]),
        ("Hold/256", [2, 2]),
        ("Drain/16", [11, 11]),
    ]


def test_fusion_has_the_tensors_of_resnet50() -> None:
    tensors = fusion.tensors(1, 3.0)
    layers = models.scaled("resnet50", 1, 3.0)
    assert len(tensors) == 161
    assert sum(tensor.size_bytes for tensor in tensors) == sum(of.size_bytes for of in layers)
    seconds = sum(tensor.forward_s + tensor.backward_s for tensor in tensors)
    assert seconds == pytest.approx(3.0)
    sizes = {tensor.name: tensor.size_bytes // 4 for tensor in tensors}
    assert (sizes["conv1.weight"], sizes["conv1.gamma"], sizes["conv1.beta"]) == (9408, 64, 64)
    assert sizes["conv3_1.shortcut.weight"] == 256 * 512
    assert sizes["conv3_1.shortcut.beta"] == 512
    assert (sizes["conv5_3.2.weight"], sizes["conv5_3.3.gamma"]) == (9 * 512 * 512, 2048)
    assert (sizes["fc.weight"], sizes["fc.bias"]) == (2048 * 1000, 1000)
    assert sum(size <= 16 << 10 for size in sizes.values()) > 100


def test_fusion_has_the_same_pieces_with_and_without() -> None:
    pieces = {"BYTESCHEDULER_PARTITION": str(64 << 10), "BYTESCHEDULER_CREDIT": str(128 << 10)}
    assert fusion.sizes_env("1gbit") == pieces
    assert fusion.sizes_env("none") == {}


# By an arm's name, a figure's, and a row's.
CELL = {"name": "vgg16 / 8", "step_s": {"stock": 1.2, "ours": 0.6, "own": 0.7}, "ideal_s": 0.5}
RESULTS = {
    "cells": {"rate": "1gbit", "cells": [CELL, {"name": "not yet run", "ideal_s": 0.5}]},
    "simulated": {
        "rate": "1gbit",
        "cells": [{**CELL, "simulated_s": {"ours": 0.55, "ours-fifo": 0.8}}],
    },
    "medians": {
        "medians": {
            "stock": {"blocking_us": 150.0, "calls_us": 19.5, "weights": ["0a"]},
            "p3": None,
            "ours": {"blocking_us": 31.0, "weights": ["0a"]},
        }
    },
    "nested": {
        "medians": {
            "native-fifo": {"to_sum": {"median_ms": 276.6}, "bulk_mbytes_per_s": 118.9},
            "native": {"to_sum": {"median_ms": 2.09, "p99_ms": 2.26}, "bulk_mbytes_per_s": 118.2},
        }
    },
    "rows": {"rows": [{"workers": 2, "step_s": 0.06, "ideal_s": 0.05}]},
}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("cells", ["MXNet dist_sync", "1.20 s", "own", "1gbit links (dotted: the physical limit"]),
        ("simulated", ["MXNet dist_sync", "dotted: the physical limit; marks: simulated"]),
        ("medians", ["blocking us", "150", "31", "19.5", "stock", "ours"]),
        ("nested", ["to sum median ms", "to sum p99 ms", "276.6", "2.26", "118.9"]),
        ("rows", ["the physical limit", "workers"]),
    ],
)
def test_results_are_drawn_with_their_figures(
    tmp_path: pathlib.Path, kind: str, words: "List[str]"
) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.jobs import plot

    (tmp_path / "result.json").write_text(json.dumps(RESULTS[kind]))
    plot.main([str(tmp_path / "result.json"), str(tmp_path / "result.svg")])
    drawn = (tmp_path / "result.svg").read_text()
    for word in words:
        assert re.search(rf"<!-- .*\b{re.escape(word)}\b.* -->", drawn), word


def test_some_arms_of_a_replay_are_drawn(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.jobs import plot

    replay, out = tmp_path / "replay.json", tmp_path / "replay.svg"
    replay.write_text(json.dumps(RESULTS["cells"]))
    plot.main([str(replay), str(out), "stock,ours"])
    drawn = out.read_text()
    assert [time in drawn for time in ("1.20 s", "0.60 s", "0.70 s")] == [True, True, False]
    with pytest.raises(SystemExit, match="replay.json has no arm 'p3'"):
        plot.main([str(replay), str(out), "stock,p3"])
    replay.write_text(json.dumps(RESULTS["medians"]))
    with pytest.raises(SystemExit, match="arms can be chosen of a replay only"):
        plot.main([str(replay), str(out), "stock"])


def test_the_best_of_ddps_buckets_is_drawn(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.jobs import plot

    times = {"ddp-6": 1.25, "ddp": 1.5, "ddp-50": 1.75, "ours": 1.0}
    (cell,) = RESULTS["cells"]["cells"][:1]
    replay, out = tmp_path / "replay.json", tmp_path / "replay.svg"
    replay.write_text(json.dumps({**RESULTS["cells"], "cells": [{**cell, "step_s": times}]}))
    plot.main([str(replay), str(out), "ddp,best-ddp,ours"])
    drawn = out.read_text()
    for word in ("stock DDP, 25 MB", "stock DDP, best bucket", "1.50 s", "1.25 s", "1.00 s"):
        assert f"<!-- {word} -->" in drawn
    assert "1.75 s" not in drawn


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"medians": {"ours": {"65536": {"gbytes_per_s": 1.2}}, "tcp": None}},  # throughput, copies
        {"medians": {"ours": {"local,SGD": {"median_us": 3.0}}}},  # call_overhead
        {"medians": {"ours": None}},
        {"rows": [{"rate": "1gbit", "fused": 3, "step_ms": 5.0}]},  # fusion
        {"rows": []},
        {"cells": [{"name": "not yet run", "ideal_s": 0.5}]},
    ],
)
def test_a_file_without_a_drawable_result_is_refused(
    tmp_path: pathlib.Path, other: Dict[str, Any]
) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.jobs import plot

    (tmp_path / "other.json").write_text(json.dumps(other))
    with pytest.raises(SystemExit, match="other.json") as raised:
        plot.main([str(tmp_path / "other.json"), str(tmp_path / "other.svg")])
    assert masked(str(raised.value).splitlines()[0], FOLDER=tmp_path) == snapshot(
        "FOLDER/other.json: of none of the benchmarks that this draws"
    )


def reached(samples: float, weights: str) -> "Dict[str, Any]":
    curve = [(1.0, 0.9)]
    return {"samples_per_s": samples, "accuracy": 0.9, "curve": curve, "weights": weights}


def test_train_adds_up_workers_and_shows_all_weights() -> None:
    of_arm = [[reached(10 * i, f"{i}"), reached(5, f"{i}")] for i in (3, 1, 2)]
    assert train.summary(of_arm) == {
        "samples_per_s": 25,
        "accuracy": 0.9,
        "curve": [(1.0, 0.9)],
        "weights": ["1", "2", "3"],
    }


def trained(
    monkeypatch: pytest.MonkeyPatch, *words: str, **weights: "List[str]"
) -> "List[Tuple[str, Dict[str, str]]]":
    """Run the benchmark with jobs that end with these weights; return which jobs it ran."""
    ran: List[Tuple[str, Dict[str, str]]] = []

    def run(
        arm: str, worker: List[str], env: Dict[str, str], *_: object, **__: object
    ) -> List[Any]:
        ran.append((arm, env))
        of_arm = weights.get(worker[worker.index("--arm") + 1].replace("-", "_"), ["a1", "a1"])
        return [reached(10, one) for one in of_arm]

    monkeypatch.setattr(lab_job, "lab", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(lab_job, "run", run)
    monkeypatch.setattr(sys, "argv", ["train", "--repeats", "1", *words])
    train.main()
    return ran


def test_train_runs_every_arm_that_is_asked_to_end_alike(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [arm for arm, _ in trained(monkeypatch)]
    assert names == ["stock", "p3", "kvstore", "ours-fifo", "ours-off", "ours"]
    assert "other_weights" not in json.loads(capsys.readouterr().out)
    with pytest.raises(SystemExit, match="they ended with different weights"):
        trained(monkeypatch, ours=["a1", "b2"])


@pytest.mark.parametrize("of_best", [["a1", "b2"], ["b2", "b2"]])
def test_weights_of_stock_at_its_best_that_differ_are_told_and_end_nothing(
    of_best: List[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = trained(monkeypatch, "--arms", "stock-best,ours", stock_best=of_best)
    assert ran == [("stock", train.SHARED_FLOATS), ("ours", {})]
    out, err = capsys.readouterr()
    assert json.loads(out)["other_weights"] == {"stock-best": sorted(set(of_best))}
    assert "stock-best ended with other weights: {'stock-best': [" in err
    trained(monkeypatch, "--arms", "stock-best,ours")
    out, err = capsys.readouterr()
    assert "other_weights" not in json.loads(out)
    assert "other weights" not in err


def test_a_sweep_takes_every_point_as_often_and_partitions_that_fit_the_credit() -> None:
    points = sweep.grid([64, 512], [64, 256])
    assert points == [(64, 64), (64, 256)]
    order = sweep.order_of(points, 10)
    assert sorted(order) == sorted(points * 10)
    assert order == sweep.order_of(points, 10)
    assert len({tuple(order[i : i + 2]) for i in range(0, 20, 2)}) == 2


def test_a_sweep_tells_steps_of_a_change_from_steady_steps() -> None:
    slow, fast = sweep.Point(64, 64), sweep.Point(128, 256)
    workers = [
        [[[9.0, 3.0], [2.0, 2.5]], [[4.0, 1.0], [1.0, 1.0]]],
        [[[3.0, 3.0], [2.0, 99.0]], [[5.0, 1.0], [1.0, 1.5]]],
    ]
    first, second = sweep.summarize([slow, fast], workers)
    assert (first["partition_kib"], first["credit_kib"], first["step_s"]) == (128, 256, 1.0)
    assert second["step_s"] == 2.25
    assert (first["worst_changing_step_s"], second["worst_changing_step_s"]) == (5.0, 9.0)
    assert (first["steps"], second["steps"]) == (4, 4)


def test_tuning_compares_the_last_steps_with_the_grid() -> None:
    points = [
        {"partition_kib": 256, "credit_kib": 512, "step_s": 0.5},
        {"partition_kib": 128, "credit_kib": 512, "step_s": 0.8},
    ]
    told = tuning.summarize([9.0] * 3 + [1.0] * 30 + [0.55] * tuning.LAST, 3, points)
    assert told["step_s"] == 0.55
    assert told["of_best"] == pytest.approx(1.1)
    assert told["default_s"] == 0.8
    assert told["slowest_step_of_default"] == pytest.approx(1.25)
    assert told["steps_to_within_3_percent"] is None


def test_a_step_behind_a_check_is_not_the_slowest_of_a_job_that_tunes_itself() -> None:
    steps = [1.0] * 60
    steps[7] = 1.2
    steps[20] = steps[40] = 5.0
    assert tuning.slowest(steps, 0) == 1.2
    assert tuning.slowest(steps[30:], 30) == 1.0
    assert tuning.slowest(steps[30:], 31) == 5.0


@pytest.mark.parametrize("slow", [10, 11, 30, 57])
def test_tuning_counts_every_step_that_was_too_long(slow: int) -> None:
    points = [{"partition_kib": 128, "credit_kib": 512, "step_s": 0.5}]
    told = tuning.summarize([1.0] * 3 + [1.0] * slow + [0.5] * 60, 3, points)
    # The last twenty of which half are too long end here.
    assert told["steps_to_within_3_percent"] == 3 + slow + tuning.LAST // 2


def test_tuning_counts_to_where_a_job_stays() -> None:
    back = [0.5] * 60 + [1.0] * 20
    assert tuning.came_within([*back, *[0.5] * 60], 0.51) == 90
    assert tuning.came_within(back, 0.51) is None
    assert tuning.came_within([0.5] * 60, 0.51) == 0
    assert tuning.came_within([0.5] * (tuning.LAST - 1), 0.51) is None


def test_where_a_job_that_tunes_itself_has_come_is_read_where_it_keeps_it(
    tmp_path: pathlib.Path,
) -> None:
    cache = tmp_path / "tuning.json"
    assert tuning.remembered(cache) is None
    found = {"partition": 48 << 10, "credit": 128 << 10, "step_s": 0.2}
    cache.write_text(json.dumps({"version": 1, "results": {"56 tensors": found}}))
    assert tuning.remembered(cache) == [48, 128]


def test_a_job_that_tunes_itself_begins_as_a_users_does() -> None:
    assert tuning.start_env(None) == {}
    start = {"BYTESCHEDULER_PARTITION": "2048KiB", "BYTESCHEDULER_CREDIT": "8192KiB"}
    assert tuning.start_env(tuning.point("2048,8192")) == start


def test_tuning_keeps_finished_parts_when_a_part_fails(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [{"partition_kib": 128, "credit_kib": 512, "step_s": 0.5}]
    sweeps = iter([points])

    def swept(_: object) -> "List[Dict[str, Any]]":
        try:
            return next(sweeps)
        except StopIteration:
            raise SystemExit("a worker failed") from None

    def tuned(_: object) -> tuning.Ran:
        assert json.loads(out.read_text())["swept_before"] == points
        return tuning.Ran([[0.5] * 60, [0.5] * 60], [[64, 128], None])

    out = tmp_path / "tuning.json"
    monkeypatch.setattr(lab_job, "lab", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(sweep, "swept", swept)
    monkeypatch.setattr(tuning, "tuned", tuned)
    monkeypatch.setattr(options, "require_tuner", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["tuning", "--tuned-steps", "30", "--out", str(out)])
    with pytest.raises(SystemExit, match="a worker failed"):
        tuning.main()
    kept = json.loads(out.read_text())
    assert kept["start_kib"] is None
    assert kept["rates"]["1gbit"]["step_s"] == 0.5
    assert len(kept["steps_s"]) == 60


def test_urgent_joins_the_timelines_of_both_sides(tmp_path: pathlib.Path) -> None:
    def written(category: str, start_s: float, when_us: "Dict[int, float]") -> "Dict[int, float]":
        head = {"name": "bytescheduler", "args": {"start_ns": start_s * 1e9}}
        events: List[Dict[str, Any]] = [head]
        for number, at in when_us.items():
            for key in (0, 1):
                args = {"key": key, "round": number, "bytes": 64 if key else 8}
                events.append({"cat": category, "ts": at + 1e6 * key, "args": args})
        path = tmp_path / category
        path.write_text(json.dumps(events))
        return urgent.spans(path, category, 8)

    ready = written("queue", 100, {1: 0, 2: 10, 3: 20})
    came = written("peers", 101, {1: 5, 2: 510, 3: 1020, 4: 9})
    assert urgent.to_server(ready, came, 2) == pytest.approx([1.0005, 1.001])
    with pytest.raises(SystemExit, match="3 of the 4") as raised:
        urgent.to_server(ready, came, 4)
    assert str(raised.value) == snapshot("the timelines have 3 of the 4 urgent tensors")
    with pytest.raises(SystemExit, match="8 bytes") as raised:
        urgent.spans(tmp_path / "queue", "queue", 16)
    assert str(raised.value) == snapshot(
        "queue has 8 bytes of the urgent tensor where all 16 were expected in one piece; want "
        "fewer --bytes"
    )
    run = {"bulk_mbytes_per_s": 100.0}
    for way in ("to_server", "to_sum", "to_sum_idle"):
        run[way] = urgent.quantiles([i / 1e3 for i in range(101)])  # type: ignore[assignment]
    result = urgent.summary([run, run])
    assert result["to_server"] == {"median_ms": 50, "p99_ms": 99}
    assert result["bulk_mbytes_per_s"] == 100


def test_advise_measures_where_r_is_as_named() -> None:
    rows = advise.configurations()
    assert len({advise.name_of(row) for row in rows}) == len(rows) >= 20
    (row,) = (row for row in rows if advise.name_of(row) == "vgg16/16 1gbit r=0.5")
    assert row["compute"] == pytest.approx(2 * 34.6e6 / (0.953 * 125e6), rel=0.01)


def test_advise_shows_the_errors_of_its_predictions() -> None:
    row = {"compute": 0.5, "measured": {"ours": 0.5, "ours-fifo": 0.8}}
    row["predicted"] = {"ours": 0.55, "ours-fifo": 0.6}
    line = advise.table({"x": row}).splitlines()[-1]
    ours, fifo = "0.500, 0.550 | +10.0%", "0.800, 0.600 | -25.0%"
    assert line == f"| x | 0.500 | {ours} | {fifo} | +37.5%, +8.3% |"


def test_advise_measures_each_and_keeps_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row for row in advise.configurations() if (row["model"], row["r"]) == ("vgg16", 0.5)]
    asked = []

    def run(
        arm: str, worker: List[str], env: Dict[str, str], *_: object, **__: object
    ) -> List[Dict[str, Any]]:
        asked.append((arm, worker[worker.index("--compute") + 1]))
        # Both take what suits the link.
        assert not {"BYTESCHEDULER_PARTITION", "BYTESCHEDULER_CREDIT"} & env.keys()
        return [{"seconds": [9.0, 9.0, *[0.6] * 6]}, {"seconds": [9.0, 9.0, *[0.6] * 6]}]

    monkeypatch.setattr(advise, "configurations", lambda: rows)
    monkeypatch.setattr(lab_job, "lab", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(lab_job, "run", run)
    out = tmp_path / "advise.json"
    monkeypatch.setattr(sys, "argv", ["advise", "--out", str(out)])
    advise.main()
    assert asked == [(arm, str(row["compute"])) for row in rows for arm in advise.ARMS]
    kept = json.loads(out.read_text())
    assert list(kept) == [advise.name_of(row) for row in rows]
    assert kept["vgg16/16 1gbit r=0.5"]["measured"] == {"ours": 0.6, "ours-fifo": 0.6}
    advise.main()
    assert len(asked) == 2 * len(rows), "what was measured is not measured again"


def test_scale_measures_steps_and_memory() -> None:
    found = scale.step_of(4, 2)
    finer = scale.step_of(4, 2, 32 << 10, 64 << 10)
    assert finer["partitions"] > found["partitions"]
    assert found["ideal_s"] <= found["step_s"] <= 1.5 * found["ideal_s"]
    assert found["processor_us_per_partition"] > 0


class OnesTwice:
    """The engine's worker in a job of two; the sum of the key `lost` never comes."""

    num_workers = 2
    lost = -1

    @staticmethod
    def open() -> "OnesTwice":
        return OnesTwice()

    def broadcast(self, *_: object, **__: object) -> None:
        pass

    def barrier(self) -> None:
        pass

    def start_push_pull(self, key: int, send: int, recv: int, size: int, **_: object) -> Any:  # noqa: ANN401
        if key != self.lost:
            ctypes.memmove(recv, bytes(ctypes.c_float(2.0)) * (size // 4), size)
        return types.SimpleNamespace(wait=lambda: None)


def test_a_sum_of_the_engine_that_does_not_come_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "Worker", OnesTwice)
    tensors = native.Tensors([8192, 4])
    for _ in range(2):
        tensors.sums(0, 2)
        tensors.check(0, 2)
    monkeypatch.setattr(OnesTwice, "lost", 1)
    tensors.sums(0, 2)
    with pytest.raises(SystemExit, match="a sum of key 1 is wrong"):
        tensors.check(0, 2)


ROOT = pathlib.Path(__file__).resolve().parents[3]
# Workers are modules of the source tree, which has its own package then.
in_tree = pytest.mark.skipif(
    not list((ROOT / "bytescheduler").glob("_core.*.so")), reason="not built in the source tree"
)


@in_tree
def test_footprint_finds_the_first_sum_within_the_time_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    from_import, from_start = footprint.started("native", 2, 1)
    assert 0 < from_import < from_start


@in_tree
def test_a_key_takes_little_of_a_worker_and_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    row = footprint.memory_row("native", 10_000, 4)
    # Without pages and queues of their own: with them 921 and 9,124; with whole slots 720.
    assert 0 < row["declared_worker"] <= row["summed_worker"] < 512
    assert 0 < row["declared_server"] <= row["summed_server"] < 512


@in_tree
def test_a_server_has_two_of_a_model_also_while_tensors_are_cut_anew(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(local_job.ARMS["ours"][1], "BYTESCHEDULER_LOG_LEVEL", "debug")
    row = footprint.memory_row("native", 32, footprint.TENSOR_BYTES)
    assert "from the next rounds on" in capfd.readouterr().err
    assert row["summed_worker"] <= row["most_worker"] < 0.1
    # Less is left at the end if tensors are cut in the last round.
    assert 0.9 < row["summed_server"] <= row["most_server"]
    assert 1.9 < row["most_server"] < 2.1


@in_tree
def test_names_that_rest_take_no_memory_of_a_direct_job(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(ROOT)
    stops = [f"names-{count}" for count in footprint.NAMES]
    row = footprint.kept_row("names", "direct", footprint.NAME_BYTES, stops)
    # Each of 590 names would take 64 KiB, or twice that.
    assert row["names-600"] - row["names-10"] < 50 * footprint.NAME_BYTES


def test_the_most_that_a_process_had_is_told_after_it_is_gone() -> None:
    does = "x = b'x' * (64 << 20); del x; print(flush=True); input()"
    piped = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", does], stdin=piped, stdout=piped) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = footprint.memory_of(process.pid)
        process.communicate(b"\n")
    assert found["most"] > found["own"] + (60 << 20)


def test_scale_stops_at_a_sum_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "Worker", OnesTwice)
    monkeypatch.setattr(OnesTwice, "lost", 5)
    with pytest.raises(SystemExit, match="a sum of key 5 is wrong"):
        scale.real_worker()


@in_tree
def test_scale_measures_real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    row = scale.real_job(2)
    assert row["step_s"] > 0
    assert row["worker_mbytes"] > 10
    assert row["server_mbytes"] > 5


@in_tree
def test_scale_finds_the_memory_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    few, many = (int(scale.alone("--memory", 2, 1, keys)) for keys in (10, 2010))
    # Of two workers, the server and the simulator.
    assert 2 * 400 < (many - few) / 2000 < 20_000
