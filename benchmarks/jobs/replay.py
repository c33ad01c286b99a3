"""Replay models' layer profiles over rate-limited hosts on this machine: stock, P3, ours.

A layer is an operation in MXNet's engine that takes its time and no processor; backward ones write
their gradient for real (benchmarks/engine/device.py). A worker does what MXNet's own loops do. It
calls for forward and backward, then for ``pushpull(index, grad, out=weight, priority=-index)`` of
every layer on a real KVStore, and waits for the loss. The next forward of a layer waits for its
weight. Each step checks the sums that it uses, and the end checks all of them whole.

The arm ours-tuned is a job that tunes itself. The first one begins with partitions that suit the
link, and its steps after the first 120 count. Each repetition begins with the result of the first
one, and its steps after the first 50 count.

Beside each measurement stand the shortest possible step (`ideal_s`) and the measured rate of the
link. For two policies the engine's step on simulated time stands there too (`simulated_s`, from
`bytescheduler advise`). Needs root (network namespaces), iproute2 and mxnet.

    python -m benchmarks.jobs.replay --out replay.json
    python -m benchmarks.jobs.replay --models vgg16,gpt2 --ratios 0.5,1.5,3 --arms stock,ours

Any shape of job can be replayed: the second one here has two servers beside workers, and a host
with half of the rate.

    python -m benchmarks.jobs.replay -w 3 -s 3 --rate 500mbit --arms native
    python -m benchmarks.jobs.replay -w 2 -s 4 --together 2 --factors 4=0.5

    python -m benchmarks.jobs.replay --table replay.json

Workers may share hosts. A second table says how many models the busiest link carried each way in a
step, headers included. The ideal has one copy a host. The workers of ours-direct host the servers.

    python -m benchmarks.jobs.replay -w 4 -s 2 --per-host 2 --arms ours,ours-direct

With `--compression` arms that compress gradients alternate with plain ones. A table shows what it
brings, and the share of the ideal that counts codes (`coded_s`).

    python -m benchmarks.jobs.replay --rate 100mbit --compute 0.58 --models vgg16 \
        --compression onebit,topk,int8,bf16

With `--framework torch` layers are modules of PyTorch, and the arms are stock DDP over Gloo, in
buckets of several sizes, and ours (benchmarks/pytorch/arms.py). The arm `fsdp` is FSDP2 that
keeps weights after forward. A name that ends with `-backend` has our backend in place of Gloo.
`barrier_s` is the shortest step of a job that has all sums before it goes on. A table divides DDP
and FSDP2 over Gloo by ours, and by an arm of ours that sends or shards as they do.

    python -m benchmarks.jobs.replay --framework torch --out replay-torch.json

With `--framework tensorflow` layers are operations of TensorFlow, and Keras trains. The arms are
MultiWorkerMirroredStrategy and ours (benchmarks/tensorflow/arms.py).

    python -m benchmarks.jobs.replay --framework tensorflow --out replay-tensorflow.json

With `mpi` Open MPI's library sums behind a barrier, in partitions of Horovod's size. With
`mpi-grants` it sums in our order, across the barrier. Both need Debian's openmpi-bin.

    python -m benchmarks.jobs.replay --framework torch --arms ddp-6,mpi,mpi-grants,ours-direct
"""

import argparse
import importlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from benchmarks.engine import device
from benchmarks.jobs import link_loads
from benchmarks.jobs.frameworks import FRAMEWORKS
from benchmarks.jobs.link_loads import median
from benchmarks.lab import carried, coded, lab_job, machine, options, ranked
from benchmarks.lab.arms import add_arms_option
from benchmarks.lab.output import add_out_option, give, keep
from bytescheduler._advise import links, models
from bytescheduler._advise.advice import GOODPUT, Cluster
from bytescheduler._advise.shape import Shape

TUNING = 120  # steps that a job which tunes itself has made before its steps count
TAKING_UP = 50  # the same where what an earlier job found is only compared
WARM_UP = 2
_FEW = lab_job.USUAL.workers + lab_job.USUAL.servers
MXNET = "mxnet"
USUAL = "stock,p3,kvstore,ours-fifo,ours-off,ours"  # with MXNet
POLICIES = {"ours": "ours", "ours-fifo": "fifo"}  # arms that can be simulated
# The shortest possible steps of a cell, and the heads of their columns.
IDEALS = {"ideal_s": "ideal", "direct_ideal_s": "direct's ideal", "barrier_s": "barrier's ideal"}
# The divisors of the models' parameters: a link of 1 Gbit/s then takes about half a second.
SCALES = {
    "bert-base": 8,
    "bert-large": 16,
    "gpt2": 8,
    "resnet50": 2,
    "transformer": 4,
    "uniform": 8,
    "vgg16": 8,
}


def cluster_of(shape: Shape, bits_per_s: float) -> Cluster:
    """Return hosts of the lab with links of that rate as `bytescheduler advise` takes them."""
    of = Cluster(shape.workers, shape.servers, bits_per_s, lab_job.LATENCY_S)
    of = of._replace(together=shape.together, factors=shape.factors, most_workers=shape.workers)
    return of._replace(per_host=shape.per_host)


class Cell(NamedTuple):
    """A model to replay, and the compute of its step."""

    model: str
    scale: int  # divides its parameters
    compute_s: float  # a step
    ratio: Optional[float]  # the link's time for the model's bytes, over the compute

    @property
    def name(self) -> str:
        """The name in results."""
        how = f"{self.compute_s:g} s" if self.ratio is None else f"r = {self.ratio:g}"
        return f"{self.model} / {self.scale}, {how}"

    @property
    def steps(self) -> List[models.Step]:
        """The layers."""
        return models.scaled(self.model, self.scale, self.compute_s)

    @property
    def size_bytes(self) -> int:
        """The size of the model."""
        return sum(step.size_bytes for step in self.steps)

    def enough_s(self, rate: str, shape: Shape = lab_job.USUAL) -> float:
        """Return the seconds that no healthy step takes, with links of that rate.

        Stock takes up to the time in which the busiest link is crossed one way and then the other:
        of two workers and two servers at r = 3 six times the compute. The bound is four times that.
        """
        link_s = 0.0
        if rate != "none":
            shares = links.equal_shares(shape)
            usual = lab_job.payload_bytes_per_s(rate)
            link_s = self.size_bytes / links.model_bytes_per_s(shape, usual, shares)
        return 4 * max(self.compute_s, 2 * link_s)

    def simulated_s(self, bytes_per_s: float, shape: Shape = lab_job.USUAL) -> Dict[str, float]:
        """Return the seconds of a step by arm, with partitions that suit the links.

        The network is simulated; compute is a pause, and sums take no time (src/predict).
        """
        lab = cluster_of(shape, bytes_per_s * 8 / GOODPUT)
        return {arm: lab.predict(self.steps, policy).step_s for arm, policy in POLICIES.items()}


def cells_of(args: argparse.Namespace) -> List[Cell]:
    """Return every model with every ratio, or with the compute that was given."""
    cells = []
    for model in args.models:
        scale = args.scale or SCALES[model]
        if args.compute is not None:
            cells.append(Cell(model, scale, args.compute, None))
            continue
        size = sum(step.size_bytes for step in models.scaled(model, scale, 1.0))
        seconds = size / lab_job.payload_bytes_per_s(args.rate)
        cells += [Cell(model, scale, round(seconds / ratio, 3), ratio) for ratio in args.ratios]
    return cells


def places(count: int, by_name: bool) -> List[int]:
    """Return each layer's place in the caller's order: its own, or that of its number as a text."""
    order = sorted(range(count), key=str) if by_name else list(range(count))
    return [order.index(layer) for layer in range(count)]


class Replayed:
    """A model whose steps are replayed: keys, arrays, a store and a device."""

    def __init__(self, cell: Cell, args: argparse.Namespace) -> None:
        import mxnet as mx

        self._layers = cell.steps
        # A direct job has no servers for a store of MXNet's own.
        inner = None if lab_job.is_direct(args.arm) else mx.kv.create("dist_sync")
        self.store = inner
        if lab_job.is_ours(args.arm):
            from bytescheduler.mxnet import ScheduledKVS

            self.store = ScheduledKVS(inner)
        compression = lab_job.COMPRESSION.get(args.arm)
        if compression is not None:
            self.store.set_gradient_compression(compression)
        # Others send a part of each gradient in its own step.
        self._sums_are_whole = coded.sums_are_whole(compression)
        sizes = [layer.size_bytes for layer in self._layers]
        self._roundings = [coded.rounding_of(compression, size) for size in sizes]
        self._weights = [mx.nd.zeros((layer.size_bytes // 4,)) for layer in self._layers]
        self._grads = [mx.nd.zeros((layer.size_bytes // 4,)) for layer in self._layers]
        self._loss = mx.nd.zeros((1,))
        for index, weight in enumerate(self._weights):
            self.store.broadcast(index, weight, out=weight)
        mx.nd.waitall()
        self._numbers = places(len(self._layers), args.by_name)
        self._calls = sorted(range(len(self._layers)), key=lambda layer: self._numbers[layer])
        self._device = device.Device(args.device)
        self._before = time.perf_counter()

    def _sum_of(self, iteration: int, layer: int) -> int:
        """Return each number of the sum, of which every layer has another one in every step."""
        first = iteration + layer
        numbers = range(first, first + self.store.num_workers) if iteration >= 0 else ()
        return self._roundings[layer].sum_of(numbers)

    def step(self, iteration: int) -> float:
        """Do one; return the seconds since the step before, from loss to loss.

        When it returns, backward and the sums are still under way.
        """
        layers = list(zip(self._layers, self._weights, self._grads))
        for index, (layer, weight, _) in enumerate(layers):
            loss = self._loss if index == len(layers) - 1 else None
            self._device.forward(layer.forward_s, weight, self._sum_of(iteration - 1, index), loss)
        for index, (layer, _, grad) in reversed(list(enumerate(layers))):
            self._device.backward(layer.backward_s, grad, iteration + index + self.store.rank)
        for index in self._calls:
            _, weight, grad = layers[index]
            self.store.pushpull(index, grad, out=weight, priority=-self._numbers[index])
        self._loss.wait_to_read()
        now = time.perf_counter()
        seconds, self._before = now - self._before, now
        return seconds

    def check(self, iteration: int) -> None:
        """Wait for the sums of the latest step, of that number, and check them all.

        A sum that is a part of what was given is not larger than all of that.
        """
        for weight in self._weights:
            weight.wait_to_read()  # also of sums that nothing reads: the device still uses arrays
        for index, weight in enumerate(self._weights):
            least = most = self._sum_of(iteration, index)
            if not self._sums_are_whole:
                least, most = 0, sum(self._sum_of(step, index) for step in range(iteration + 1))
            numbers = weight.asnumpy()
            assert ((numbers >= least) & (numbers <= most)).all(), "a sum is wrong"
        assert not self._sums_are_whole or self._device.wrong == 0, "a step used a wrong sum"


def add_cell_options(parser: argparse.ArgumentParser) -> None:
    """Let a benchmark that replays one model say which, as its workers are told too."""
    parser.add_argument("--model", choices=sorted(SCALES), default="vgg16")
    parser.add_argument(
        "--scale", type=options.count(), default=8, help="divide the parameters by this"
    )
    parser.add_argument(
        "--compute", type=options.seconds, default=0.58, help="seconds of compute a step"
    )


def add_device_option(parser: argparse.ArgumentParser) -> None:
    """Let the caller say where the device was built."""
    parser.add_argument(
        "--device", default=device.LIBRARY, help="the library that computes nothing"
    )


def cell_words(cell: Cell, args: argparse.Namespace) -> List[str]:
    """Return the options that tell a worker with MXNet what to replay."""
    return [*_model_words(cell), "--device", str(pathlib.Path(args.device).resolve())]


def _model_words(cell: Cell) -> List[str]:
    return ["--model", cell.model, "--scale", str(cell.scale), "--compute", str(cell.compute_s)]


def given_cell(args: argparse.Namespace) -> Cell:
    """Return what a worker was told to replay."""
    return Cell(args.model, args.scale, args.compute, None)


def work() -> None:
    """Run one worker and print its step times as JSON."""
    parser = argparse.ArgumentParser()
    add_cell_options(parser)
    add_device_option(parser)
    parser.add_argument("--arm")
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--by-name", action="store_true")
    parser.add_argument("--watched", action="store_true")
    parser.add_argument("--framework", choices=[MXNET, *FRAMEWORKS], default=MXNET)
    parser.add_argument("--library")
    args = parser.parse_args(sys.argv[2:])
    cell = given_cell(args)
    if args.framework in FRAMEWORKS:
        told = (cell.steps, cell.scale, args.arm, args.iterations, args.watched, args.library)
        module = importlib.import_module(FRAMEWORKS[args.framework].worker)
        module.work(ranked.Told(*told))
        return
    replayed = Replayed(cell, args)
    if args.watched:
        lab_job.await_begin()
    seconds = [replayed.step(iteration) for iteration in range(args.iterations)]
    replayed.check(args.iterations - 1)
    lab_job.report({"seconds": seconds[WARM_UP:]})


def run_arm(
    arm: str,
    cell: Cell,
    args: argparse.Namespace,
    found: pathlib.Path,
    watch: Optional[lab_job.Watch] = None,
) -> Optional[float]:
    """Run one job; return the median of the steps of all workers, or None if it hung.

    Of one that tunes itself, the steps behind the tuning count; `found` is where it keeps what it
    found, for the next job of this cell. `watch` is as `lab_job.run` has it.
    """
    if args.framework in FRAMEWORKS:
        return run_ranked_steps(arm, cell, args, watch)
    if arm != "ours-tuned":
        return run_steps(arm, cell, args, args.iterations, {}, watch)
    before = TAKING_UP if found.exists() else TUNING
    cache = {"BYTESCHEDULER_TUNING_CACHE": str(found)}
    return run_steps(arm, cell, args, before + args.iterations, cache)


def run_quietly(
    arm: str,
    cell: Cell,
    args: argparse.Namespace,
    found: pathlib.Path,
    watch: Optional[lab_job.Watch] = None,
) -> Tuple[Optional[float], List[float]]:
    """Run an arm again while too much time is stolen; return its step, and each try's share."""

    def read() -> Optional[bytes]:
        return found.read_bytes() if found.exists() else None

    def write(content: Optional[bytes]) -> None:
        if content is None:
            found.unlink(missing_ok=True)
        else:
            found.write_bytes(content)

    before = read()

    def run() -> Tuple[Optional[float], Optional[bytes]]:
        write(before)
        return run_arm(arm, cell, args, found, watch), read()

    (took, left), stolen = machine.quietly(
        f"{cell.name}, {arm}", run, args.most_stolen, hung=lambda of: of[0] is None
    )
    write(left)  # the run that counts need not be the last one
    return took, stolen


def run_steps(
    arm: str,
    cell: Cell,
    args: argparse.Namespace,
    iterations: int,
    more: Dict[str, str],
    watch: Optional[lab_job.Watch] = None,
) -> Optional[float]:
    """Run a job of `iterations` steps with further settings; return a step's seconds at its end."""
    env = dict(more)
    if not lab_job.is_ours(arm):
        # A shrunk model needs a shrunk split bound, or stock is handicapped.
        env["MXNET_KVSTORE_BIGARRAY_BOUND"] = str(max(1, 1_000_000 // cell.scale))
    worker = [sys.executable, "-m", "benchmarks.replay", "--work", *cell_words(cell, args)]
    worker += ["--arm", arm, "--iterations", str(iterations)]
    node = None
    if args.by_name:
        worker.append("--by-name")
    if watch is not None:
        worker.append("--watched")
    if arm.startswith("native"):
        watch = None  # its worker does not wait for that
        node = [args.native, "node"]
        worker = [args.native, "replay", str(iterations)]
        worker += [
            f"{s.size_bytes}:{s.forward_s * 1e6:.0f}:{s.backward_s * 1e6:.0f}:{place}"
            for s, place in zip(cell.steps, places(len(cell.steps), args.by_name))
        ]
    shape: Shape = args.shape
    limit_s = _limit_s(cell, args, iterations)
    try:
        of_host = lab_job.stated_rates(args.rate, shape) if arm not in ("stock", "p3") else {}
        ran = lab_job.run(arm, worker, env, limit_s, node, shape, of_host, watch)
    except subprocess.TimeoutExpired:
        return None
    return _counted(ran, args)


def _limit_s(cell: Cell, args: argparse.Namespace, iterations: int, starts: float = 1.0) -> float:
    """Return how long a job may take; more processes take longer to start."""
    processes = args.shape.workers + args.shape.servers
    starts_s = float(args.timeout) * max(1.0, processes / _FEW) * starts
    return starts_s + iterations * cell.enough_s(args.rate, args.shape)


def _counted(ran: List[Any], args: argparse.Namespace) -> float:
    """Return the median of the steps that count, of all workers."""
    counted = args.iterations - WARM_UP
    return statistics.median(second for of in ran for second in of["seconds"][-counted:])


def run_ranked_steps(
    arm: str, cell: Cell, args: argparse.Namespace, watch: Optional[lab_job.Watch]
) -> Optional[float]:
    """Run a job of an arm with PyTorch or TensorFlow; otherwise as `run_arm`."""
    framework = FRAMEWORKS[args.framework]
    worker = [sys.executable, "-m", "benchmarks.replay", "--work", *_model_words(cell)]
    worker += ["--framework", args.framework, "--arm", arm, "--iterations", str(args.iterations)]
    worker += ["--library", str(args.library)]
    if watch is not None:
        worker.append("--watched")
    limit_s = _limit_s(cell, args, args.iterations, framework.starts)
    try:
        return _counted(framework.run(arm, worker, limit_s, args.shape, watch), args)
    except subprocess.TimeoutExpired:
        return None


def _disturbed(stolen: List[List[float]], result: Dict[str, Any]) -> int:
    """Return how many runs lost more than they should have, in each of their tries."""
    return sum(min(tries) > result.get("most_stolen", 1.0) for tries in stolen)


def _alike(rivals: List[str], mine: str, arms: List[str]) -> List[Tuple[str, str]]:
    """Return pairs of a rival and an arm of ours, other than `mine`, that trains as it does."""
    pairs = [(arm, f"{arm}-backend") for arm in rivals]
    pairs += [(arm, f"{mine}-bf16") for arm in rivals if arm.endswith("-bf16")]
    return [pair for pair in pairs if pair[1] in arms and pair[1] != mine]


def _over(above: Optional[float], below: Optional[float]) -> Optional[float]:
    return None if above is None or below is None else above / below


def _means(title: str, shares: Dict[str, List[float]]) -> str:
    means = [f"{name} {statistics.geometric_mean(s):.3f}" for name, s in shares.items()]
    least = [f"{name} {min(s):.3f}" for name, s in shares.items()]
    return f"{title}: geometric means {', '.join(means)}; least {', '.join(least)}"


def table(result: Dict[str, Any]) -> str:
    """Return a result as Markdown, with ratios to what is ours, or tuned if it is there.

    A time says how many of its runs hung, and how many lost more of the processors than they should
    have. Older results have neither that nor anything simulated. Beside MXNet, only rivals and the
    ideal have a column of ratios. So has a rival over an arm of ours that trains as it does.
    """
    arms = list(result["cells"][0]["all_s"])
    compressed = result["cells"][0].get("coded_s", {})  # these have a table of their own
    ours = [arm for arm in arms if arm.startswith("ours") and arm not in compressed]
    mine = next(arm for arm in ("ours-tuned", "ours", *ours, *arms) if arm in arms)
    others = [arm for arm in arms if arm != mine and arm not in compressed]
    simulated = list(result["cells"][0].get("simulated_s", {}))
    heads = [result["rate"], *arms, *(f"{arm}, simulated" for arm in simulated)]
    heads += [head for key, head in IDEALS.items() if key in result["cells"][0]]
    framework = FRAMEWORKS.get(result.get("framework", MXNET))
    rivals = [arm for arm in others if framework is None or framework.arms[arm].is_rival]
    alike = [] if framework is None else _alike(rivals, mine, arms)
    heads += [f"ideal / {mine}", *(f"{arm} / {mine}" for arm in rivals)]
    heads += [f"{rival} / {arm}" for rival, arm in alike]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    shares: Dict[str, List[float]] = {}
    shares_alike: Dict[str, List[float]] = {}
    for cell in result["cells"]:
        times = {arm: median(runs) for arm, runs in cell["all_s"].items()}
        words = [cell["name"]]
        for arm, seconds in times.items():
            hung = cell["all_s"][arm].count(None)
            words.append("hung" if seconds is None else f"{seconds:.3f}")
            if seconds is not None and hung:
                words[-1] += f" (hung {hung} of {len(cell['all_s'][arm])})"
            disturbed = _disturbed(cell.get("stolen", {}).get(arm, []), result)
            if disturbed:
                words[-1] += f" (disturbed {disturbed} of {len(cell['all_s'][arm])})"
        words += [f"{cell['simulated_s'][arm]:.3f}" for arm in simulated]
        words += [f"{cell[ideal]:.3f}" for ideal in IDEALS if ideal in cell]
        for arm, other in (("ideal", cell["ideal_s"]), *((a, times[a]) for a in others)):
            ratio = _over(other, times[mine])
            if ratio is not None:
                shares.setdefault(arm, []).append(ratio)
            if arm in ("ideal", *rivals):
                words.append("–" if ratio is None else f"{ratio:.3f}")
        for rival, arm in alike:
            ratio = _over(times[rival], times[arm])
            words.append("–" if ratio is None else f"{ratio:.3f}")
            if ratio is not None:
                shares_alike.setdefault(f"{rival} / {arm}", []).append(ratio)
        lines.append("| " + " | ".join(words) + " |")
        best = framework and ranked.best_stock(framework.arms, times)
        if framework and best is not None and times[mine] is not None:
            shares.setdefault(framework.best, []).append(best / times[mine])
    lines += ["", _means(f"over {mine}", shares)]
    if shares_alike:
        lines.append(_means("alike", shares_alike))
    return "\n".join([*lines, *coded.lines(result), *link_loads.lines(result)])


def numbers(text: str) -> List[float]:
    """Return what a list such as "0.5,1" says."""
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = [0.0]
    if not all(0.001 <= value <= 1000 for value in values):
        raise argparse.ArgumentTypeError(f"{text}: want numbers of 0.001 to 1000, such as 0.5,1")
    return values


def model_names(text: str) -> List[str]:
    """Return what a list of models says."""
    names = text.split(",")
    for name in names:
        if name not in SCALES:
            raise argparse.ArgumentTypeError(f"{name}: want {', '.join(sorted(SCALES))}")
    return names


def require_counted_steps(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End with an error where no step of a run would count."""
    if args.iterations <= WARM_UP:
        parser.error(f"--iterations: want more than {WARM_UP}, which are not counted")


def choose_arms(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Take the usual arms of the framework where none are given; refuse those of another."""
    framework = FRAMEWORKS.get(args.framework)
    known = list(framework.arms if framework else lab_job.ARMS)
    if framework and args.compression:
        parser.error(f"--compression: want --framework {MXNET}")
    if args.compression:
        args.arms = coded.arms_of(args.compression, args.arms or [])
    args.arms = args.arms or (framework.usual if framework else USUAL).split(",")
    for arm in args.arms:
        if arm not in known:
            parser.error(f"--arms: {args.framework} has no {arm}: want some of {','.join(known)}")
    if framework:
        if args.by_name:
            parser.error(f"--by-name: {framework.name} has no numbers for layers")
        if args.shape.factors:
            parser.error(f"--factors: want links of one rate with --framework {args.framework}")


def main() -> None:
    """Run all arms in turn, several times, and print what they took as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=model_names, default="vgg16,resnet50,bert-large,gpt2")
    computes = parser.add_mutually_exclusive_group()
    computes.add_argument(
        "--ratios",
        type=numbers,
        default=[1.0],
        help="time that the link takes for the model's bytes, over the compute; several make a "
        "cell of each with each model",
    )
    computes.add_argument(
        "--compute", type=options.seconds, help="seconds of compute a step, not by ratio"
    )
    parser.add_argument(
        "--scale", type=options.count(), help="divide the parameters by this; default: by model"
    )
    parser.add_argument("--iterations", type=int, default=10, help="steps of a run")
    parser.add_argument("--repeats", type=options.count(), default=5)
    parser.add_argument(
        "--rate", type=lab_job.rate, default="1gbit", help="of each link: 1gbit, 300mbit, none, ..."
    )
    parser.add_argument(
        "--by-name", action="store_true", help="number layers as 0, 1, 10, 11, 2, ..."
    )
    lab_job.add_shape_options(parser)
    all_arms = (lab_job.ARMS, *(framework.arms for framework in FRAMEWORKS.values()))
    add_arms_option(parser, dict.fromkeys(arm for arms in all_arms for arm in arms))
    coded.add_option(parser)
    parser.add_argument("--framework", choices=[MXNET, *FRAMEWORKS], default=MXNET)
    parser.add_argument(
        "--timeout",
        type=float,
        default=40,
        help="seconds for a run besides its steps; then it hung",
    )
    parser.add_argument("--native", default="build/benchmarks/wire_benchmark")
    parser.add_argument("--table", metavar="FILE", help="only print what is in it as Markdown")
    add_device_option(parser)
    machine.add_option(parser)
    add_out_option(parser)
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(pathlib.Path(args.table).read_text())))
        return
    args.shape = lab_job.shape_of(parser, args)
    choose_arms(parser, args)
    if "ours-tuned" in args.arms:
        options.require_tuner(parser)
    require_counted_steps(parser, args)
    if args.rate == "none" and args.compute is None:
        parser.error("--rate none has no ratio: want --compute")
    cells = cells_of(args)
    if not all(cell.compute_s > 0 for cell in cells):
        parser.error("--ratios: want some that leave a millisecond of compute")
    measure(cells, args)


def measure_link(cells: List[Cell], result: Dict[str, Any], args: argparse.Namespace) -> None:
    """Note what the link carries, if it is more than was seen before, and what follows from that.

    On a machine that was busy just then it would seem to be less, and each arm nearer to the ideal.
    """
    measured = lab_job.measured_bytes_per_s(args.rate, args.shape)
    if measured <= result["payload_bytes_per_s"]:
        return
    result["payload_bytes_per_s"] = measured
    direct = args.shape.direct
    has_direct = any(
        link_loads.shape_of(arm, args.framework, args.shape) == direct for arm in args.arms
    )
    for cell, row in zip(cells, result["cells"]):
        # A copy from each host is less than one from each worker, where a host has several.
        rate = links.model_bytes_per_s(args.shape, measured, host_copy=True)
        row["ideal_s"] = models.ideal_s(cell.steps, rate)
        rate_of_direct = links.model_bytes_per_s(direct, measured, host_copy=True)
        if has_direct and rate_of_direct != rate:
            row["direct_ideal_s"] = models.ideal_s(cell.steps, rate_of_direct)
        if args.framework in FRAMEWORKS:
            row["barrier_s"] = ranked.barrier_s(cell.steps, rate)
        else:
            row["simulated_s"] = cell.simulated_s(measured, args.shape)
            row["coded_s"] = coded.ideals(cell.steps, args.arms, args.shape, measured)


def measure(cells: List[Cell], args: argparse.Namespace) -> None:
    """Run every arm of every cell so often, and write what is known after each run."""
    with tempfile.TemporaryDirectory() as folder, lab_job.lab(args.rate, args.shape):
        if args.framework in FRAMEWORKS:
            args.library = FRAMEWORKS[args.framework].compiled(pathlib.Path(folder))
        result: Dict[str, Any] = {
            "framework": args.framework,
            "rate": args.rate,
            "shape": args.shape._asdict(),
            "payload_bytes_per_s": 0.0,
            "by_name": args.by_name,
            "iterations": args.iterations,
            "most_stolen": args.most_stolen,
            "loads": link_loads.of_arms(args.arms, args.framework, args.shape),
            "cells": [
                {
                    **cell._asdict(),
                    "name": cell.name,
                    "all_s": {arm: [] for arm in args.arms},
                    # The share of processor time that went to other machines, of each try.
                    "stolen": {arm: [] for arm in args.arms},
                    # The load of the busiest link each way in a step, headers included.
                    "link_models": {arm: [] for arm in args.arms},
                }
                for cell in cells
            ],
        }
        watch = carried.Links()
        for _ in range(args.repeats):
            measure_link(cells, result, args)
            for number, (cell, row) in enumerate(zip(cells, result["cells"])):
                found = pathlib.Path(folder, f"{number}.json")
                for arm, runs in row["all_s"].items():
                    watch.sent = {}
                    seconds, stolen = run_quietly(arm, cell, args, found, watch)
                    runs.append(seconds)
                    row["link_models"][arm].append(watch.busiest(args.iterations * cell.size_bytes))
                    row["stolen"][arm].append(stolen)
                    took = "hung" if runs[-1] is None else f"{runs[-1]:.3f} s"
                    print(f"{cell.name}, {arm}: {took}", file=sys.stderr, flush=True)
                    row["step_s"] = {each: median(all_s) for each, all_s in row["all_s"].items()}
                    keep(result, args)
    give(result, args)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work()
    else:
        main()
