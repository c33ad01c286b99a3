"""Arms of the replay and of training whose gradients are compressed."""

import contextlib
import json
import pathlib
import struct
import sys
import warnings
from typing import Any, Dict, List, Tuple

import pytest
from inline_snapshot import snapshot

from benchmarks.jobs import replay, train, urgent
from benchmarks.lab import coded, lab_job
from bytescheduler._advise import models
from bytescheduler._advise.shape import Shape
from bytescheduler._compression.params import compression_of

RATE = 100e6 / 8  # bytes a second


def test_methods_become_arms_beside_the_plain_arm() -> None:
    assert coded.arms_of(["onebit", "int8"], []) == ["ours", "ours-onebit", "ours-int8"]
    assert coded.arms_of(["onebit"], ["stock"]) == ["ours", "stock", "ours-onebit"]
    assert coded.arms_of(["onebit"], ["ours-onebit", "ours"]) == ["ours-onebit", "ours"]
    assert coded.arms_of([], ["stock"]) == ["stock"]


@pytest.mark.parametrize("method", sorted(lab_job.METHODS))
def test_a_method_is_taken_by_the_package_without_a_warning(method: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked = compression_of(lab_job.METHODS[method], 0)
    assert asked.coding is not None
    pushed, pulled = asked.coding.sizes(1 << 24)
    assert pushed < 1 << 24
    assert (pulled < 1 << 24) is (method not in ("2bit", "bf16-push"))
    assert lab_job.is_ours(f"ours-{method}")


def test_ideals_count_codes_the_way_that_carries_more() -> None:
    steps = models.scaled("vgg16", 8, 0.58)
    arms = ["ours", "stock", "ours-onebit", "ours-int8", "ours-bf16", "ours-bf16-push"]
    found = coded.ideals(steps, arms, Shape(), RATE)
    assert list(found) == arms[2:]
    plain_s = models.ideal_s(steps, RATE)
    assert found["ours-onebit"] == pytest.approx(0.58, rel=0.05)
    assert found["ours-int8"] == pytest.approx(plain_s / 3.94, rel=0.03)
    assert found["ours-bf16"] == pytest.approx(plain_s / 2, rel=0.03)
    assert found["ours-bf16-push"] == pytest.approx(plain_s)


def test_a_server_beside_a_worker_pushes_less_than_it_answers() -> None:
    steps = models.scaled("vgg16", 8, 0.01)
    ways = [coded.ideals(steps, ["ours-bf16-push"], Shape(2, 2, n), RATE) for n in (0, 2)]
    apart_s, together_s = (way["ours-bf16-push"] for way in ways)
    assert apart_s == pytest.approx(models.ideal_s(steps, RATE))
    assert together_s == pytest.approx(0.75 * apart_s, rel=0.01)


def test_workers_that_share_a_host_send_a_copy_each() -> None:
    steps = models.scaled("vgg16", 8, 0.01)
    (alone_s,) = coded.ideals(steps, ["ours-bf16"], Shape(2, 2), RATE).values()
    (shared_s,) = coded.ideals(steps, ["ours-bf16"], Shape(4, 2, per_host=2), RATE).values()
    assert shared_s == pytest.approx(2 * alone_s, rel=0.01)


def test_sums_of_equal_numbers_are_whole_but_where_elements_are_left_out() -> None:
    assert coded.sums_are_whole(None)
    parts = [name for name, params in lab_job.METHODS.items() if not coded.sums_are_whole(params)]
    assert parts == ["topk", "randomk", "2bit", "2bit-same", "2bit-bf16"]


def test_whole_numbers_are_rounded_as_halves_are() -> None:
    for number in [*range(5000), *range(65000, 65504)]:
        (half,) = struct.unpack("<e", struct.pack("<e", number))
        assert coded.rounded(number, 11) == half
    assert [coded.rounded(number, 8) for number in (255, 257, 259, 275, 1026)] == [
        *(255, 256, 260, 276, 1024)
    ]


def test_sums_are_expected_as_the_method_rounds_them() -> None:
    numbers = range(51, 56)  # 265 in all
    found = {}
    for method, params in {"": None, **lab_job.METHODS}.items():
        found[method] = coded.rounding_of(params, 1 << 20).sum_of(numbers)
    rounded = {method: each for method, each in found.items() if each != 265}
    assert rounded == {"bf16": 264, "2bit-bf16": 264}
    bf16, fp16 = lab_job.METHODS["bf16"], lab_job.METHODS["fp16"]
    assert coded.rounding_of(bf16, 1000).sum_of(numbers) == 265, "small tensors are not coded"
    assert coded.rounding_of(bf16, 1 << 20).sum_of([257, 257]) == 512, "each is pushed as 256"
    assert coded.rounding_of(fp16, 1 << 20).sum_of([2049, 0]) == 2048


def test_a_table_shows_the_gain_of_compression() -> None:
    times: Dict[str, List[Any]] = {"ours": [5.8], "ours-onebit": [0.64, 0.6], "ours-topk": [None]}
    cell = {"name": "a", "ideal_s": 5.6, "all_s": times}
    cell["coded_s"] = {"ours-onebit": 0.58, "ours-topk": 0.57}
    assert replay.table({"rate": "100mbit", "cells": [cell]}) == snapshot("""\
| 100mbit | ours | ours-onebit | ours-topk | ideal | ideal / ours |
|---|---|---|---|---|---|
| a | 5.800 | 0.620 | hung | 5.600 | 0.966 |

over ours: geometric means ideal 0.966; least ideal 0.966

| what compression brings | ours-onebit | ours-topk |
|---|---|---|
| ours / arm: a | 9.355 | – |
| ideal with codes / arm: a | 0.935 | – |\
""")
    assert coded.lines({"cells": [{**cell, "coded_s": {}}]}) == []


def test_arms_are_chosen_by_method(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--models", "vgg16", "--rate", "100mbit", "--compute", "0.58"]
    monkeypatch.setattr(sys, "argv", ["replay", *words, "--compression", "onebit,topk"])
    ran: List[Any] = []
    monkeypatch.setattr(replay, "measure", lambda cells, args: ran.append((cells, args)))
    replay.main()
    ((cells, args),) = ran
    assert args.arms == ["ours", "ours-onebit", "ours-topk"]
    assert [cell.name for cell in cells] == ["vgg16 / 8, 0.58 s"]


def test_the_bulk_behind_an_urgent_tensor_is_compressed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    assert urgent.coding_of("native") == urgent.coding_of("native-fifo") == []
    assert urgent.coding_of("native-onebit") == ["onebit,scaling=True,ef=vanilla"]
    assert urgent.coding_of("native-2bit-same") == ["2bit,pull=same"]
    ran: List[Tuple[str, List[str]]] = []

    def run(arm: str, worker: List[str], *_: object, **__: object) -> List[Any]:
        ran.append((arm, worker[6:]))
        return [{"behind_s": [0.001], "idle_s": [0.001], "bulk_bytes_per_s": 1e6}]

    monkeypatch.setattr(lab_job, "lab", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(lab_job, "run", run)
    monkeypatch.setattr(urgent, "spans", lambda *_: dict.fromkeys(range(400), 0.0))
    words = ["--repeats", "1", "--compression", "topk", "--out", str(tmp_path / "urgent.json")]
    monkeypatch.setattr(sys, "argv", ["urgent", *words])
    urgent.main()
    assert ran == [("native", []), ("native", ["topk,k=0.01,ef=vanilla"])]


# -- training ----------------------------------------------------------------------------------


def trained(weights: str, *curve: Tuple[float, float]) -> "Dict[str, Any]":
    last = curve[-1][1]
    return {"samples_per_s": 9.0, "accuracy": last, "curve": list(curve), "weights": weights}


def test_the_first_epoch_that_is_accurate_enough_is_found() -> None:
    plain = [[trained("a", (2.0, 0.5), (4.0, 0.9), (6.0, 1.0)) for _ in range(2)]]
    fast = [[trained("b", (1.0, 0.6), (2.0, 0.96), (3.0, 0.97))] * 2] * 3
    never = [[trained("c", (1.0, 0.6), (2.0, 0.7), (3.0, 0.8))] * 2]
    runs = {"ours": plain, "ours-onebit": fast, "ours-topk": never}
    assert train.reached(runs) == {
        "enough": 0.97,
        "reached_s": {"ours": 6.0, "ours-onebit": 3.0, "ours-topk": None},
    }
    assert train.reached({"ours": plain}) == {}
    assert train.reached({"ours": [], "ours-onebit": fast}) == {}


def test_a_curve_is_the_median_of_workers_and_repeats() -> None:
    runs = [[trained("a", (second, 0.5), (2 * second, 0.1 * second))] for second in (1.0, 2.0, 4.0)]
    assert train.curve_of(runs) == [(2.0, 0.5), (4.0, 0.2)]


def test_weights_of_a_method_are_compared_among_the_workers_of_a_run() -> None:
    first, other = trained("a", (1.0, 0.5)), trained("b", (1.0, 0.5))
    plain = [[first, first], [first, first]]
    train.require_same_weights({"ours": plain, "ours-int8": [[first, first], [other, other]]})
    with pytest.raises(SystemExit, match="ours-int8 ended with different weights"):
        train.require_same_weights({"ours": plain, "ours-int8": [[first, other]]})
    with pytest.raises(SystemExit, match="they ended with different weights"):
        train.require_same_weights({"ours": [[first, first], [other, other]]})
    assert train.other_weights({"stock-best": plain, "ours-int8": [[other, other]]}) == {}


def test_training_compares_methods_and_its_curves_are_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks.jobs import plot

    ran: List[str] = []

    def run(arm: str, worker: List[str], *_: object, **__: object) -> List[Any]:
        assert worker[worker.index("--arm") + 1] == arm
        ran.append(arm)
        return [trained(arm, (1.0, 0.5), (2.0, 0.9))] * 2

    monkeypatch.setattr(lab_job, "lab", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(lab_job, "run", run)
    out = tmp_path / "train.json"
    words = ["--repeats", "2", "--compression", "topk,int8", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["train", *words])
    train.main()
    assert ran == ["ours", "ours-topk", "ours-int8"] * 2
    result = json.loads(capsys.readouterr().out)
    assert result["reached_s"] == {"ours": 2.0, "ours-topk": 2.0, "ours-int8": 2.0}
    plot.main([str(out), str(tmp_path / "train.svg")])
    drawn = (tmp_path / "train.svg").read_text()
    for word in ("bytescheduler", "topk", "int8", "accuracy", "seconds of training lenet"):
        assert f"<!-- {word}" in drawn
