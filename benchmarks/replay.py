"""Replay a model's layer profile over rate-limited hosts on this machine: stock, P3, ours.

Each worker sleeps instead of computing a layer, writes its gradient for real, and
calls ``pushpull(index, grad, out=weight, priority=-index)`` on a real KVStore; the next forward of
a layer waits for its weight. The sums of the last step are checked. Of the arm ours-tuned, a job
that tunes itself from the default, the steps behind the first 120 count. Needs root (network
namespaces), iproute2 and mxnet.

    python -m benchmarks.replay --model vgg16 --scale 8 --compute 0.58 --out replay.json
"""

import argparse
import statistics
import sys
import tempfile
import time
from typing import Dict, List, NamedTuple

from bytescheduler._advise import models

from . import lab_job
from .output import add_out_option, give

TUNING = 120  # steps that a job which tunes itself has made before its steps count
GOODPUT = 0.953  # share of a 1 Gbit/s link that TCP payload gets (measured, 1500-byte frames)


def bits_per_s(rate: str) -> float:
    """Return what a rate in the words of tc means.

    Raises
    ------
    SystemExit
        It is none.
    """
    units = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
    number, unit = rate[:-4], rate[-4:]
    if not number.isdecimal() or unit not in units:
        raise SystemExit(
            f"--rate {rate}: want kbit, mbit or gbit in whole numbers, such as 300mbit"
        )
    return int(number) * units[unit]


def places(count: int, by_name: bool) -> List[int]:
    """Return each layer's place in the caller's order: its own, or that of its number as a text."""
    order = sorted(range(count), key=str) if by_name else list(range(count))
    return [order.index(layer) for layer in range(count)]


class Compute:
    """Layers that take their time and no processor, each behind the one before.

    What a sleep takes too long the next one makes up for, if it is not much, so that all of them
    take as long as they should, as they do on a device.
    """

    SOON_S = 50e-6  # a wait as short as this was none
    MUCH_S = 1e-3

    def __init__(self) -> None:
        self._until = time.perf_counter()

    def waited(self, begin: float) -> None:
        """Note that nothing was computed since `begin`, if that is a while ago."""
        now = time.perf_counter()
        late = 0 if now - begin > self.SOON_S else self.MUCH_S
        self._until = max(self._until, now - late)

    def run(self, seconds: float) -> None:
        """Return when a layer that takes so long is over."""
        self._until += seconds
        left = self._until - time.perf_counter()
        if left > 0:
            time.sleep(left)


class Replayed:
    """A model whose steps are replayed: keys, arrays and a store."""

    def __init__(self, args: argparse.Namespace) -> None:
        import mxnet as mx

        self._layers = models.scaled(args.model, args.scale, args.compute)
        self.store = mx.kv.create("dist_sync")
        if lab_job.is_ours(args.arm):
            from bytescheduler.mxnet import ScheduledKVS

            self.store = ScheduledKVS(self.store)
        self._weights = [mx.nd.zeros((layer.size_bytes // 4,)) for layer in self._layers]
        self._grads = [mx.nd.zeros((layer.size_bytes // 4,)) for layer in self._layers]
        for index, weight in enumerate(self._weights):
            self.store.broadcast(index, weight, out=weight)
        mx.nd.waitall()
        self._compute = Compute()
        # Of the latest step, by layer: seconds of forward, and of backward with all that is called.
        self.forward_s = [0.0] * len(self._layers)
        self.backward_s = [0.0] * len(self._layers)
        self._priorities = [-place for place in places(len(self._layers), args.by_name)]

    def step(self, iteration: int) -> float:
        """Do one; return its seconds."""
        begin = time.perf_counter()
        compute = self._compute
        for index, (weight, layer) in enumerate(zip(self._weights, self._layers)):
            asked = time.perf_counter()
            weight.wait_to_read()
            compute.waited(asked)
            here = time.perf_counter()
            compute.run(layer.forward_s)
            self.forward_s[index] = time.perf_counter() - here
        for index in reversed(range(len(self._layers))):
            here = time.perf_counter()
            compute.run(self._layers[index].backward_s)
            grad = self._grads[index]
            grad[:] = iteration + self.store.rank
            self.store.pushpull(
                index, grad, out=self._weights[index], priority=self._priorities[index]
            )
            self.backward_s[index] = time.perf_counter() - here
        return time.perf_counter() - begin

    def check(self, iteration: int) -> None:
        """Compare the sums of the latest step, of that number."""
        expected = self.store.num_workers * iteration + sum(range(self.store.num_workers))
        for weight in self._weights:
            assert (weight.asnumpy() == expected).all(), "a sum is wrong"


def replay(args: argparse.Namespace) -> None:
    """Run one worker and print its step times, and those of layers, as JSON."""
    replayed = Replayed(args)
    seconds: List[float] = []
    layers: List[List[List[float]]] = []
    for iteration in range(args.iterations):
        seconds.append(replayed.step(iteration))
        layers.append([list(replayed.forward_s), list(replayed.backward_s)])
    replayed.check(args.iterations - 1)
    medians = [
        [statistics.median(times) for times in zip(*(step[way] for step in layers[2:]))]
        for way in range(2)
    ]
    lab_job.report({"seconds": seconds[2:], "layers": medians})


class Ran(NamedTuple):
    """What the workers of a job say."""

    seconds: List[float]  # of the steps of all
    forward_s: List[float]  # by layer, of one worker, as long as it was; empty if native
    backward_s: List[float]


def run_arm(arm: str, args: argparse.Namespace) -> Ran:
    """Run one job and return the times of its workers; of one that tunes itself, those behind."""
    if arm != "ours-tuned":
        return run_steps(arm, args, args.iterations, {})
    with tempfile.TemporaryDirectory() as folder:
        cache = {"BYTESCHEDULER_TUNING_CACHE": f"{folder}/tuning.json"}
        return run_steps(arm, args, TUNING + args.iterations, cache)


def run_steps(arm: str, args: argparse.Namespace, iterations: int, more: Dict[str, str]) -> Ran:
    """Run one job of so many steps, with further settings; return the times of the last ones."""
    # A shrunk model needs a shrunk split bound, or stock is handicapped.
    env = {"MXNET_KVSTORE_BIGARRAY_BOUND": str(max(1, 1_000_000 // args.scale)), **more}
    worker = [sys.executable, "-m", "benchmarks.replay", "--replay", "--arm", arm]
    worker += ["--iterations", str(iterations)]
    for name in ("model", "scale", "compute"):
        worker += [f"--{name}", str(getattr(args, name))]
    node = None
    if args.by_name:
        worker.append("--by-name")
    if arm.startswith("native"):
        steps = models.scaled(args.model, args.scale, args.compute)
        node = [args.native, "node"]
        worker = [args.native, "replay", str(iterations)]
        worker += [
            f"{s.size_bytes}:{s.forward_s * 1e6:.0f}:{s.backward_s * 1e6:.0f}:{place}"
            for s, place in zip(steps, places(len(steps), args.by_name))
        ]
    ran = lab_job.run(arm, worker, env, args.timeout, node)
    seconds = [second for of in ran for second in of["seconds"][2 - args.iterations :]]
    if arm.startswith("native"):
        return Ran(seconds, [], [])
    forward_s, backward_s = ran[0]["layers"]
    return Ran(seconds, forward_s, backward_s)


def main() -> None:
    """Run all arms in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(models.MODELS), default="vgg16")
    parser.add_argument("--scale", type=int, default=8, help="divide the parameters by this")
    parser.add_argument("--compute", type=float, default=0.58, help="seconds of compute a step")
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rate", default="1gbit", help="of each link: 1gbit, 300mbit, 64kbit, ...")
    parser.add_argument(
        "--by-name",
        action="store_true",
        help="number layers as 0, 1, 10, 11, 2, ...; arms native and native-measured tell what the "
        "measured order gains (the others call for a gradient when it is there)",
    )
    parser.add_argument("--arms", default="stock,p3,ours-fifo,ours")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--native", default="build/benchmarks/wire_benchmark")
    add_out_option(parser)
    parser.add_argument("--replay", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--arm", default="ours", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.iterations < 3:
        parser.error("--iterations: want at least 3; the first two are not counted")
    if args.replay:
        replay(args)
        return
    rate = bits_per_s(args.rate)
    steps = models.scaled(args.model, args.scale, args.compute)
    times: Dict[str, List[float]] = {arm: [] for arm in args.arms.split(",")}
    with lab_job.lab(args.rate):
        for _ in range(args.repeats):
            for arm in times:
                times[arm].append(statistics.median(run_arm(arm, args).seconds))
                print(f"{arm}: {times[arm][-1]:.3f} s", file=sys.stderr, flush=True)
    result = {
        "model": args.model,
        "scale": args.scale,
        "megabytes": sum(step.size_bytes for step in steps) / 1e6,
        "compute_s": args.compute,
        "rate": args.rate,
        "by_name": args.by_name,
        "ideal_s": models.ideal_s(steps, GOODPUT * rate / 8),
        "step_s": {arm: statistics.median(values) for arm, values in times.items()},
        "all_s": times,
    }
    give(result, args)


if __name__ == "__main__":
    main()
