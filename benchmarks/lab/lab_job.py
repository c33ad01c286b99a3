"""A job whose workers and servers are on rate-limited hosts on this machine, in any shape.

Usually there are two workers and two servers, each on a host of its own. Workers end with a line
that `report` prints. Needs root (network namespaces) and iproute2.
"""

import abc
import argparse
import concurrent.futures
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, TypeVar

from benchmarks.lab import local_job, options
from bytescheduler._advise.shape import Shape, factors_of
from bytescheduler._launch.launcher import Launcher, Place
from bytescheduler._process.child import SPEAKS, Child, Streams
from bytescheduler._process.numbers import bits_per_s

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LAB = "bsbench"
USUAL = Shape()
HOSTS = "10.201.0"
ROOT_PORT = 9091
MOST_HOSTS = 100  # that netlab.sh takes
READINGS = 3  # for a link
CLONE_NEWNET = 0x40000000  # setns(2)
Made = TypeVar("Made")
TO_END_S = 10.0  # that processes have when all results are there
_REPORTS = Streams(stdout=subprocess.PIPE)
_BEGINS_AND_REPORTS = Streams(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
_BEGINS = "BEGINS"
_MERGED = Streams(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
Role = Tuple[str, int, List[str]]  # DMLC_ROLE, the host, the command

# Gradients are compressed in the arm ours-METHOD, and how.
METHODS: Dict[str, Dict[str, object]] = {
    "onebit": {"compressor": "onebit", "scaling": True, "ef": "vanilla"},
    "topk": {"compressor": "topk", "k": 0.01, "ef": "vanilla"},
    "randomk": {"compressor": "randomk", "k": 0.03125, "ef": "vanilla"},
    "dithering": {"compressor": "dithering", "k": 7, "ef": "vanilla"},
    "int8": {"compressor": "int8", "ef": "vanilla"},
    "bf16": {"compressor": "bf16"},
    "bf16-push": {"compressor": "bf16", "pull": "plain"},
    "fp16": {"compressor": "fp16"},
    "2bit": {"type": "2bit"},
    "2bit-same": {"type": "2bit", "pull": "same"},
    "2bit-bf16": {"type": "2bit", "pull": "bf16"},
}
COMPRESSION = {f"ours-{method}": params for method, params in METHODS.items()}
ARMS: Dict[str, Dict[str, str]] = {
    "stock": {},
    "p3": {"DMLC_PS_VAN_TYPE": "p3", "DMLC_PS_WATER_MARK": "10"},
    "kvstore": {"BYTESCHEDULER_BACKEND": "kvstore"},  # stock servers, partitions scheduled by us
    "ours": {"BYTESCHEDULER_BACKEND": "native"},
    "ours-caller": {"BYTESCHEDULER_BACKEND": "native", "BYTESCHEDULER_PRIORITY": "caller"},
    # From what suits the link, unless the caller of `run` has it remember something.
    "ours-tuned": {"BYTESCHEDULER_BACKEND": "native", "BYTESCHEDULER_TUNING": "on"},
    "ours-direct": {"BYTESCHEDULER_BACKEND": "native", "DMLC_NUM_SERVER": "0"},
    **{arm: {"BYTESCHEDULER_BACKEND": "native"} for arm in COMPRESSION},
    "native": {},  # our engine without MXNet: the program wire_benchmark
    "native-caller": {"BYTESCHEDULER_PRIORITY": "caller"},
    # Nothing overtakes anything, and the kernel takes what it likes.
    "native-fifo": {"BYTESCHEDULER_SCHEDULING": "0", "BYTESCHEDULER_UNSENT": "0"},
    # In partitions, within the credit, the first that is ready first.
    "ours-fifo": {"BYTESCHEDULER_BACKEND": "native", "BYTESCHEDULER_SCHEDULING": "0"},
    # Whole tensors, as they come: what wrapping costs by itself.
    "ours-off": {
        "BYTESCHEDULER_BACKEND": "native",
        "BYTESCHEDULER_SCHEDULING": "0",
        "BYTESCHEDULER_PARTITION": "1GiB",
        "BYTESCHEDULER_CREDIT": "64GiB",
    },
}
_WHOLE = ((1_000_000, "gbit"), (1_000, "mbit"), (1, "kbit"))
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
# The share of a link's rate that TCP payload gets with frames of 1500 bytes.
PAYLOAD = 0.953
LATENCY_S = 100e-6  # there and back takes 0.2 ms through two switches' buckets


def rate(text: str) -> str:
    """Return a rate in the words of tc, or "none", for argparse."""
    number, unit = text[:-4], text[-4:]
    if text == "none" or (number.isdecimal() and unit in UNITS):
        return text
    try:
        kbits = round(bits_per_s(text) / 1e3)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text}: want kbit, mbit or gbit in whole numbers, such as 300mbit, or none"
        ) from None
    factor, unit = next(each for each in _WHOLE if kbits % each[0] == 0)
    return f"{kbits // factor}{unit}"


def rates(text: str) -> List[str]:
    """Return the rates that a list such as "10gbit,1gbit" says, for argparse."""
    return [rate(word) for word in text.split(",")]


def _factors(text: str) -> Tuple[Tuple[int, float], ...]:
    """Return what a list such as "3=0.5,4=2" says, for argparse."""
    try:
        return factors_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_shape_options(parser: argparse.ArgumentParser) -> None:
    """Let the caller say how many workers and servers there are, and where."""
    parser.add_argument("-w", "--workers", type=options.count(), default=USUAL.workers)
    parser.add_argument("-s", "--servers", type=options.count(), default=USUAL.servers)
    parser.add_argument(
        "--together",
        type=options.count(0),
        default=0,
        metavar="N",
        help="put the first N servers on the hosts of the first N workers; default: all on hosts "
        "of their own",
    )
    parser.add_argument(
        "--per-host",
        type=options.count(),
        default=1,
        metavar="N",
        help="put N workers on each of the hosts that have any",
    )
    parser.add_argument(
        "--factors",
        type=_factors,
        default=(),
        metavar="HOST=FACTOR,...",
        help="of --rate that single hosts have, such as 3=0.5; hosts count from 1, first those of "
        "the workers",
    )


def shape_of(
    parser: argparse.ArgumentParser, args: argparse.Namespace, rates: Sequence[str] = ()
) -> Shape:
    """Return what was chosen, for links of these rates; end with an error if it is no shape."""
    shape = Shape(args.workers, args.servers, args.together, args.factors, args.per_host)
    if shape.problem:
        parser.error(shape.problem)
    if shape.hosts > MOST_HOSTS:
        parser.error(f"{shape.name}: {shape.hosts} hosts, want at most {MOST_HOSTS}")
    if shape.factors and "none" in (rates or [args.rate]):
        parser.error("--factors: want links that have a rate")
    return shape


def _of_rate(text: str, factor: float) -> str:
    return f"{round(factor * int(text[:-4]) * UNITS[text[-4:]] / 1e3)}kbit"


def payload_bytes_per_s(text: str) -> float:
    """Return what a link of a rate in the words of tc carries each way."""
    return PAYLOAD * int(text[:-4]) * UNITS[text[-4:]] / 8


def is_ours(arm: str) -> bool:
    """Return whether a worker in Python wraps its store."""
    return "BYTESCHEDULER_BACKEND" in ARMS[arm]


def is_direct(arm: str) -> bool:
    """Return whether each worker hosts a server."""
    return "DMLC_NUM_SERVER" in ARMS[arm]


class Watch(abc.ABC):
    """Looks at a lab before the first step of a job, and behind its last one."""

    @abc.abstractmethod
    def begin(self) -> None:
        """Look: all workers wait for their first step."""

    @abc.abstractmethod
    def end(self) -> None:
        """Look: all workers have reported."""


def await_begin() -> None:
    """Say that this worker is about to make its first step, and wait until all are."""
    print(_BEGINS, flush=True)
    sys.stdin.readline()


def report(result: object) -> None:
    """Tell `run` what a worker has measured."""
    print("RESULT " + json.dumps(result), flush=True)


def _netlab(*words: str) -> None:
    subprocess.run([str(HERE / "netlab.sh"), *words], check=True)


@contextlib.contextmanager
def _ended_by_signals() -> "Iterator[None]":
    """Let SIGTERM end this process as an exit does, so that the hosts go too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def lab(rate: str, shape: Shape = USUAL) -> "Iterator[None]":
    """Lend the hosts; `rate` (1gbit, 300mbit) is that of each direction of each usual link."""
    shaped = [] if rate == "none" else ["-r", rate]
    with _ended_by_signals():
        _netlab("up", LAB, str(shape.hosts), *shaped)
        try:
            if shape.factors:
                change_rate(rate, shape)
            yield
        finally:
            _netlab("down", LAB, "-k")


def place(host: int) -> Place:
    """Return where processes of a host of the lab run; hosts count from 1."""
    return Place(f"{HOSTS}.{host}", [str(HERE / "netlab.sh"), "exec", LAB, str(host)])


def _on(host: int, do: Callable[[], Made]) -> Made:
    """Do it on a thread that is on a host's network, where its sockets stay."""

    def entered() -> Made:
        with open(f"/run/netns/{LAB}-{host}", "rb") as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"host {host}'s network cannot be entered")
        return do()

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(entered).result()


def connected(near: int, far: int) -> Tuple[socket.socket, socket.socket]:
    """Return the two ends of a TCP connection between two hosts of the lab."""
    with _on(far, lambda: socket.create_server((place(far).address, 0))) as listener:
        near_end = _on(near, lambda: socket.create_connection(listener.getsockname(), 10))
        near_end.settimeout(None)
        return near_end, listener.accept()[0]


def change_rate(rate: str, shape: Shape = USUAL) -> None:
    """Give each direction of each link of the lab that is there another rate."""
    for host, factor in shape.rates(1.0).items():
        of_host = rate if factor == 1 else _of_rate(rate, factor)
        _netlab("rate", LAB, str(host), of_host, of_host)


def measured_bytes_per_s(rate: str = "none", shape: Shape = USUAL) -> float:
    """Return the payload that TCP moves between two usual hosts, the slower way.

    Of several readings the largest: a machine that was busy for a moment measures too little, and
    what is compared with it would look better than it is. Where fewer than two hosts are usual, it
    is what TCP should move.
    """
    hosts = shape.usual_hosts
    if len(hosts) < 2:
        return payload_bytes_per_s(rate)
    return max(_measured_once(hosts[0], hosts[-1]) for _ in range(READINGS))


def _measured_once(near_host: int, far_host: int) -> float:
    doctor = [sys.executable, "-m", "bytescheduler.cli", "doctor"]
    near, far = place(near_host), place(far_host)
    listen = [*near.prefix, *doctor, "--listen", str(ROOT_PORT), "--wait", "60"]
    with Child.start("the listener", listen, os.environ, streams=_MERGED) as listener:
        assert listener.stdout is not None
        listener.stdout.readline()  # it listens
        ask = [*doctor, "--peer", f"{near.address}:{ROOT_PORT}", "--seconds", "3", "--json"]
        asked = subprocess.run([*far.prefix, *ask], stdout=subprocess.PIPE, check=False, text=True)
        link = json.loads(asked.stdout)["link"]
    if link is None:
        raise SystemExit(f"the link could not be measured: {asked.stdout}")
    return float(min(link["to_peer_bits_per_s"], link["from_peer_bits_per_s"])) / 8


def reported(arm: str, worker: Child) -> Any:  # noqa: ANN401
    """Return what a worker reports, which need not end then.

    Raises as `run` does.
    """
    assert worker.stdout is not None
    for line in iter(worker.stdout.readline, ""):
        if line.startswith("RESULT ") and line.endswith("\n"):  # else it was killed meanwhile
            try:  # mpirun may put the lines of two workers into one
                return json.JSONDecoder().raw_decode(line[len("RESULT ") :])[0]
            except ValueError:
                continue
    raise SystemExit(f"{arm}: a worker failed with exit code {worker.wait()}")


def _discard(output: int) -> None:
    with open(output, "rb") as rest:
        while rest.read(1 << 16):
            pass


def await_end(arm: str, launcher: Launcher) -> None:
    """Wait a while for the end of all; name those that are left to be killed.

    Raises as `run` does.
    """
    deadline = time.monotonic() + TO_END_S
    for worker in launcher.workers:  # or it might wait for a reader, and nodes for it
        threading.Thread(target=_discard, args=(worker.take_output(),), daemon=True).start()
    launcher.await_ends(launcher.workers, deadline)
    for worker in launcher.workers:
        if worker.code:
            raise SystemExit(
                f"{arm}: {worker.name} reported, and failed with exit code {worker.code}"
            )
    launcher.await_ends(launcher.children, deadline)
    for child in launcher.children:
        if child.code is None:
            print(
                f"{arm}: all results are there, but {child.name} does not end; it is killed",
                file=sys.stderr,
                flush=True,
            )


def _begin(arm: str, workers: Sequence[Child], watch: Watch) -> None:
    """Let all workers make their first step once each is about to; raises as `run` does."""
    for worker in workers:
        assert worker.stdout is not None
        if all(line.strip() != _BEGINS for line in iter(worker.stdout.readline, "")):
            raise SystemExit(f"{arm}: a worker failed with exit code {worker.wait()}")
    watch.begin()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()


def stated_rates(rate: str, shape: Shape) -> Dict[int, Dict[str, str]]:
    """Return the setting of each host that states its link's rate; none where all are equal."""
    if not shape.factors:
        return {}
    rates = shape.rates(int(rate[:-4]) * UNITS[rate[-4:]])
    return {host: {"BYTESCHEDULER_LINK_RATE": f"{of / 1e3:.0f}kbit"} for host, of in rates.items()}


def run(
    arm: str,
    worker: List[str],
    env: Dict[str, str],
    timeout_s: float,
    node: Optional[List[str]] = None,
    shape: Shape = USUAL,
    of_host: Optional[Dict[int, Dict[str, str]]] = None,
    watch: Optional[Watch] = None,
) -> List[Any]:
    """Run a job to its end in the lab and return what its workers reported, in any order.

    A process that does not end, with all results there, is told on standard error and killed.

    Parameters
    ----------
    arm
        One of `ARMS`.
    worker
        The command of each worker.
    env
        Further settings of all processes.
    timeout_s
        How long the workers may take.
    node
        The command of the scheduler node and of servers; None: that of the arm.
    shape
        Workers and servers, and their hosts, which are among those of the lab.
    of_host
        Further settings of the processes of single hosts.
    watch
        Looks at the lab before the first step and behind the last one; the workers then call
        `await_begin`.

    Raises
    ------
    SystemExit
        A worker failed.
    subprocess.TimeoutExpired
        A worker had not reported in time.
    """
    nodes = node or local_job.NODES["ours" if arm.startswith("ours") else "stock"]
    roles = [*node_roles(nodes, shape), *worker_roles(worker, shape)]
    if is_direct(arm):
        roles = [role for role in roles if role[0] != "server"]
    return run_roles(arm, roles, {**ARMS[arm], **env}, timeout_s, shape, of_host, watch)


def node_roles(node: List[str], shape: Shape) -> List[Role]:
    """Return the scheduler node and the servers, where the shape puts them."""
    return [("scheduler", 1, node), *(("server", host, node) for host in shape.server_hosts)]


def worker_roles(worker: List[str], shape: Shape) -> List[Role]:
    """Return the workers, where the shape puts them."""
    return [("worker", host, worker) for host in shape.worker_hosts]


def run_roles(
    arm: str,
    roles: Sequence[Role],
    env: Dict[str, str],
    timeout_s: float,
    shape: Shape = USUAL,
    of_host: Optional[Dict[int, Dict[str, str]]] = None,
    watch: Optional[Watch] = None,
) -> List[Any]:
    """Run processes to their end in the lab, with these settings; otherwise as `run`."""
    base = local_job.settings()
    base["PYTHONPATH"] = os.pathsep.join([str(ROOT), base.get("PYTHONPATH", "")])
    with contextlib.ExitStack() as ends:
        # This job must not use the results of this user's other jobs.
        folder = ends.enter_context(tempfile.TemporaryDirectory())
        base.update({"BYTESCHEDULER_TUNING_CACHE": f"{folder}/tuning.json", **env})
        servers = sum(role == "server" for role, _, _ in roles)
        launcher = ends.enter_context(
            Launcher(shape.workers, servers, base, root=place(1), port=ROOT_PORT)
        )
        for role, host, words in roles:
            name = f"the {role} on host {host}"
            streams = SPEAKS if role != "worker" else _BEGINS_AND_REPORTS if watch else _REPORTS
            own = (of_host or {}).get(host)
            launcher.start(role, words, name=name, place=place(host), streams=streams, env=own)
        with local_job.patience(roles[-1][2], timeout_s, launcher.kill_all):
            if watch is not None:
                _begin(arm, launcher.workers, watch)
            results = [reported(arm, process) for process in launcher.workers]
            if watch is not None:
                watch.end()
        await_end(arm, launcher)
        return results
