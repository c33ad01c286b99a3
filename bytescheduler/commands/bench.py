"""`bytescheduler bench`: how fast sums are, of small tensors and of large ones, without MXNet.

By itself it starts a job on this host whose workers are this command again; as the worker of a job
(`bslaunch bytescheduler bench` with DMLC_ROLE=worker) it measures that job.
"""

import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Dict, List, NamedTuple, Optional

import click

from bytescheduler._metrics.serving import serve
from bytescheduler._native import Pending, Worker
from bytescheduler._process.child import die_with
from bytescheduler._process.folder import temporary_folder
from bytescheduler._process.numbers import Count, shortened
from bytescheduler._process.say import counted, plain, say
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError, Error

__all__ = ["bench"]

_FLOAT32 = 0  # MXNet's code
_SMALL_FLOATS = 256  # 1 KiB
_KEYS = 1000
_WARM_UP = 2
_BLOCKING = 500
_TIMEOUT_S = 600


class _Tensor(NamedTuple):
    key: int
    send: "ctypes.Array[ctypes.c_float]"
    recv: "ctypes.Array[ctypes.c_float]"


class _Sums:
    """Sums over the workers, and whether they are right."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._num_keys = 0
        self.processor_s = 0.0  # that the latest sums took
        workers = worker.num_workers
        self._mine = bytes(ctypes.c_float(worker.rank + 1))
        self._sum = bytes(ctypes.c_float(workers * (workers + 1) / 2))

    def declare(self, count: int, floats: int) -> List[_Tensor]:
        """Return `count` tensors that all workers have, each full of this worker's rank plus 1."""
        kind = ctypes.c_float * floats
        tensors = [_Tensor(self._num_keys + i, kind(), kind()) for i in range(count)]
        self._num_keys += count
        for tensor in tensors:
            ctypes.memmove(tensor.send, self._mine * floats, 4 * floats)
        items = [(t.key, _FLOAT32, ctypes.addressof(t.recv), 4 * floats) for t in tensors]
        self._worker.broadcast(items, owner=tensors)
        return tensors

    def _start(self, tensor: _Tensor) -> Pending:
        send, recv = ctypes.addressof(tensor.send), ctypes.addressof(tensor.recv)
        size = ctypes.sizeof(tensor.send)
        return self._worker.start_push_pull(tensor.key, send, recv, size, owner=tensor)

    def seconds(self, tensors: List[_Tensor]) -> float:
        """Return how long a sum of each takes, all begun at once; a wrong one ends the process."""
        for tensor in tensors:
            ctypes.memset(tensor.recv, 0, ctypes.sizeof(tensor.recv))
        processor, begin = time.process_time(), time.perf_counter()
        for pending in [self._start(tensor) for tensor in tensors]:
            pending.wait()
        taken = time.perf_counter() - begin
        self.processor_s = time.process_time() - processor
        for tensor in tensors:
            if bytes(tensor.recv) != self._sum * len(tensor.recv):
                raise SystemExit(f"bytescheduler: the sum of key {tensor.key} is wrong")
        return taken


def _measure(worker: Worker, size: int, rounds: int) -> Dict[str, object]:
    sums = _Sums(worker)
    (small,) = sums.declare(1, _SMALL_FLOATS)
    many = sums.declare(_KEYS, _SMALL_FLOATS)
    (large,) = sums.declare(1, size // 4)
    for tensors in ([small], many, [large]):
        for _ in range(_WARM_UP):
            sums.seconds(tensors)
    blocking = sorted(sums.seconds([small]) for _ in range(_BLOCKING))
    burst = [sums.seconds(many) for _ in range(rounds)]
    bulk = []
    processor = 0.0
    for _ in range(rounds):
        worker.barrier()  # no worker measures how long another checks
        bulk.append(sums.seconds([large]))
        processor += sums.processor_s
    worker.barrier()  # no worker leaves while another measures
    return {
        "workers": worker.num_workers,
        "servers": worker.num_servers,
        "rounds": rounds,
        "blocking_us": 1e6 * statistics.median(blocking),
        "blocking_p99_us": 1e6 * blocking[int(0.99 * len(blocking))],
        "burst_us_per_key": 1e6 * statistics.median(burst) / _KEYS,
        "large_bytes": size,
        "large_bytes_per_s": size / statistics.median(bulk),
        "processor_s_per_gb": processor / (2e-9 * size * rounds),
    }


def _text(result: Dict[str, float]) -> str:
    large = f"{result['large_bytes'] / (1 << 20):g} MiB"
    rows = [
        (
            "1 KiB, one after another",
            f"{result['blocking_us']:.1f} us (99 %: {result['blocking_p99_us']:.1f} us)",
        ),
        (f"1 KiB, {_KEYS} at once", f"{result['burst_us_per_key']:.1f} us each"),
        (
            large,
            f"{result['large_bytes_per_s'] / 1e9:.2f} GB/s each way, "
            f"{result['processor_s_per_gb']:.2f} s of worker 0's processor a GB moved",
        ),
    ]
    workers, servers = int(result["workers"]), int(result["servers"])
    head = f"sums, {counted(workers, 'worker')}, {counted(servers, 'server')}, medians"
    return "\n".join([head, *(f"  {name:<26}{value}" for name, value in rows)])


def _work(size: int, rounds: int) -> Optional[str]:
    """Measure the job of this worker; return the results as JSON, on worker 0."""
    if Settings.read().num_servers == 0:
        raise ConfigError(
            "bench measures servers of their own, and DMLC_NUM_SERVER is 0: start the job with "
            "servers, such as bslaunch -s 1",
            1,
        )
    worker = Worker.open()
    metrics = serve(worker.measure, "worker", worker.rank)
    try:
        result = _measure(worker, size, rounds)
        return json.dumps(result) if worker.rank == 0 else None
    finally:
        if metrics is not None:
            metrics.close()
        worker.close()


def _run_job(size: int, rounds: int, workers: int, servers: int) -> str:
    """Run a job on this host, which ends with this process; return the same."""
    from bytescheduler.config import examine

    for problem in examine()[0]:
        raise ConfigError(problem.message, 1)
    us = os.getpid()
    with temporary_folder() as folder:
        result = folder / "result.json"
        this = [sys.executable, "-m", "bytescheduler.cli"]
        launch = ["launch", "--local", "-q", "-w", str(workers), "-s", str(servers)]
        limit = ["--timeout", str(_TIMEOUT_S)]
        arguments = ["bench", "--size", str(size), "--rounds", str(rounds), "--result", str(result)]
        code = subprocess.call(
            [*this, *launch, *limit, "--", *this, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=2,  # the job's output is no result
            preexec_fn=lambda: die_with(us),
        )
        if code:
            say(f"bytescheduler: the job ended with exit code {code}")
            raise SystemExit(1)
        return result.read_text()


def _size(context: click.Context, parameter: click.Parameter, text: str) -> int:
    from bytescheduler.config import size

    try:
        size_bytes = size(text)
    except ValueError:
        size_bytes = 0
    if not 4 <= size_bytes <= 1 << 32 or size_bytes % 4:
        raise click.BadParameter(
            f"{shortened(text)}: want 4 bytes to 4GiB, whole floats, such as 64MiB"
        )
    return size_bytes


@click.command(short_help="Measure how fast sums are, here or in a job.")
@click.option("-w", "--workers", type=Count(1, 64), default=2, show_default=True)
@click.option("-s", "--servers", type=Count(1, 64), default=1, show_default=True)
@click.option(
    "--size", callback=_size, default="64MiB", show_default=True, help="Of the large tensor."
)
@click.option("--rounds", type=Count(1, 1000), default=10, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--result", type=click.Path(path_type=pathlib.Path), hidden=True)
def bench(
    workers: int,
    servers: int,
    size: int,
    rounds: int,
    as_json: bool,
    result: Optional[pathlib.Path],
) -> None:
    """Measure sums of small tensors and of a large one, all checked.

    Starts a job on this host. As the worker of a job (DMLC_ROLE=worker bslaunch bytescheduler
    bench, on each host) it measures that job instead, and worker 0 prints; -w and -s mean nothing
    there. That job has servers of its own.
    """
    try:
        if os.environ.get("DMLC_ROLE") == "worker":
            result_text = _work(size, rounds)
        else:
            result_text = _run_job(size, rounds, workers, servers)
    except Error as error:
        say(f"bytescheduler: {error}")
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except MemoryError:
        much = counted(size, "byte")
        say(f"bytescheduler: there is not enough memory for tensors of {much} (--size)")
        sys.exit(1)
    if result_text is None:
        return
    if result is None:
        click.echo(result_text if as_json else _text(json.loads(result_text)))
        return
    try:
        result.write_text(result_text)
    except OSError as error:
        say(plain(f"bytescheduler: {result}: {error.strerror}"))
        sys.exit(1)
