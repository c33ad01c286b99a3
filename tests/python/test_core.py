"""The extension: whole jobs in one process, errors as exceptions, signals."""

import collections
import ctypes
import gc
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Callable, Iterator, List, Optional, Set, Tuple

import pytest
from inline_snapshot import snapshot
from roles import in_threads, role
from sentences import line_with

from bytescheduler import Closed, ConfigError, Error, PeerLost, Timeout, UsageError
from bytescheduler._core import (
    Coding,
    Completions,
    MXNetPlugin,
    Node,
    Pending,
    Worker,
    await_names,
    names_known,
)
from bytescheduler._session.view import View

FLOAT32 = 0
TALKATIVE = {"BYTESCHEDULER_LOG_LEVEL": "info"}


Job = Tuple[Node, Node, List[Worker]]


@pytest.fixture
def job() -> Iterator[Job]:
    """Return a scheduler node, a server, and two workers by rank; all are closed at the end."""
    scheduler = Node.start(role("scheduler", 0))
    server = Node.start(role("server", scheduler.port))
    workers: List[Worker] = []
    errors = in_threads([lambda: workers.append(Worker.open(role("worker", scheduler.port)))] * 2)
    assert not errors, errors
    workers.sort(key=lambda worker: worker.rank)
    yield scheduler, server, workers
    errors = in_threads([lambda w=w: w.close(drain_ms=0) for w in workers])
    assert not errors, errors
    server.close()
    scheduler.close()


def buffer(values: "List[float]") -> "ctypes.Array[ctypes.c_float]":
    return (ctypes.c_float * len(values))(*values)


def item(key: int, array: "ctypes.Array[ctypes.c_float]") -> Tuple[int, int, int, int]:
    return key, FLOAT32, ctypes.addressof(array), ctypes.sizeof(array)


def test_broadcast_gives_all_workers_rank_zeros_values(job: Job) -> None:
    _, _, workers = job
    assert [w.rank for w in workers] == [0, 1]
    assert [w.num_workers for w in workers] == [2, 2]
    assert [w.num_servers for w in workers] == [1, 1]
    arrays = [[buffer([1, 2, 3]), buffer([4])], [buffer([0, 0, 0]), buffer([0])]]
    errors = in_threads(
        [
            lambda w=w, a=a: w.broadcast([item(1, a[0]), item(2, a[1])], owner=a)
            for w, a in zip(workers, arrays)
        ]
    )
    assert not errors, errors
    assert [list(a) for a in arrays[1]] == [[1, 2, 3], [4]]
    assert all(w.status() is None for w in workers)


def test_a_sum_comes_when_every_worker_has_pushed(job: Job) -> None:
    _, _, workers = job
    start = buffer([0, 0])
    assert not in_threads([lambda w=w: w.broadcast([item(7, start)], owner=start) for w in workers])
    sent, received = [buffer([1, 2]), buffer([30, 40])], [buffer([0, 0]), buffer([0, 0])]

    def push(rank: int) -> Pending:
        addresses = (ctypes.addressof(sent[rank]), ctypes.addressof(received[rank]))
        return workers[rank].start_push_pull(7, *addresses, 8, owner=(sent, received))

    first = push(0)
    assert not first.over()
    second = push(1)
    for pending in (first, second):
        pending.wait()
        assert pending.over()
    assert [list(a) for a in received] == [[31, 42], [31, 42]]
    unknown = workers[0].start_push_pull(8, 0, 0, 0, owner=None)
    with pytest.raises(Error, match="key=8"):
        unknown.wait()


def test_a_push_pull_takes_a_factor_and_says_when_its_memory_is_free(job: Job) -> None:
    _, _, workers = job
    start = buffer([0] * 3)
    assert not in_threads([lambda w=w: w.broadcast([item(7, start)], owner=start) for w in workers])
    sent, received = [buffer([1, 2, 5]), buffer([3, 4, 6])], [buffer([0] * 3), buffer([0] * 3)]

    def push(rank: int, factor: float, coding: Optional[Coding] = None) -> Pending:
        addresses = (ctypes.addressof(sent[rank]), ctypes.addressof(received[rank]))
        return workers[rank].start_push_pull(
            *(7, *addresses, 12), owner=(sent, received), factor=factor, coding=coding
        )

    # A tensor this small is free with its sum: both are one message.
    first = push(0, 0.5)
    assert not first.pushed()
    second = push(1, 2)
    for pending in (first, second):
        pending.wait()
        assert pending.pushed()
    assert [list(a) for a in received] == [[2, 3, 5.5], [8, 12, 22]]
    coding = Coding("2bit", {"threshold": "0.5"})
    for pending in [push(rank, 0.5, coding) for rank in (0, 1)]:
        pending.wait()
    assert list(received[0]) == [0.5, 0.5, 0.5]
    with pytest.raises(ConfigError, match="key 7: a sum cannot be multiplied by 0"):
        push(0, 0)


def exchange(
    worker: Worker,
    key: int,
    array: "ctypes.Array[ctypes.c_float]",
    *,
    op: int = 0,
    label: str = "call",
    timeout_s: float = 0,
    completions: Optional[Completions] = None,
) -> Pending:
    """Start an exchange among both workers, in place; its token is the rank."""
    return worker.start_exchange(
        *(key, [1, 0], [0, 1]),
        size=ctypes.sizeof(array),
        owner=array,
        op=op,
        send=ctypes.addressof(array),
        receive=ctypes.addressof(array),
        label=label,
        timeout_s=timeout_s,
        completions=completions,
        token=worker.rank,
    )


def test_an_exchange_needs_no_declaration_and_reports_its_end(job: Job) -> None:
    _, _, workers = job
    completions = Completions()
    arrays = [buffer([1, 8]), buffer([5, 2])]
    pendings = [
        exchange(worker, 1, array, op=2, completions=completions)
        for worker, array in zip(workers, arrays)
    ]
    tokens: Set[int] = set()
    while len(tokens) < 2:
        tokens |= set(completions.wait(10_000))
    assert tokens == {0, 1}
    assert all(pending.over() and pending.pushed() for pending in pendings)
    assert [list(array) for array in arrays] == [[5, 8], [5, 8]]
    completions.wake()
    assert completions.wait(10_000) == []


def test_exchanges_that_differ_fail_on_both_workers_and_the_job_goes_on(job: Job) -> None:
    _, _, workers = job
    arrays = [buffer([1, 8]), buffer([5, 2])]
    differing = [
        exchange(worker, 1, array, label=f"call of {worker.rank}")
        for worker, array in zip(workers, arrays)
    ]
    for pending in differing:
        with pytest.raises(ConfigError, match=r"'call of [01]'.*'call of [01]'"):
            pending.wait()
    for pending in [exchange(worker, 2, array) for worker, array in zip(workers, arrays)]:
        pending.wait()
    late = exchange(workers[0], 3, arrays[0], timeout_s=0.1)
    with pytest.raises(Timeout, match="'call': worker 0 has waited for 100 ms; missing: worker 1"):
        late.wait()
    quits = exchange(workers[0], 4, arrays[0])
    workers[0].quit_exchange(4, "enough")
    with pytest.raises(Closed, match="enough"):
        quits.wait()
    with pytest.raises(ConfigError, match="rank 2 of only 2 workers"):
        workers[0].start_exchange(5, [0], [2], size=0, owner=None).wait()
    assert all(worker.status() is None for worker in workers)


def test_exchanges_with_times_and_labels_that_are_none_are_refused(job: Job) -> None:
    _, _, workers = job
    array = buffer([1, 8])
    for seconds in (-1.0, float("nan")):
        with pytest.raises(ConfigError, match="is no time"):
            exchange(workers[0], 1, array, timeout_s=seconds)
    with pytest.raises(ConfigError, match="has a NUL"):
        exchange(workers[0], 1, array, label="a\0b")
    short = exchange(workers[0], 2, array, timeout_s=1e-5)
    with pytest.raises(Timeout, match="worker 0 has waited for 1 ms"):
        short.wait()
    arrays = [buffer([1, 8]), buffer([5, 2])]
    long = [
        exchange(worker, 3, array, timeout_s=seconds)
        for worker, array, seconds in zip(workers, arrays, (float("inf"), 1e300))
    ]
    for pending in long:
        pending.wait()


class Circle:
    """Refers to itself and to a round under way, so that only the garbage collector frees it."""

    def __init__(self, pending: Pending) -> None:
        self.circle = self
        self.pending = pending


class Memory:
    """Owns what the engine reads and writes; the garbage collector clears it as it does tensors."""

    def __init__(self) -> None:
        self.sent, self.received = buffer([1, 2]), buffer([0, 0])

    def addresses(self) -> Tuple[int, int, int]:
        return ctypes.addressof(self.sent), ctypes.addressof(self.received), 8


def test_memory_of_a_round_outlives_a_caller_that_is_garbage(job: Job) -> None:
    _, _, workers = job
    start = buffer([0, 0])
    assert not in_threads([lambda w=w: w.broadcast([item(7, start)], owner=start) for w in workers])
    mine = Memory()
    lives = weakref.ref(mine)
    Circle(workers[0].start_push_pull(7, *mine.addresses(), owner=mine))
    del mine
    gc.collect()
    kept = lives()
    assert kept is not None
    other = Memory()
    workers[1].start_push_pull(7, *other.addresses(), owner=other).wait()
    end = time.monotonic() + 60
    while list(kept.received) != [2, 4]:
        assert time.monotonic() < end
        time.sleep(0.001)


def value_bytes(server: Node) -> float:
    return sum(metric.value for metric in server.measure() if metric.name == "value_bytes")


def await_value_bytes(server: Node, wanted: float) -> None:
    end = time.monotonic() + 20
    while value_bytes(server) != wanted:
        assert time.monotonic() < end, value_bytes(server)
        time.sleep(0.005)


def test_keys_that_all_workers_give_back_leave_their_server(job: Job) -> None:
    _, server, workers = job
    arrays = [[buffer([rank + 1.0] * 100), buffer([0.0] * 100)] for rank in (0, 1)]

    def total() -> None:
        pending = [
            w.start_push_pull(
                1, ctypes.addressof(a[0]), ctypes.addressof(a[1]), ctypes.sizeof(a[0]), owner=a
            )
            for w, a in zip(workers, arrays)
        ]
        for each in pending:
            each.wait()
        assert [list(a[1]) for a in arrays] == [[3.0] * 100] * 2

    values = [buffer([0.0] * 100), buffer([0.0] * 100)]
    assert not in_threads(
        [lambda w=w, v=v: w.broadcast([item(1, v)], owner=v) for w, v in zip(workers, values)]
    )
    total()
    assert value_bytes(server) == 800
    workers[0].give_back([1], for_good=False)
    total()  # worker 0 takes it again, and worker 1 has not given it back
    for worker in workers:
        worker.give_back([1], for_good=False)
    await_value_bytes(server, 0)
    total()
    total()
    assert value_bytes(server) == 800
    for worker in workers:
        worker.give_back([1], for_good=True)
    await_value_bytes(server, 0)
    with pytest.raises(UsageError, match="key=1: the key was never broadcast"):
        total()


def test_any_root_broadcasts_any_number_of_times_bit_for_bit(job: Job) -> None:
    _, _, workers = job
    odd = bytes.fromhex("00000080 0100807f 4523c1ff 010000")  # -0.0, NaNs; not whole floats

    def broadcast(root: int) -> None:
        texts = [odd + bytes([rank + 2 * root]) for rank in (0, 1)]
        values = [(ctypes.c_ubyte * len(text)).from_buffer_copy(text) for text in texts]
        rows = [[(7, ctypes.addressof(value), len(value)), (8, 0, 0)] for value in values]
        errors = in_threads(
            [
                lambda w=w, r=r: w.broadcast_from(root, r, owner=values)
                for w, r in zip(workers, rows)
            ]
        )
        assert not errors, errors
        assert [bytes(value) for value in values] == [texts[root]] * 2

    for root in (1, 0, 1):
        broadcast(root)
    with pytest.raises(ConfigError, match="broadcast key=7: root 2 of only 2 workers"):
        workers[0].broadcast_from(2, [(7, 0, 0)])


def test_workers_know_which_share_their_host(job: Job) -> None:
    _, _, workers = job
    views = [View(*each.view()) for each in workers]
    assert views[0].hosts == views[1].hosts
    assert [each.local_rank for each in views] == [0, 1]
    assert [each.local_size for each in views] == [2, 2]
    assert [each.epoch for each in views] == [0, 0]


def test_a_barrier_waits_for_all_workers(job: Job) -> None:
    _, _, workers = job
    passed = threading.Event()

    def first() -> None:
        workers[0].barrier()
        passed.set()

    thread = threading.Thread(target=first)
    thread.start()
    assert not passed.wait(0.1)
    workers[1].barrier()
    thread.join(60)
    assert passed.is_set()


def test_a_job_ends_in_good_order(job: Job) -> None:
    scheduler, server, workers = job
    assert not in_threads([w.close for w in workers])
    assert server.wait(60)
    server.close()
    assert scheduler.wait(60)
    for worker in workers:
        assert worker.closed
        worker.close()  # a second time does nothing
        with pytest.raises(Closed, match="the worker was closed"):
            worker.barrier()
        with pytest.raises(Closed):
            _ = worker.rank
    with pytest.raises(Closed, match="the node was closed"):
        server.wait(0)


def test_wrong_arguments_concern_only_that_call(job: Job) -> None:
    _, _, workers = job
    array = buffer([1])
    with pytest.raises(ConfigError, match="key 9: dtype code 99 cannot be summed"):
        workers[0].broadcast([(9, 99, ctypes.addressof(array), 4)])
    with pytest.raises(OverflowError):
        workers[0].broadcast([(-1, FLOAT32, ctypes.addressof(array), 4)])
    assert workers[0].status() is None


def test_giving_up_fails_the_job_for_all_workers(job: Job) -> None:
    scheduler, server, workers = job
    workers[1].fail("its script raised")
    for node in (scheduler, server):
        with pytest.raises(PeerLost, match="worker 1 gave up: its script raised"):
            node.wait(60)
    with pytest.raises(PeerLost, match="worker 1 gave up: its script raised"):
        workers[0].barrier()
    status = workers[1].status()
    assert isinstance(status, PeerLost)


def test_a_lost_server_is_named(job: Job) -> None:
    _, server, workers = job
    server.close("the test took it away")
    with pytest.raises(PeerLost, match="server 0"):
        workers[0].barrier()


def test_missing_workers_are_named(capfd: "pytest.CaptureFixture[str]") -> None:
    scheduler = Node.start(role("scheduler", 0, BYTESCHEDULER_TIMEOUT="2s"))
    try:
        with pytest.raises(Timeout, match="1 of 2 workers"):
            Worker.open(role("worker", scheduler.port, BYTESCHEDULER_TIMEOUT="60s"))
        with pytest.raises(Error):
            scheduler.wait(60)
    finally:
        scheduler.close()


def test_a_port_in_use_is_refused() -> None:
    scheduler = Node.start(role("scheduler", 0))
    try:
        with pytest.raises(UsageError, match=str(scheduler.port)):
            Node.start(role("scheduler", scheduler.port))
    finally:
        scheduler.close()


def test_waiting_for_a_node_has_an_end() -> None:
    scheduler = Node.start(role("scheduler", 0))
    assert scheduler.wait(0) is False
    assert scheduler.wait(0.01) is False
    scheduler.close()
    scheduler.close()


def test_a_node_or_worker_refuses_a_role_that_is_not_its_own() -> None:
    with pytest.raises(ConfigError, match="want scheduler or server"):
        Node.start(role("worker", 9))
    with pytest.raises(ConfigError, match="want worker here"):
        Worker.open(role("server", 9))
    with pytest.raises(ConfigError, match="DMLC_PS_ROOT_URI is not set"):
        Worker.open()


def test_handles_are_not_built_by_hand() -> None:
    for kind in (Worker, Node):
        with pytest.raises(TypeError):
            kind()


def test_a_coding_is_its_bytes_and_describes_itself() -> None:
    coding = Coding("2bit", {"threshold": "0.25"})
    assert (coding.codec, len(coding.parameters)) == (1, 4)
    assert str(coding) == snapshot("compressed to two bits with threshold 0.25")
    assert Coding.of(bytes(coding)) == coding
    assert len({coding, Coding.of(bytes(coding)), Coding("2bit", {})}) == 2
    assert coding != "2bit"
    assert Coding.of(b"\x02\x01\0\0" + bytes(25)).codec == 258
    assert coding.sizes(4 << 20) == (256 << 10, 4 << 20)
    assert Coding("2bit", {"pull": "same"}).sizes(4 << 20) == (256 << 10, 256 << 10)
    kept = Coding("onebit", {"ef": "corrected"})
    assert (coding.feedback, kept.feedback) == (0, 2)
    assert Coding.of(bytes(kept)) == kept
    assert Coding.of(bytes(kept)) != Coding("onebit", {"ef": "vanilla"})
    assert (coding.sizes(64)[0], kept.sizes(4 * 65536)) == (4, (8196, 8196))
    with pytest.raises(ConfigError, match="codec=258 is none"):
        Coding.of(b"\x02\x01\0\0\0").sizes(4)


def test_a_malformed_coding_is_refused() -> None:
    for type_, options, text in (
        (None, {}, "needs a type: {'type': '2bit'}"),
        ("3bit", {}, "Unknown type for gradient compression '3bit': want '2bit'"),
        ("2bit", {"threshold": "0"}, "threshold 0 of gradient compression"),
        ("2bit", {"k": "1"}, "no option 'k', only 'type', 'threshold' and 'pull'"),
    ):
        with pytest.raises(Error, match=re.escape(text)):
            Coding(type_, options)
    for form in (b"", bytes(4), bytes(30)):
        with pytest.raises(UsageError, match=f"{len(form)} bytes are no coding"):
            Coding.of(form)


def test_a_forked_child_is_refused(job: Job) -> None:
    _, _, workers = job
    child = os.fork()
    if child == 0:
        code = 1
        try:
            workers[0].barrier()
        except UsageError as error:
            code = 0 if "the store was created before fork" in str(error) else 2
        workers[0].close()
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert workers[0].status() is None


def test_the_plug_in_keeps_its_worker_open(job: Job) -> None:
    _, _, workers = job
    plugin = MXNetPlugin(workers[0], collections.defaultdict(lambda: 1))
    assert plugin.pending() == 0
    with pytest.raises(UsageError, match="close the plug-in before its worker"):
        workers[0].close()
    plugin.close()
    plugin.close()
    with pytest.raises(Closed, match="the plug-in was closed"):
        plugin.pending()


def test_a_name_that_has_no_address_yet_is_no_error_until_the_time_is_over() -> None:
    unknown = role("scheduler", 0, DMLC_PS_ROOT_URI="nosuch.invalid", BYTESCHEDULER_TIMEOUT="2s")
    assert not names_known(unknown)
    assert not names_known(unknown, waited_s=1.9)
    with pytest.raises(ConfigError, match=r"DMLC_PS_ROOT_URI=nosuch.invalid: the name cannot be "):
        names_known(unknown, waited_s=2)
    assert names_known({**unknown, "DMLC_USE_KUBERNETES": "1"})
    assert names_known(role("worker", 9))


def test_the_wait_for_names_ends_with_an_address_by_a_stop_or_with_an_error() -> None:
    unknown = role("scheduler", 0, DMLC_PS_ROOT_URI="nosuch.invalid", BYTESCHEDULER_TIMEOUT="1s")
    assert await_names(role("worker", 9))
    looks = iter((False, True))
    assert not await_names(unknown, is_stopped=lambda: next(looks))
    with pytest.raises(ConfigError, match=r"DMLC_PS_ROOT_URI=nosuch.invalid: the name cannot be "):
        await_names(unknown)


# Runs a blocking call of which nothing ever comes, and lets SIGINT end it.
BLOCKED = """
import sys, bytescheduler
from bytescheduler._core import Node, Worker
settings = dict(pair.split("=") for pair in sys.argv[2:])
try:
    print("ready", flush=True)
    if sys.argv[1] == "open":
        Worker.open(settings)
    else:
        Node.start(settings).wait()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(("call", "name"), [("open", "worker"), ("wait", "server")])
def test_ctrl_c_ends_a_blocking_call(call: str, name: str) -> None:
    scheduler = Node.start(role("scheduler", 0))
    settings = [f"{k}={v}" for k, v in role(name, scheduler.port).items()]
    process = subprocess.Popen(
        [sys.executable, "-c", BLOCKED, call, *settings], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert time.monotonic() - begin < 10
    scheduler.close()
    assert "interrupted" in out


def test_ctrl_c_in_a_broadcast_keeps_the_memory_until_the_worker_is_closed(job: Job) -> None:
    _, _, workers = job
    array = buffer([0.0] * 8)
    holder = [array]
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    references = sys.getrefcount(holder)
    with pytest.raises(KeyboardInterrupt):
        workers[1].broadcast([item(5, array)], owner=holder)  # rank 0 never declares it
    timer.join()
    assert sys.getrefcount(holder) == references + 1
    workers[1].close(drain_ms=0)
    assert sys.getrefcount(holder) == references


def test_the_server_command_ends_with_the_job() -> None:
    scheduler = Node.start(role("scheduler", 0, workers=1))
    env = {**os.environ, **role("server", scheduler.port, workers=1), **TALKATIVE}
    process = subprocess.Popen(
        [sys.executable, "-m", "bytescheduler.server"], env=env, stderr=subprocess.PIPE, text=True
    )
    with process:
        worker = Worker.open(role("worker", scheduler.port, workers=1))
        worker.close()
        _, err = process.communicate(timeout=60)
    assert scheduler.wait(60)
    scheduler.close()
    assert process.returncode == 0
    assert err.endswith("bytescheduler: the job ended in good order\n")


class ServerInAJob:
    """The command of a server in a job with a worker of this process."""

    def __init__(self, grace: str) -> None:
        self.scheduler = Node.start(role("scheduler", 0, workers=1))
        settings = role("server", self.scheduler.port, workers=1, BYTESCHEDULER_GRACE=grace)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bytescheduler.server"],
            env={**os.environ, **settings, **TALKATIVE},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.worker = Worker.open(role("worker", self.scheduler.port, workers=1))

    def read_until(self, text: str) -> None:
        """Read lines that it writes until one has `text`."""
        assert self.process.stderr is not None
        assert any(text in line for line in self.process.stderr)

    def close(self) -> str:
        """Let all end; return what else the server wrote."""
        self.worker.close()
        _, err = self.process.communicate(timeout=60)
        self.scheduler.wait(60)
        self.scheduler.close()
        return err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM])
def test_after_a_signal_a_server_stays_until_the_workers_have_left(number: signal.Signals) -> None:
    server = ServerInAJob("60s")
    server.process.send_signal(signal.SIGUSR1)  # which is none of its business
    server.process.send_signal(number)
    server.process.send_signal(number)  # as timeout(1) does, to the process and to its group
    server.read_until(f"it got {number.name}: it stays until the workers have left, for 60 s")
    server.worker.barrier()
    assert server.close().endswith("bytescheduler: the job ended in good order\n")
    assert server.process.returncode == 0


@pytest.mark.parametrize(
    ("grace", "numbers", "ends_by"),
    [
        ("0", [signal.SIGTERM], signal.SIGTERM),
        ("300ms", [signal.SIGTERM], signal.SIGTERM),
        ("60s", [signal.SIGTERM, signal.SIGQUIT], signal.SIGQUIT),
    ],
)
def test_without_time_left_a_signal_ends_a_server_for_all_nodes(
    grace: str, numbers: List[signal.Signals], ends_by: signal.Signals
) -> None:
    server = ServerInAJob(grace)
    for number in numbers:
        server.process.send_signal(number)
        if number != numbers[-1]:
            server.read_until("it stays until")
    server.process.wait(60)
    with pytest.raises(PeerLost, match=f"server 0 was ended: it got {ends_by.name}"):
        server.worker.barrier()
    with pytest.raises(PeerLost):
        server.close()
    assert server.process.returncode == 128 + numbers[0]


def test_a_signal_ends_a_node_at_once_before_the_job_has_begun(
    free_port: Callable[[], int],
) -> None:
    env = {**os.environ, **role("scheduler", free_port(), workers=1), **TALKATIVE}
    process = subprocess.Popen(
        [sys.executable, "-m", "bytescheduler.server"], env=env, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr is not None
        assert any("listening on" in line for line in process.stderr)
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "it stays" not in err


def test_the_server_command_names_missing_settings() -> None:
    env = {**os.environ, "DMLC_ROLE": "server"}
    done = subprocess.run(
        [sys.executable, "-m", "bytescheduler.server"],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert line_with("DMLC_NUM_WORKER", done.stderr) == snapshot(
        "bytescheduler: DMLC_NUM_WORKER is not set (how many workers the job has); "
        "DMLC_NUM_SERVER is not set (how many servers the job has; 0: each worker hosts one "
        "(docs/user/direct.md)); DMLC_PS_ROOT_URI is not set (address or host name of the "
        "scheduler node); DMLC_PS_ROOT_PORT is not set (port of the scheduler node; on the "
        "scheduler node itself, 0 means any free port)"
    )


def test_partitions_change_while_a_job_runs(capfd: "pytest.CaptureFixture[str]") -> None:
    exact = {"BYTESCHEDULER_DETERMINISTIC": "1"}
    scheduler = Node.start(role("scheduler", 0, 3, 2, **exact))
    port = scheduler.port
    servers = [Node.start(role("server", port, 3, 2, **exact)) for _ in range(2)]
    workers: List[Worker] = []
    wanted = role("worker", port, 3, 2, **exact, BYTESCHEDULER_LOG_LEVEL="debug")
    assert not in_threads([lambda: workers.append(Worker.open(wanted))] * 3)
    workers.sort(key=lambda worker: worker.rank)
    count = 40_000
    numbers = random.Random(1)
    sent = [buffer([numbers.uniform(-1, 1) for _ in range(count)]) for _ in workers]
    assert not in_threads(
        [lambda w=w: w.broadcast([item(7, sent[0])], owner=sent) for w in workers]
    )
    # What every round gives is what three numbers give that are added in the order of the ranks.
    sums: Set[bytes] = set()
    for step in range(9):
        if step in (2, 5):
            workers[0].retune(*((4096, 10_000) if step == 2 else (2**20, 2**20)))
        received = [buffer([0] * count) for _ in workers]
        rounds = [
            worker.start_push_pull(
                7, ctypes.addressof(a), ctypes.addressof(b), 4 * count, owner=(sent, received)
            )
            for worker, a, b in zip(workers, sent, received)
        ]
        for pending in rounds:
            pending.wait()
        sums.update(bytes(array) for array in received)
    assert len(sums) == 1
    with pytest.raises(UsageError, match="worker 0 decides about partitions and credit"):
        workers[1].retune(4096, 10_000)
    for partition_bytes, credit_bytes in [(4095, 1), (2**30 + 1, 1), (4096, 0), (4096, 2**36 + 1)]:
        with pytest.raises(ConfigError, match="want 4 KiB to 1 GiB, and 1 byte to 64 GiB"):
            workers[0].retune(partition_bytes, credit_bytes)
    assert not in_threads([worker.close for worker in workers])
    for server in servers:
        server.close()
    scheduler.close()
    said = capfd.readouterr().err
    for partitions in (2, 40, 1):
        noun = "partition" if partitions == 1 else "partitions"
        assert said.count(f"in {partitions} {noun};") == len(workers), said


class Updater:
    """Refuses one optimizer, and notes what it is asked for and where."""

    def __init__(self) -> None:
        self.pickles: List[bytes] = []
        self.threads: Set[str] = set()

    def set_optimizer(self, pickled: bytes) -> Optional[str]:
        self.pickles.append(pickled)
        task = pathlib.Path(f"/proc/self/task/{threading.get_native_id()}/comm")
        self.threads.add(task.read_text().strip())
        if pickled == b"worse":
            raise ValueError("it is worse")
        return "no snowmen \N{SNOWMAN}" if pickled == b"bad" else None


def test_an_updater_is_called_on_a_thread_of_the_server() -> None:
    updater = Updater()
    references = sys.getrefcount(updater)
    scheduler = Node.start(role("scheduler", 0, workers=1))
    server = Node.start(role("server", scheduler.port, workers=1), updater=updater)
    worker = Worker.open(role("worker", scheduler.port, workers=1))
    with pytest.raises(Error, match="optimizer 1 from worker 0: no snowmen \N{SNOWMAN}"):
        worker.set_optimizer("hosted snowman", b"bad")
    with pytest.raises(Error, match="ValueError.*it is worse"):
        worker.set_optimizer("hosted snowman", b"worse")
    worker.set_optimizer("hosted adder", b"good\0pickle")
    array = buffer([1.0] * 5000)
    worker.broadcast_whole([(*item(7, array), "caf\N{LATIN SMALL LETTER E WITH ACUTE}", True)])
    worker.close()
    server.close()
    scheduler.close()
    assert updater.pickles == [b"bad", b"worse", b"good\0pickle"]
    assert updater.threads == {"bs-updater"}
    assert sys.getrefcount(updater) == references


def test_all_lines_of_the_log_go_to_a_file_if_asked_for(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: "pytest.CaptureFixture[str]",
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        Node.start(role("scheduler", 0, BYTESCHEDULER_DEBUG="1")).close()
    lines = (tmp_path / "bytescheduler.log").read_text().splitlines()
    assert sum("listening on 127.0.0.1:" in line for line in lines) == 2
    assert capfd.readouterr().err == ""  # level off
