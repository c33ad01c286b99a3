"""The speed of large tensors, and its processor time, against plain TCP and MXNet.

A worker pushes one tensor and waits for its sum, again and again; one worker, one server. Gradients
change from round to round, and all sums are checked. Plain TCP moves as many bytes between two
processes, both ways at once. All is on this host's loopback, or, with ``--rate``, on two hosts of
their own on this machine. That takes root (network namespaces) and iproute2, and shares no memory.
Arms: ``tcp``, ``stock`` (MXNet ``dist_sync``), ``ours`` (``ScheduledKVS``, with shared memory),
``ours-sockets`` (the same without), ``kvstore`` (the same on stock servers), ``native`` (our engine
without MXNet: the program ``wire_benchmark`` of a build with ``-DBS_BUILD_BENCHMARKS=ON``, with
shared memory), ``sockets`` (the same without).

    python -m benchmarks.jobs.throughput --out throughput.json
    python -m benchmarks.jobs.throughput --rate none --arms tcp,stock,ours,native --out hosts.json
    python -m benchmarks.jobs.throughput --draw throughput.json docs/results/throughput.svg

It reports for each size, as medians, the GB/s each way and the CPU-seconds a GB. These are those of
all processes, kernel and user, without the checks of the sums.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import socket
import statistics
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, NoReturn, Tuple

from benchmarks.jobs import sums
from benchmarks.lab import arms, lab_job, local_job, machine, options, picture
from benchmarks.lab.output import add_out_option

CHUNK_BYTES = 512 << 10
WARM_UPS = 2
# The engine without MXNet, and its settings.
SOCKETS = {"BYTESCHEDULER_SHARED_MEMORY": "0"}
NATIVE: Dict[str, Dict[str, str]] = {"native": {}, "sockets": SOCKETS}
ARMS = ("tcp", *local_job.ARMS, *NATIVE)
Ends = Tuple[socket.socket, socket.socket]
Figures = Dict[str, Tuple[float, float]]  # size -> (GB/s, CPU-s per GB)


def rounds_of(size_bytes: int) -> int:
    """Return how many push-pulls of that size make a measurement."""
    return max(8, min(1000, (1 << 30) // size_bytes))


def send_all(peer: socket.socket, size_bytes: int, rounds: int) -> None:
    """Send `rounds` times `size_bytes`, always from the same memory."""
    chunk = memoryview(bytearray(min(size_bytes, CHUNK_BYTES)))
    left = size_bytes * rounds
    while left > 0:
        left -= peer.send(chunk[: min(left, len(chunk))])


def receive_all(peer: socket.socket, size_bytes: int, rounds: int) -> None:
    """Receive as much into the same memory."""
    chunk = memoryview(bytearray(min(size_bytes, CHUNK_BYTES)))
    left = size_bytes * rounds
    while left > 0:
        got = peer.recv_into(chunk[: min(left, len(chunk))])
        if not got:
            raise SystemExit("the other end has gone")
        left -= got


def exchange(peer: socket.socket, size_bytes: int, rounds: int) -> None:
    """Send and receive at once, as the other end does."""

    def send() -> None:
        with contextlib.suppress(ConnectionError):  # the receiving thread gets it too
            send_all(peer, size_bytes, rounds)

    sender = threading.Thread(target=send)
    sender.start()
    receive_all(peer, size_bytes, rounds)
    sender.join()


def _echo(peer: socket.socket, sizes: List[int]) -> NoReturn:
    """Be the other end of `_exchanged`, then end this process: no other code may run in it.

    An exception is printed.
    """
    code = 1
    try:
        for size in sizes:
            exchange(peer, size, WARM_UPS)
            peer.recv(1)  # the measuring side is ready
            exchange(peer, size, rounds_of(size))
            peer.recv(1)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _exchanged(peer: socket.socket, child: int, sizes: List[int]) -> List[local_job.Measured]:
    measured = []
    for size in sizes:
        exchange(peer, size, WARM_UPS)
        pids = [os.getpid(), child]
        cpu_s, begin_s = local_job.cpu_seconds(pids), time.perf_counter()
        peer.send(b"\0")
        exchange(peer, size, rounds_of(size))
        wall_s = time.perf_counter() - begin_s
        each = [wall_s / rounds_of(size)]
        spent_s = local_job.cpu_seconds(pids) - cpu_s
        measured.append(local_job.Measured(str(size), each, wall_s, spent_s))
        peer.send(b"\0")
    return measured


def connected() -> Ends:
    """Return the two ends of a connection on the loopback."""
    with socket.create_server((local_job.LOOPBACK.address, 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        return near, listener.accept()[0]


def bare_tcp(sizes: List[int], timeout_s: float, ends: Ends) -> List[local_job.Measured]:
    """Move the bytes of each size between this process and a forked one.

    Parameters
    ----------
    sizes
        In bytes.
    timeout_s
        How long all of it may take.
    ends
        Of the connection; closed at the end.

    Raises
    ------
    SystemExit
        The other one failed.
    subprocess.TimeoutExpired
        It took longer.
    """
    near, far = ends
    child = os.fork()
    if child == 0:
        near.close()
        _echo(far, sizes)
    far.close()

    def kill() -> None:
        os.kill(child, signal.SIGKILL)

    try:
        with local_job.patience("tcp", timeout_s, kill):
            return _exchanged(near, child, sizes)
    except (OSError, SystemExit) as error:
        raise SystemExit("tcp: the other process has gone") from error
    finally:
        kill()  # it has nothing more to do
        os.waitpid(child, 0)
        near.close()


def mxnet_worker(kind: str, sizes: List[int]) -> None:
    """Time push-pulls through a KVStore; runs in the worker."""
    import mxnet as mx

    store = mx.kv.create("dist_sync")
    if kind != "stock":
        from bytescheduler.mxnet import ScheduledKVS

        store = ScheduledKVS(store)
    for key, size in enumerate(sizes):
        grad, out = mx.nd.zeros((size // 4,)), mx.nd.zeros((size // 4,))
        store.broadcast(key, out, out=out)
        checked = sums.Sums(key, sums.view_of(grad), sums.view_of(out))

        def push_pull(key: int = key, grad: Any = grad, out: Any = out) -> float:  # noqa: ANN401
            begin = time.perf_counter()
            store.pushpull(key, grad, out=out, priority=-key)
            out.wait_to_read()
            return time.perf_counter() - begin

        sums.rounds([checked], push_pull, WARM_UPS)
        local_job.worker_waits("BEGIN", str(size))
        seconds, aside_s = sums.rounds([checked], push_pull, rounds_of(size))
        local_job.worker_sets_aside(aside_s)
        local_job.worker_waits("END", str(size), seconds)
        sums.last_round([checked], push_pull)


def run_job(
    arm: str,
    sizes: List[int],
    args: argparse.Namespace,
    **how: Any,  # noqa: ANN401
) -> List[local_job.Measured]:
    """Run a job with all sizes; `how` is what `local_job.run_arm` takes besides."""
    if arm not in NATIVE:
        worker = [sys.executable, "-m", "benchmarks.throughput", "--worker", arm]
        worker += [str(size) for size in sizes]
        return local_job.run_arm(arm, worker, timeout_s=args.timeout, **how)
    worker = [args.native, "throughput"]
    worker += [f"{size}:{rounds_of(size)}" for size in sizes]
    env = {**NATIVE[arm], **how.pop("more", {})}
    return local_job.run([args.native, "node"], worker, env, timeout_s=args.timeout, **how)


def figures_of(rows: List[local_job.Measured]) -> Figures:
    """Return what a run of an arm comes to."""
    figures = {}
    for row in rows:
        gbytes = int(row.name) / 1e9
        rate = gbytes / statistics.median(row.seconds)
        figures[row.name] = (rate, row.cpu_s / (gbytes * rounds_of(int(row.name))))
    return figures


def summary(runs: List[Figures]) -> Dict[str, Any]:
    """Return an arm's medians by size."""
    return {
        size: {
            "gbytes_per_s": round(statistics.median(run[size][0] for run in runs), 4),
            "cpu_s_per_gbyte": round(statistics.median(run[size][1] for run in runs), 4),
        }
        for size in runs[0]
    }


def bytes_of(text: str) -> List[int]:
    """Return what a list such as 64K,1M says, for argparse."""
    units = {"K": 1 << 10, "M": 1 << 20}
    sizes = []
    for word in text.split(","):
        if word[-1:] not in units or not word[:-1].isdecimal() or int(word[:-1]) == 0:
            raise argparse.ArgumentTypeError(f"{word!r}: want sizes such as 64K or 16M")
        sizes.append(int(word[:-1]) * units[word[-1]])
    return sizes


def draw(result: Dict[str, Any], path: str) -> None:
    """Write the two curves of each arm as SVG."""
    figure, both = picture.subplots(1, 2, figsize=(9, 3))
    labels = {"gbytes_per_s": "GB/s each way", "cpu_s_per_gbyte": "CPU-seconds per GB"}
    for axes, (figure_name, label) in zip(both, labels.items()):
        for arm, of_arm in result["medians"].items():
            if of_arm is None:  # it always hung
                continue
            sizes = [int(size) / (1 << 20) for size in of_arm]
            values = [row[figure_name] for row in of_arm.values()]
            axes.plot(sizes, values, marker="o", markersize=3, label=arm)
        axes.set_xscale("log", base=2)
        axes.set_xlabel("MiB of a tensor")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        picture.label_ends(axes)
    picture.save(figure, path)


def main() -> None:
    """Run all arms in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=bytes_of, default="64K,256K,1M,4M,16M,64M,256M")
    arms.add_arms_option(parser, ARMS, "tcp,stock,ours-sockets,ours,sockets,native")
    parser.add_argument(
        "--rate",
        type=lab_job.rate,
        help="of the links between two hosts of their own: none, 10gbit, ...; default: loopback",
    )
    parser.add_argument("--repeats", type=options.count(), default=5)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for an arm's run")
    parser.add_argument("--native", default="build/benchmarks/wire_benchmark")
    machine.add_option(parser)
    add_out_option(parser)
    parser.add_argument("--draw", nargs=2, metavar=("JSON", "SVG"), help="only draw")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        mxnet_worker(args.worker[0], [int(size) for size in args.worker[1:]])
        return
    if args.draw:
        draw(json.loads(pathlib.Path(args.draw[0]).read_text()), args.draw[1])
        return
    if args.rate is None:
        measure(args, local_job.HERE_ALL, connected)
        return
    with lab_job.lab(args.rate):
        near, far = lab_job.USUAL.worker_hosts[0], lab_job.USUAL.server_hosts[0]
        places = (lab_job.place(near), lab_job.place(far))
        measure(args, places, lambda: lab_job.connected(near, far))


def measure(
    args: argparse.Namespace, places: local_job.Places, connect: Callable[[], Ends]
) -> None:
    """Run all arms with nodes at these places; `connect` is for plain TCP."""

    def run(arm: str) -> Figures:
        if arm == "tcp":
            return figures_of(bare_tcp(args.sizes, args.timeout, connect()))
        return figures_of(run_job(arm, args.sizes, args, places=places))

    arms.alternate(args, run, summary, {"rate": args.rate})


if __name__ == "__main__":
    main()
