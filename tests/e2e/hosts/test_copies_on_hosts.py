"""What crosses the links of two hosts whose workers add up first, coded or as it is."""

import functools
import hashlib
import pathlib
import re
import runpy
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest
from direct_job import start_direct
from job import WORKERS, Job
from lab import Lab, hosts_or_skip

MakeJob = Callable[..., Job]
MODEL = 2 * 4_000_000  # bytes, of workers/hosts/copies.py
FEW, MANY = 1, 6
DEADLINE_S = 20.0  # a second to notice a closed connection, and some to end a process
# The hosts of the workers.
TWO_EACH = [0, 0, 1, 1]
THREE_AND_ONE = [0, 0, 0, 1]
FOUR_EACH = pytest.param([0, 0, 0, 0, 1, 1, 1, 1], marks=pytest.mark.nightly, id="four-each")
# Those of the scheduler node and two servers.
SERVERS_APART = [2, 2, 3]
SERVERS_BESIDE = [0, 0, 1]
APART = [*SERVERS_APART, *TWO_EACH]
WORKERS_OF_HOSTS = (0, 1)
CROSSES = "workers of a host add up first: {} workers send 2 copies of each large tensor"


def digests(outputs: List[str]) -> List[str]:
    # A line of the log may come between a digest and its end of line.
    return [digest for text in outputs for digest in re.findall(r"summed ([0-9a-f]{64})", text)]


def carried(lab: Lab, job: "Callable[[int], None]") -> "List[Tuple[int, int]]":
    """Return what each host of workers sent and got in a round, in models, headers included."""
    ends = []
    for rounds in (FEW, MANY):
        before = [lab.carried(host) for host in WORKERS_OF_HOSTS]
        job(rounds)
        ends.append([lab.carried(host) for host in WORKERS_OF_HOSTS])
        ends[-1] = [
            (sent - sent_before, got - got_before)
            for (sent, got), (sent_before, got_before) in zip(ends[-1], before)
        ]
    models = (MANY - FEW) * MODEL
    return [
        ((sent - few_sent) / models, (got - few_got) / models)
        for (few_sent, few_got), (sent, got) in zip(*ends)
    ]


def in_bf16(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def sums_of_hosts(hosts: List[int], outputs: List[str]) -> "List[np.ndarray[Any, Any]]":
    """Return the sums of the workers of each host, in the order of ranks."""
    numbers = np.arange(MODEL // 8) % 1009 + 1
    ranks = [int(re.findall(r"rank (\d) is here", text)[0]) for text in outputs]
    return [
        functools.reduce(
            np.add,
            [
                (numbers / (rank + 3)).astype(np.float32)
                for rank, at in sorted(zip(ranks, hosts))
                if at == host
            ],
        )
        for host in WORKERS_OF_HOSTS
    ]


def digest_in_order(hosts: List[int], outputs: List[str], rounds: int) -> str:
    """Return the digest of sums that add ranks within a host, then the two hosts."""
    total: np.ndarray[Any, Any] = np.add(*sums_of_hosts(hosts, outputs))
    return hashlib.sha256(total.tobytes() * rounds).hexdigest()


def digest_of_codes(outputs: List[str]) -> str:
    """Return the digest of a key that travels plain in its first round, and in bf16 then."""
    of_hosts = sums_of_hosts(TWO_EACH, outputs)
    plain = np.add(*of_hosts)
    coded = in_bf16(np.add(*map(in_bf16, of_hosts)))
    return hashlib.sha256(plain.tobytes() + coded.tobytes() * (MANY - 1)).hexdigest()


def coders_of(name: str, count: int, number: int) -> "List[Any]":
    """Return functions that code a tensor with a residual each, and return its codes' values."""
    if name == "onebit":
        model = runpy.run_path(str(WORKERS / "direct" / "onebit_model.py"))
        return [model["Coder"](count, keeps=True).code for _ in range(number)]
    model = runpy.run_path(str(WORKERS / "direct" / "pick_model.py"))
    method, place = model["Method"]("topk", 0.25), model["Place"](key=0, round=0)
    coders = [model["Coder"](method, count, keeps=True) for _ in range(number)]
    return [lambda values, coder=coder: coder.code(values, place)[1] for coder in coders]


def digest_of_coded_means(hosts: List[int], name: str) -> str:
    """Return the digest that copies_torch.py prints where each host codes its sum."""
    count, steps = 131_100, 4
    *coders, server = coders_of(name, count, 1 + len(WORKERS_OF_HOSTS))
    digest = hashlib.sha256()
    for step in range(steps):
        gradients = [
            np.random.RandomState(1000 * step + rank).normal(0, 1, count).astype(np.float32)
            for rank in range(len(hosts))
        ]
        total = np.zeros(count, np.float32)
        for host, code in zip(WORKERS_OF_HOSTS, coders):
            of_host = [gradient for rank, gradient in enumerate(gradients) if hosts[rank] == host]
            total = total + code(functools.reduce(np.add, of_host))
        # The number of workers is a power of two.
        digest.update((server(total) / np.float32(len(hosts))).tobytes())
    return digest.hexdigest()


def assert_one_copy(models: "List[Tuple[int, int]]", outputs: List[str], workers: int) -> None:
    """Check what the links carried, and that all workers have equal sums."""
    said = digests(outputs)
    assert len(said) == workers, outputs
    assert len(set(said)) == 1, outputs
    for sent, got in models:
        assert 0.9 <= sent <= 1.08, models
        assert 0.9 <= got <= 1.08, models


@pytest.mark.parametrize(
    ("servers", "workers"),
    [
        pytest.param(SERVERS_APART, TWO_EACH, id="servers-apart"),
        pytest.param(SERVERS_BESIDE, TWO_EACH, id="servers-beside"),
        pytest.param(SERVERS_APART, THREE_AND_ONE, id="three-and-one"),
        pytest.param(SERVERS_APART, FOUR_EACH.values[0], marks=pytest.mark.nightly, id="four-each"),
    ],
)
def test_one_copy_crosses_each_link(
    make_job: MakeJob, servers: List[int], workers: List[int]
) -> None:
    with hosts_or_skip(lambda: Lab(4)) as lab:
        outputs: List[str] = []

        def run(rounds: int) -> None:
            job = make_job(
                workers=len(workers),
                servers=2,
                lab=lab,
                hosts=[*servers, *workers],
                env={
                    "BYTESCHEDULER_LOG_LEVEL": "info",
                    "BYTESCHEDULER_DETERMINISTIC": "1",
                    "BYTESCHEDULER_HOLD": "0",  # so that sums are in order by DETERMINISTIC alone
                },
            )
            outputs[:] = job.run("hosts/copies.py", str(rounds))

        models = carried(lab, run)
    assert digests(outputs)[0] == digest_in_order(workers, outputs, MANY)
    crosses = CROSSES.format(len(workers))
    assert sum(crosses in text for text in outputs) == 1, outputs
    assert_one_copy(models, outputs, len(workers))


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({"BYTESCHEDULER_LOCAL_SUMS": "0"}, id="off"),
        pytest.param(
            {"BYTESCHEDULER_REJOIN_TIMEOUT": "30s"}, marks=pytest.mark.nightly, id="rejoin"
        ),
    ],
)
def test_each_worker_sends_a_copy(make_job: MakeJob, env: Dict[str, str]) -> None:
    with hosts_or_skip(lambda: Lab(4)) as lab:

        def run(rounds: int) -> None:
            job = make_job(workers=4, servers=2, lab=lab, hosts=APART, env=env)
            job.run("hosts/copies.py", str(rounds))

        models = carried(lab, run)
    assert min(min(both) for both in models) >= 1.9, models


@pytest.mark.parametrize(
    ("compressor", "pull", "sent_share", "got_share"),
    [
        ("bf16", "same", 0.5, 0.5),
        pytest.param("fp16", "same", 0.5, 0.5, marks=pytest.mark.nightly),
        pytest.param("bf16", "plain", 0.5, 1, marks=pytest.mark.nightly),
    ],
)
def test_codes_cross_each_link_in_their_own_size(
    make_job: MakeJob, compressor: str, pull: str, sent_share: float, got_share: float
) -> None:
    with hosts_or_skip(lambda: Lab(4)) as lab:
        outputs: List[str] = []

        def run(rounds: int) -> None:
            job = make_job(workers=4, servers=2, lab=lab, hosts=APART)
            outputs[:] = job.run("hosts/copies.py", str(rounds), compressor, pull)

        models = carried(lab, run)
    assert len(set(digests(outputs))) == 1, outputs
    if (compressor, pull) == ("bf16", "same"):
        assert digests(outputs)[0] == digest_of_codes(outputs)
    for sent, got in models:
        assert 0.9 * sent_share <= sent <= 1.1 * sent_share, models
        assert 0.9 * got_share <= got <= 1.1 * got_share, models


def test_lost_worker_is_named_by_all(make_job: MakeJob) -> None:
    with hosts_or_skip(lambda: Lab(4)) as lab:
        env = {"BYTESCHEDULER_LOG_LEVEL": "info"}
        job = make_job(workers=4, servers=2, lab=lab, hosts=APART, env=env)
        for _ in range(4):
            job.start_worker("hosts/copies.py", "10000")
        job.wait_for_text(job.workers, CROSSES.format(4))
        time.sleep(1)  # until rounds are under way
        *left, lost = job.workers
        lost.kill()
        began = time.monotonic()
        assert all(worker.wait() != 0 for worker in left), job.all_output()
        took = time.monotonic() - began
        outputs = [worker.output() for worker in left]
    named = [set(re.findall(r"lost worker (\d)", text)) for text in outputs]
    assert named[0] == named[1] == named[2], outputs
    assert len(named[0]) == 1, outputs
    assert took < DEADLINE_S, outputs


@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param(TWO_EACH, id="two-each"),
        pytest.param(THREE_AND_ONE, marks=pytest.mark.nightly, id="three-and-one"),
        FOUR_EACH,
    ],
)
def test_direct_job_of_pytorch_sends_one_copy(tmp_path: pathlib.Path, hosts: List[int]) -> None:
    pytest.importorskip("torch")
    with hosts_or_skip(lambda: Lab(2)) as lab:
        outputs: List[str] = []

        def run(rounds: int) -> None:
            command = [sys.executable, str(WORKERS / "hosts" / "copies_torch.py"), str(rounds)]
            job = [
                start_direct(lab, tmp_path, hosts, rank, command, 29600 + rounds)
                for rank in range(len(hosts))
            ]
            codes = [process.wait(240) for process in job]
            outputs[:] = [process.output() for process in job]
            assert not any(codes), outputs

        models = carried(lab, run)
    assert_one_copy(models, outputs, len(hosts))
    for name in ("onebit", "topk"):
        made = [re.findall(rf"{name} made ([0-9a-f]{{64}})", text) for text in outputs]
        assert made == [[digest_of_coded_means(hosts, name)]] * len(hosts), outputs
