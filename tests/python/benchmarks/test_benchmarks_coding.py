"""What the benchmark of codecs makes of what its program prints."""

import json
import pathlib
import subprocess
import sys
from typing import Any, Dict, List

import pytest
from inline_snapshot import snapshot

from benchmarks.engine import coding, reduce

# GB/s of float32, and the bytes of traffic an element.
SPEEDS = {
    "copy/streaming": (10.0, 8.0),
    "copy/memcpy": (8.0, 8.0),
    "add/float32": (20.0, None),
    "encode/onebit/kept": (4.0, 12.5),
    "encode/onebit/alone": (6.0, 4.0),
    "decode/onebit": (15.0, 4.0),
    "add/onebit": (25.0, None),
    "encode/bf16/alone": (12.0, 6.0),
    "decode/bf16": (11.0, 6.0),
    "add/bf16": (18.0, None),
}


def a_run(factor: float = 1) -> "Dict[str, Any]":
    rows: List[Dict[str, Any]] = []
    for name, (speed, traffic) in SPEEDS.items():
        row = {"run_name": name, "run_type": "iteration", "bytes_per_second": speed * 1e9 * factor}
        rows.append(row if traffic is None else {**row, "traffic": traffic})
        rows.append({"run_name": name, "run_type": "aggregate", "bytes_per_second": 1e15})
    return {"benchmarks": rows}


def test_speeds_are_shares_of_the_copies_traffic() -> None:
    result = coding.summary([a_run(7), a_run(), a_run(0.5)])
    assert (result["runs"], result["copy_traffic_gbytes_per_s"]) == (3, 20.0)
    assert result["of_traffic"] == {
        "decode/bf16": 0.825,
        "decode/onebit": 0.75,
        "encode/bf16/alone": 0.9,
        "encode/onebit/alone": 0.3,
        "encode/onebit/kept": 0.625,
    }
    assert result["of_float32"] == {"bf16": 0.9, "onebit": 1.25}
    assert result["gbytes_per_s"] == {name: speed for name, (speed, _) in sorted(SPEEDS.items())}


def test_a_table_has_a_row_for_each_codec() -> None:
    assert coding.table(coding.summary([a_run()])) == snapshot("""\
| codec | encode, with a residual | encode, without | decode | adding / adding float32 |
|---|---|---|---|---|
| bf16 | – | 12.00 (0.90) | 11.00 (0.82) | 0.90 |
| onebit | 4.00 (0.62) | 6.00 (0.30) | 15.00 (0.75) | 1.25 |

traffic of the fastest copy: 20.0 GB/s\
""")


def test_finished_runs_are_kept_when_a_run_is_cut_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    runs = [a_run()]

    def run_once(binary: str) -> "Dict[str, Any]":
        assert binary == "some/binary"
        if not runs:
            raise KeyboardInterrupt
        return runs.pop()

    out = tmp_path / "coding.json"
    monkeypatch.setattr(reduce, "run_once", run_once)
    monkeypatch.setattr(sys, "argv", ["coding", "--binary", "some/binary", "--out", str(out)])
    with pytest.raises(KeyboardInterrupt):
        coding.main()
    assert json.loads(out.read_text()) == coding.summary([a_run()])


def test_a_program_that_is_not_built_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["coding"])
    with pytest.raises(SystemExit, match="ninja -C build coding_benchmark"):
        coding.main()
