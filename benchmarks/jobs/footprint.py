"""Start-up and memory: the time to a job's first sum, and the bytes of a key and of a model.

Real processes on this host, all started at once. Arms: ``native`` (our engine, without MXNet),
``ours`` (``ScheduledKVS``), ``stock`` (MXNet ``dist_sync``).

Start-up: the slowest worker's time from its import of the engine to its first sum. With MXNet,
which is imported before, the time begins with the making of the store. A second time begins with
the start of the first process, so it includes interpreter and imports.

Memory: the growth of a worker and a server, by the kernel's count of their own memory (RssAnon in
/proc). Memory that nodes of a host share is bounded and stands beside it.

- Keys of 4 bytes: once they are declared, and after rounds. ``native`` has rounds in groups of 100.
  With MXNet all keys are in one round; its arrays, two a key, are there before.
- Folds: `bytescheduler.torch` trains a new model with a new optimizer in each. The growth of the
  first server's process since the job came together, after each fold. In a ``direct`` job that is
  worker 0's process, which has the first fold's model too, and memory that Python and PyTorch keep.
  So that job also has the bytes of all servers' sums.
- Modules: the same with a new `DistributedDataParallel` in each fold, which is closed.
- Stores: a new store of `bytescheduler.mxnet` in each fold, which is closed.
  They are measured with servers alone.
- Names: sums of 64 KiB, each under a name of its own: the same after 10, 100 and 600 names.
- A model of large tensors: after rounds of all at once, and the most until then. In the first of
  these rounds a server may have old and new partitions of a key at the same time.

    python -m benchmarks.jobs.footprint --out footprint.json

The results so far are written after every job.
"""

import argparse
import gc
import pathlib
import statistics
import sys
import time
from typing import Any, Dict, List, Mapping, Tuple

from benchmarks.lab import local_job, options
from benchmarks.lab.arms import add_arms_option
from benchmarks.lab.output import add_out_option, give, keep

GROUP = 100
ROUNDS = 3
TENSOR_BYTES = 4 << 20
STARTS = ((1, 1), (2, 2))  # workers, servers
PARTS = ("start", "keys", "model", "folds", "modules", "stores", "names")
FOLDS = 6
FOLD_WIDTH = 2500  # a model of 25 MB
NAMES = (10, 100, 600)
NAME_BYTES = 64 << 10
SETTLE_S = 0.5  # until servers know what is given back
JOBS = ("servers", "direct")
NODES = {"native": "ours", "ours": "ours", "stock": "stock"}


class Framework:
    """Tensors of MXNet, through a store."""

    def __init__(self, arm: str, count: int, size_bytes: int) -> None:
        import mxnet as mx

        self.store = made_store(arm)  # first: the others wait for it
        self._grads = [mx.nd.ones((size_bytes // 4,)) for _ in range(count)]
        self._outs = [mx.nd.zeros((size_bytes // 4,)) for _ in range(count)]
        mx.nd.waitall()

    def declare(self, first: int, last: int) -> None:
        """Declare keys."""
        keys = list(range(first, last))
        self.store.init(keys, self._outs[first:last])
        for out in self._outs[first:last]:
            out.wait_to_read()

    def sums(self, first: int, last: int) -> None:
        """Sum keys, all at once."""
        for grad in self._grads[first:last]:
            grad[:] = 1  # backward writes it too; MXNet's store leaves the sum in it
        for key in range(first, last):
            self.store.pushpull(key, self._grads[key], out=self._outs[key], priority=-key)
        for out in self._outs[first:last]:
            out.wait_to_read()

    def check(self, first: int, last: int) -> None:
        """Look at the sums."""
        expected = float(self.store.num_workers)
        for key in range(first, last):
            found = self._outs[key][:1].asscalar()
            if found != expected:
                raise SystemExit(f"a sum of key {key} is {found} and not {expected}")

    def close(self) -> None:
        """Leave; MXNet does it at the end of the process."""


def made_store(arm: str) -> Any:  # noqa: ANN401 - MXNet has no types
    """Return the store of an arm."""
    import mxnet as mx

    store = mx.kv.create("dist_sync")
    if arm != "stock":
        from bytescheduler.mxnet import ScheduledKVS

        store = ScheduledKVS(store)
    return store


def start_worker(arm: str) -> None:
    """Say how long the first sum takes; runs in the worker."""
    if arm == "native":
        begin = time.monotonic()
        from benchmarks.jobs.native import Tensors

        tensors = Tensors([4])
        tensors.declare(0, 1)
        tensors.sums(0, 1)
        end = time.monotonic()
        tensors.check(0, 1)
    else:
        import mxnet as mx

        begin = time.monotonic()
        store, grad, out = made_store(arm), mx.nd.ones((1,)), mx.nd.zeros((1,))
        store.init(0, out)
        store.pushpull(0, grad, out=out)
        assert out.asscalar() == store.num_workers, "a sum is wrong"
        end = time.monotonic()
    local_job.worker_waits("END", "start", [begin, end])
    if arm == "native":
        tensors.close()


def memory_worker(arm: str, count: int, size_bytes: int) -> None:
    """Stop where the reader looks at the memory; runs in the worker."""
    tensors: Any
    if arm == "native":
        from benchmarks.jobs.native import Tensors

        tensors = Tensors([size_bytes] * (count + 1))
    else:
        tensors = Framework(arm, count + 1, size_bytes)
    # The memory for the first key of all belongs to no key.
    tensors.declare(count, count + 1)
    tensors.sums(count, count + 1)
    local_job.worker_waits("BEGIN", "nothing")
    for first in range(0, count, GROUP):
        tensors.declare(first, min(first + GROUP, count))
    local_job.worker_waits("BEGIN", "declared")
    group = GROUP if arm == "native" and size_bytes == 4 else count
    for _ in range(ROUNDS):
        for first in range(0, count, group):
            tensors.sums(first, min(first + group, count))
    local_job.worker_waits("BEGIN", "summed")
    tensors.check(0, count)
    tensors.close()


class HostedServer:
    """The server that this process hosts, if it does; made before it starts."""

    def __init__(self) -> None:
        from bytescheduler._session.direct import _Hosted

        self._nodes: List[Any] = []
        start = _Hosted.start

        def started_node(hosted: _Hosted, role: str, settings: Mapping[str, str]) -> Any:  # noqa: ANN401
            node = start(hosted, role, settings)
            if role == "server":
                self._nodes.append(node)
            return node

        _Hosted.start = started_node  # type: ignore[method-assign]

    def value_bytes(self) -> List[float]:
        """Return the bytes of its sums, or nothing."""
        metrics = [metric for node in self._nodes for metric in node.measure()]
        return [metric.value for metric in metrics if metric.name == "value_bytes"]


def folds_worker(width: int, kind: str) -> None:
    """Stop after each fold, with the bytes of a hosted server's sums; runs in the worker."""
    import torch

    import bytescheduler.torch as bps

    hosted = HostedServer()
    bps.init()
    for fold in range(FOLDS):
        torch.manual_seed(fold)
        middle = torch.nn.Linear(width, width)
        net = torch.nn.Sequential(torch.nn.Linear(6, width), middle, torch.nn.Linear(width, 3))
        if not fold:
            local_job.worker_waits("BEGIN", "nothing", hosted.value_bytes())
        optimizer: Any = torch.optim.SGD(net.parameters(), 0.01)
        model: Any = net
        if kind == "modules":
            model = bps.DistributedDataParallel(net)
        else:
            optimizer = bps.DistributedOptimizer(optimizer, model=net)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 6)).square().mean().backward()
            optimizer.step()
        (model if kind == "modules" else optimizer).close()
        del net, middle, optimizer, model
        gc.collect()  # the process of a direct job has the model too
        time.sleep(SETTLE_S)
        local_job.worker_waits("BEGIN", f"fold-{fold}", hosted.value_bytes())
    bps.shutdown()


def stores_worker(width: int) -> None:
    """Stop after each fold, in which a new store sums gradients; runs in the worker."""
    import mxnet as mx

    place = made_store("ours")  # holds the place in the job
    grad, out = mx.nd.ones((width, width)), mx.nd.zeros((width, width))
    mx.nd.waitall()
    local_job.worker_waits("BEGIN", "nothing")
    for fold in range(FOLDS):
        store = made_store("ours")
        store.init(0, out)
        for _ in range(3):
            store.pushpull(0, grad, out=out)
            out.wait_to_read()
        if out[0, 0].asscalar() != store.num_workers:
            raise SystemExit(f"a sum is {out[0, 0].asscalar()} and not {store.num_workers}")
        store.close()
        time.sleep(SETTLE_S)
        local_job.worker_waits("BEGIN", f"fold-{fold}")
    place.close()


def names_worker(size_bytes: int) -> None:
    """Stop after each of NAMES; runs in the worker."""
    import torch

    import bytescheduler.torch as bps

    hosted = HostedServer()
    bps.init()
    bps.push_pull(torch.ones(1), name="first")
    local_job.worker_waits("BEGIN", "nothing", hosted.value_bytes())
    for number in range(1, NAMES[-1] + 1):
        total = bps.push_pull(torch.ones(size_bytes // 4), name=f"metric{number}", average=False)
        if total[0] != bps.size():
            raise SystemExit(f"a sum of metric{number} is {total[0]} and not {bps.size()}")
        if number in NAMES:
            time.sleep(SETTLE_S)
            local_job.worker_waits("BEGIN", f"names-{number}", hosted.value_bytes())
    bps.shutdown()


def memory_of(pid: int) -> Dict[str, int]:
    """Return the bytes that a process has of its own, and of what it shares with others.

    "most" is the most that it had of its own until now. The kernel counts that with files and what
    is shared, so this is what it was at least: that with as much of both as there is now.
    """
    rows = {}
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmHWM", "RssAnon", "RssFile", "RssShmem"):
            rows[name] = int(value.split()[0]) * 1024
    most = rows["VmHWM"] - rows["RssFile"] - rows["RssShmem"]
    return {"own": rows["RssAnon"], "shared": rows["RssShmem"], "most": most}


def command_of(*words: object) -> List[str]:
    """Return the command of a worker."""
    return [sys.executable, "-m", "benchmarks.footprint", "--worker", *map(str, words)]


def started(arm: str, workers: int, servers: int) -> Tuple[float, float]:
    """Return the seconds until the first sum: from the import, and from the first process."""
    node = local_job.NODES[NODES[arm]]
    env = local_job.ARMS["stock" if arm == "stock" else "ours"][1]
    begin = time.monotonic()
    with local_job.job(node, command_of("start", arm), env, workers, servers) as job:
        times = [tuple(map(float, words[2:])) for words in job.heard("END start")]
        job.go_on()
        job.ended()
    return max(end - start for start, end in times), max(end for _, end in times) - begin


def grown(arm: str, count: int, size_bytes: int, workers: int = 1) -> Dict[str, Dict[str, Any]]:
    """Return by how many bytes the first worker and the server have grown at each stop.

    "most" is by how much more they ever had of their own than at the first stop.
    """
    node = local_job.NODES[NODES[arm]]
    env = local_job.ARMS["stock" if arm == "stock" else "ours"][1]
    looked: Dict[str, Dict[str, Dict[str, int]]] = {}
    with local_job.job(node, command_of("memory", arm, count, size_bytes), env, workers) as job:
        for name in ("nothing", "declared", "summed"):
            job.heard(f"BEGIN {name}")
            watched = {"worker": job.workers[0], "server": job.servers[0]}
            looked[name] = {who: memory_of(process.pid) for who, process in watched.items()}
            job.go_on()
        job.ended()
    before = looked.pop("nothing")
    return {
        stop: {
            who: {
                kind: value - before[who]["own" if kind == "most" else kind]
                for kind, value in of.items()
            }
            for who, of in processes.items()
        }
        for stop, processes in looked.items()
    }


def kept_row(kind: str, how: str, size: int, stops: List[str]) -> Dict[str, Any]:
    """Return by how many bytes the process of the first server has grown at each stop.

    "sums" are the bytes of the sums of all servers there, where workers host them.
    """
    env = local_job.ARMS["ours"][1]
    command = command_of(kind, "native", size)
    if how == "direct":
        started_job = local_job.direct_job(command, env, workers=2)
    else:
        started_job = local_job.job(local_job.NODES["ours"], command, env, workers=2)
    row: Dict[str, Any] = {"job": how}
    sums: Dict[str, float] = {}
    with started_job as job:
        for stop in ("nothing", *stops):
            lines = job.heard(f"BEGIN {stop}")
            sums[stop] = sum(float(size) for words in lines for size in words[2:])
            row[stop] = memory_of(job.servers[0].pid)["own"]
            job.go_on()
        job.ended()
    before = row.pop("nothing")
    row.update({stop: row[stop] - before for stop in stops})
    if how == "direct":
        row["sums"] = sums
    print(row, file=sys.stderr, flush=True)
    return row


def start_rows(
    runs: Dict[Tuple[str, int, int], List[Tuple[float, float]]],
) -> List[Dict[str, Any]]:
    """Return the medians of what start-up took, for each arm, workers and servers."""
    return [
        {
            "arm": arm,
            "workers": workers,
            "servers": servers,
            "from_import_s": statistics.median(took[0] for took in of),
            "from_start_s": statistics.median(took[1] for took in of),
            "all": of,
        }
        for (arm, workers, servers), of in runs.items()
    ]


def memory_row(arm: str, count: int, size_bytes: int, workers: int = 1) -> Dict[str, Any]:
    """Return what grew, over what was declared: bytes a key, or for large ones a share."""
    found = grown(arm, count, size_bytes, workers)
    per = count if size_bytes == 4 else count * size_bytes
    row: Dict[str, Any] = {"arm": arm, "workers": workers, "keys": count, "key_bytes": size_bytes}
    for stop, processes in found.items():
        for who, of in processes.items():
            row[f"{stop}_{who}"] = round(of["own"] / per, 3)
            if stop == "summed" and size_bytes != 4:  # with few bytes the peak is at the start
                row[f"most_{who}"] = round(of["most"] / per, 3)
    row["shared_bytes"] = found["summed"]["worker"]["shared"]
    print(row, file=sys.stderr, flush=True)
    return row


def measure(args: argparse.Namespace) -> Dict[str, Any]:
    """Measure all parts; what is known is kept after every job."""
    result: Dict[str, Any] = {}
    runs: Dict[Tuple[str, int, int], List[Tuple[float, float]]] = {}
    for _ in range(args.repeats if "start" in args.parts else 0):
        for workers, servers in STARTS:
            for arm in args.arms:
                took = started(arm, workers, servers)
                print(arm, workers, servers, took, file=sys.stderr, flush=True)
                runs.setdefault((arm, workers, servers), []).append(took)
                result["start"] = start_rows(runs)
                keep(result, args)
    jobs: List[Tuple[str, Tuple[str, int, int, int]]] = []
    if "keys" in args.parts:
        jobs += [("bytes_per_key", (arm, n, 4, 1)) for n in args.keys for arm in args.arms]
    if "model" in args.parts:
        n = (args.model_mib << 20) // TENSOR_BYTES
        models = [(arm, n, TENSOR_BYTES, workers) for arm in args.arms for workers in (1, 2)]
        jobs += [("over_model_bytes", model) for model in models]
    for kind, job in jobs:
        result.setdefault(kind, []).append(memory_row(*job))
        keep(result, args)
    for how in JOBS:
        for kind in ("folds", "modules", "stores"):
            if kind not in args.parts or (kind, how) == ("stores", "direct"):
                continue
            stops = [f"fold-{fold}" for fold in range(FOLDS)]
            row = kept_row(kind, how, args.fold_width, stops)
            result.setdefault(f"bytes_after_{kind}", []).append(row)
        if "names" in args.parts:
            row = kept_row("names", how, NAME_BYTES, [f"names-{n}" for n in NAMES])
            result.setdefault("bytes_after_names", []).append(row)
        keep(result, args)
    return result


def main() -> None:
    """Run every arm and print what was found as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arms_option(parser, NODES, "native,ours,stock")
    parser.add_argument("--parts", type=options.names(PARTS), default=",".join(PARTS))
    parser.add_argument("--repeats", type=options.count(), default=7, help="of start-up")
    parser.add_argument("--keys", type=options.counts, default="10000,100000")
    parser.add_argument("--model-mib", type=options.count(TENSOR_BYTES >> 20), default=256)
    parser.add_argument("--fold-width", type=options.count(), default=FOLD_WIDTH)
    add_out_option(parser)
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        what, arm, *numbers = args.worker
        if what == "start":
            start_worker(arm)
        elif what in ("folds", "modules"):
            folds_worker(int(numbers[0]), what)
        elif what in ("stores", "names"):
            (stores_worker if what == "stores" else names_worker)(int(numbers[0]))
        else:
            memory_worker(arm, *map(int, numbers))
        return
    give(measure(args), args)


if __name__ == "__main__":
    main()
