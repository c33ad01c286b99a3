"""The cost of an operation of TensorFlow over the engine's own push-pull: microseconds a tensor.

A job of one worker and one server on this host sums 200 tensors of 1 KiB, none of which waits for
another. One call of a `tf.function` does so, and then the engine by itself, called from Python: it
starts all rounds and waits for all. Ways take turns in one job. A figure is the median of calls.

`operations` makes the tensors within the function, as backward makes gradients: it takes one tensor
apart. An operation of TensorFlow reads each sum, as an update does. `identities` is the same call
without the sums. In `operations_passed` and `identities_passed` each tensor is an argument of the
call, and each sum a result.

    python -m benchmarks.tensorflow.operation_cost --out tensorflow-cost.json
"""

import argparse
import ctypes
import statistics
import sys
import time
from typing import Any, Callable, Dict, List

from benchmarks.lab import arms, local_job, machine, options
from benchmarks.lab.output import add_out_option

TENSORS, FLOATS = 200, 256
WARM_UP, CALLS = 20, 50
# The first key of the engine's own rounds, where no session has any.
_FIRST_KEY = 1 << 40
WAYS = ("engine", "operations", "identities", "operations_passed", "identities_passed")


def _engine(session: Any) -> Callable[[], None]:  # noqa: ANN401 - TensorFlow comes with workers
    """Return a call that makes all rounds without TensorFlow."""
    from bytescheduler._session.rounds import RoundCall

    keys = range(_FIRST_KEY, _FIRST_KEY + TENSORS)
    memory = [(ctypes.c_float * FLOATS)() for _ in range(2 * TENSORS)]
    size = ctypes.sizeof(memory[0])
    session.declare_zeros([(key, 0, size) for key in keys])
    addresses = [ctypes.addressof(each) for each in memory]
    rounds = list(zip(keys, addresses[:TENSORS], addresses[TENSORS:]))
    call = RoundCall()

    def sums() -> None:
        under_way = [
            session.start_round(key, send, receive, size, call, owner=memory)
            for key, send, receive in rounds
        ]
        for pending in under_way:
            session.wait(pending)

    return sums


def _calls() -> Dict[str, Callable[[], Any]]:
    """Return a call of each way."""
    import tensorflow as tf

    from bytescheduler.tensorflow._job.job import current
    from bytescheduler.tensorflow._sums.tensors import Tensors

    session = current().get().session
    assert session is not None
    tensors = Tensors(session)  # a worker alone would send nothing
    # A tensor has its own numbers, and so has each place in it.
    whole = tf.reshape(tf.range(TENSORS * FLOATS, dtype=tf.float32), (TENSORS, FLOATS))
    apart = tf.unstack(whole)

    def summed(given: List[tf.Tensor]) -> List[tf.Tensor]:
        return tensors.push_pull_apart(given, average=False)

    def unsummed(given: List[tf.Tensor]) -> List[tf.Tensor]:
        return given

    def within(sums: Callable[[List[tf.Tensor]], List[tf.Tensor]]) -> Callable[[], Any]:
        @tf.function(autograph=False)
        def call(given: tf.Tensor) -> tf.Tensor:
            return tf.stack([tf.negative(each) for each in sums(tf.unstack(given))])

        return lambda: call(whole)

    def passed(sums: Callable[[List[tf.Tensor]], List[tf.Tensor]]) -> Callable[[], Any]:
        @tf.function(autograph=False)
        def call(given: List[tf.Tensor]) -> List[tf.Tensor]:
            return [tf.negative(each) for each in sums(given)]

        return lambda: call(apart)

    calls = {
        "engine": _engine(session),
        "operations": within(summed),
        "identities": within(unsummed),
        "operations_passed": passed(summed),
        "identities_passed": passed(unsummed),
    }
    for way in WAYS[1:]:
        if not (tf.stack(calls[way]()).numpy() == -whole.numpy()).all():
            raise SystemExit(f"{way}: a sum of one worker is not its own tensor")
    return calls


def measure() -> None:
    """Report the seconds of each call of each way; runs in the worker."""
    import bytescheduler.tensorflow as bps

    bps.init()
    calls = _calls()
    for call in calls.values():
        for _ in range(WARM_UP):
            call()
    for way, call in calls.items():
        seconds: List[float] = []
        local_job.worker_waits("BEGIN", way)
        for _ in range(CALLS):
            begin = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)
        local_job.worker_waits("END", way, seconds)
    bps.shutdown()


def run_job(timeout_s: float) -> Dict[str, float]:
    """Run a job to its end and return microseconds a tensor, by way."""
    worker = [sys.executable, "-m", "benchmarks.tensorflow.operation_cost", "--worker"]
    with local_job.job(local_job.NODES["ours"], worker, {}) as job:
        found = {way: statistics.median(job.turn(way, timeout_s)) / TENSORS * 1e6 for way in WAYS}
        job.ended()
    return found


def summary(runs: List[Dict[str, float]]) -> Dict[str, float]:
    """Return microseconds a tensor of each way, and of operations over the engine."""
    row = {f"{way}_us": statistics.median(run[way] for run in runs) for way in WAYS}
    for way in ("operations", "operations_passed"):
        over = statistics.median(run[way] - run["engine"] for run in runs)
        row[way.replace("operations", "over_engine") + "_us"] = over
    return {name: round(value, 2) for name, value in row.items()}


def main() -> None:
    """Run the job several times and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=options.count(), default=5)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a part of a job")
    machine.add_option(parser)
    add_out_option(parser)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        measure()
        return
    args.arms = ["ours"]
    about = {"tensors": TENSORS, "bytes": 4 * FLOATS}
    arms.alternate(args, lambda _: run_job(args.timeout), summary, about)


if __name__ == "__main__":
    main()
