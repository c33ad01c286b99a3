"""What the benchmarks make of what their programs print."""

from typing import Any, Dict, List

from benchmarks import reduce


def rows(name: str, *speeds: float) -> "List[Dict[str, Any]]":
    runs: List[Dict[str, Any]] = [
        {"run_name": name, "run_type": "iteration", "bytes_per_second": speed * 1e9}
        for speed in speeds
    ]
    mean = {"run_name": name, "run_type": "aggregate", "aggregate_name": "mean"}
    return [*runs, {**mean, "bytes_per_second": 1e12}]


def test_reduce_gives_medians_and_the_share_of_stream() -> None:
    run = {
        "benchmarks": [
            *rows("stream/copy/memory", 9, 8, 30),
            *rows("stream/add/memory", 10),
            *rows("sum2/avx2/float32/memory", 7, 8, 9),
            *rows("sum2/scalar/float32/memory", 1),
            *rows("sum2/avx2/float32/cache", 80),
            *rows("sum/avx2/float32/memory", 12),
            *rows("inputs/4/float16/memory", 5),
        ]
    }
    assert reduce.summary(run) == {
        "gbytes_per_s": {
            "stream": {"copy": 9, "add": 10},
            "sum2": {
                "memory": {"scalar": {"float32": 1}, "avx2": {"float32": 8}},
                "cache": {"avx2": {"float32": 80}},
            },
            "sum": {"memory": {"avx2": {"float32": 12}}},
            "inputs": {"4": {"float16": 5}},
        },
        "of_stream_add": {"float32": 0.8},
    }
