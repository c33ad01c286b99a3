"""Stock MXNet workers on our scheduler node and servers get what they get in a stock cluster."""

import json
import pathlib
import signal
import time
from typing import Callable, List

import numpy as np
import pytest
import stock_model
import two_bit_model
from job import Job, Process
from pulled import CASES, CUT, P3, Results, assert_same, results_of, run_two_stores
from trained import Weights, assert_equal, train
from trained import sums as two_bit_sums

MakeJob = Callable[..., Job]
StockResults = Callable[[str], List[Results]]
StockWeights = Callable[[str, str], Weights]
SOON_S = 60.0
# Half of the heartbeat time-out, the least that would do it without a broken connection.
LOST_S = 15.0


@pytest.mark.parametrize("store", ["dist_sync", "dist_device_sync"])
def test_two_workers_get_the_sums_and_updates_of_a_stock_cluster_bit_for_bit(
    make_job: MakeJob, stock_results: StockResults, store: str
) -> None:
    ours = results_of(make_job(servers=2, env=CUT), *CASES, store=store)
    for rank in range(2):
        assert_same(ours[rank], stock_results(store)[rank])


def test_requests_that_fail_on_stock_servers_succeed_on_ours(make_job: MakeJob) -> None:
    job = make_job(servers=2, env=CUT)
    wanted = {**stock_model.sums(stock_model.INTEGERS), **stock_model.sums_of_rows()}
    wanted["unawaited"] = sum(stock_model.numbers(rank, 29, (3, 5)) for rank in range(2))
    for got in results_of(job, "commands", "integers", "rows", "unawaited"):
        assert_same(got, wanted)


@pytest.mark.serial  # what is late by 0.1 s is sent again, also when its sender ends
def test_workers_that_resend_unacknowledged_messages_get_the_right_sums(make_job: MakeJob) -> None:
    # What is not acknowledged ends its sender at the tenth time, after 5.5 s; "late" takes longer,
    # and its pushes wait for so long that they are sent again.
    resend = {"PS_RESEND": "1", "PS_RESEND_TIMEOUT": "100"}
    job = make_job(servers=2, env={**CUT, **resend})
    wanted = stock_model.sums(stock_model.FLOATS)
    for step in range(stock_model.STEPS):
        wanted[f"late {step}"] = sum(stock_model.numbers(r, step, (3, 5)) for r in range(2))
    for got in results_of(job, "dense", "late"):
        assert_same(got, wanted)


def test_multi_precision_and_the_names_of_the_store(make_job: MakeJob) -> None:
    wanted = stock_model.sums(["float16"], workers=3)
    job = make_job(workers=3, servers=2, env=CUT)
    for got in results_of(job, "wide", store="dist_device_sync", workers=3):
        assert_same(got, wanted)


def test_two_bits_an_element(make_job: MakeJob, tmp_path: pathlib.Path) -> None:
    env = {"MXNET_KVSTORE_BIGARRAY_BOUND": "50"}
    for got in two_bit_sums(make_job(servers=2, env=env), tmp_path, "stock"):
        for step, of_step in enumerate(two_bit_model.expected(2)):
            for key, values in of_step.items():
                np.testing.assert_array_equal(got[f"{step}/{key}"], values, err_msg=f"{step} {key}")


@pytest.mark.parametrize("transport", ["tcp", "zmq"])
def test_a_dist_async_store(make_job: MakeJob, transport: str) -> None:
    """Pushes at any time, and in turns of all kinds: cut, row_sparse, float16 and two-bit."""
    job = make_job(servers=2, env={**CUT, "BYTESCHEDULER_TRANSPORT": transport})
    wanted = stock_model.after_turns()
    wanted["each alone"] = np.full((2, 4), 150, np.float32)
    for got in results_of(job, "each_alone", "in_turns", store="dist_async"):
        assert_same(got, wanted)


def test_p3_workers(make_job: MakeJob) -> None:
    wanted = {**stock_model.sums_of_pushpull(), **stock_model.sums(stock_model.FLOATS)}
    for got in results_of(make_job(servers=2, env=P3), "dense", "pushpull"):
        assert_same(got, wanted)


def test_the_profiler_of_servers_writes_the_requests_while_it_runs(make_job: MakeJob) -> None:
    job = make_job(servers=2)
    wanted = stock_model.sums_of_pushpull()
    for step in range(4):
        wanted[f"profiled {step}"] = sum(stock_model.numbers(r, step, (37,)) for r in range(2))
    for got in results_of(job, "profiled", "pushpull"):
        assert_same(got, wanted)
    seen = []
    for rank in range(2):
        trace = json.loads((job.folder / f"rank{rank}_servers.json").read_text())
        assert trace["otherData"] == {"lost": "0"}
        seen += [(e["name"], e["tid"]) for e in trace["traceEvents"] if e["ph"] == "i"]
    assert sorted(seen) == sorted([("pull", 0), ("pull", 1), ("push", 0), ("push", 1)] * 3)


@pytest.mark.filterwarnings("default:a store hung")
def test_two_stores_of_one_process_are_two_workers(make_job: MakeJob) -> None:
    run_two_stores(make_job)


@pytest.mark.parametrize(
    ("api", "optimizer"),
    [
        *(("gluon", "sgd"), ("gluon-local-update", "adam"), ("module", "adam")),
        *(("gluon-half", "sgd"), ("gluon-local-update-half", "adam")),
        *(("gluon-compressed", "sgd"), ("gluon-local-update-compressed", "adam")),
    ],
)
def test_training_gives_the_weights_of_a_stock_cluster_bit_for_bit(
    make_job: MakeJob,
    tmp_path: pathlib.Path,
    stock_weights: StockWeights,
    api: str,
    optimizer: str,
) -> None:
    # What the workers update needs no optimizer on the servers.
    pickles = "refuse" if api.startswith("gluon-local-update") else "allow-list"
    job = make_job(env={"BYTESCHEDULER_PICKLES": pickles})
    for weights in train(job, tmp_path, "stock", api, optimizer, workers=2):
        assert_equal(stock_weights(api, optimizer), weights)


# -- no answer says that something failed: a stock worker gets a warning to print, and is ended ---


@pytest.mark.parametrize(
    ("store", "case", "why"),
    [
        (
            *("dist_sync", "another_size"),
            "worker 1: it brings float32 of 20 bytes, but the key was initialised as "
            "float32 of 16 bytes",
        ),
        (
            *("dist_sync", "another_optimizer"),
            "the pickled optimizer names __main__.Halfway, which servers do not load",
        ),
        ("dist_async", "without_an_optimizer", "call set_optimizer before the first push"),
    ],
)
def test_a_failure_is_told_by_the_servers_and_ends_the_workers(
    make_job: MakeJob, store: str, case: str, why: str
) -> None:
    assert_ends_and_says(make_job(servers=2), store, case, why)


def assert_ends_and_says(job: Job, store: str, case: str, why: str) -> None:
    workers = [job.start_worker("stock/stock_worker.py", store, "", case) for _ in range(2)]
    for worker in workers:
        assert worker.wait(SOON_S) != 0, job.all_output()
        output = worker.output()
        assert "Check failed: msg.data.size() >= (size_t)2" in output
        assert why in output.split("body=bytescheduler: ")[1].split("\n")[0]
    for process in job.processes[:3]:
        assert process.wait(SOON_S) == 1
        assert why in process.output()


def test_servers_told_to_load_no_pickles_refuse_the_optimizers_of_mxnet_too(
    make_job: MakeJob,
) -> None:
    job = make_job(servers=2, env={"BYTESCHEDULER_PICKLES": "refuse"})
    why = "this server loads no pickled optimizers (BYTESCHEDULER_PICKLES=refuse)"
    assert_ends_and_says(job, "dist_sync", "updates", why)


def test_a_worker_that_lives_and_never_pushes_is_named_and_ends_the_job(make_job: MakeJob) -> None:
    job = make_job(servers=2, env={"BYTESCHEDULER_STRAGGLER_TIMEOUT": "6s"})
    why = "key 1: after 6 s still waiting for worker 1 to push it (BYTESCHEDULER_STRAGGLER_TIMEOUT)"
    assert_ends_and_says(job, "dist_sync", "never_pushed_by_rank_1", why)


def test_a_worker_that_sends_heartbeats_and_is_stopped_is_named_and_ends_the_job(
    make_job: MakeJob,
) -> None:
    heartbeats = {"PS_HEARTBEAT_INTERVAL": "1", "PS_HEARTBEAT_TIMEOUT": "3"}
    job = make_job(servers=2, env={**heartbeats, "BYTESCHEDULER_STRAGGLER_TIMEOUT": "4s"})
    case = ("stock/stock_worker.py", "dist_sync", "", "train_for_long")
    first = job.start_worker(*case, env={"PS_VERBOSE": "2"})
    job.processes[0].wait_for_line("scheduler: worker ")
    victim = job.start_worker(*case)  # is there after more than an interval
    first.wait_for_line("cmd=HEARTBEAT, node={ role=scheduler, id=1,")
    victim.wait_for_line("training as ")
    name = victim.output().split("training as ")[1].strip()
    victim.signal(signal.SIGSTOP)
    why = f"after 4 s still waiting for {name} to push it (BYTESCHEDULER_STRAGGLER_TIMEOUT)"
    job.wait_for_text(job.servers, why)
    victim.signal(signal.SIGCONT)
    for process in job.processes:
        assert process.wait(SOON_S) != 0, job.all_output()
    assert why in job.processes[0].output()
    assert "dropped a message" not in job.processes[0].output()


@pytest.mark.parametrize(
    ("victim", "servers"), [("worker", 2), ("server", 2), ("server", 1), ("scheduler", 1)]
)
def test_a_loss_ends_all_nodes(make_job: MakeJob, victim: str, servers: int) -> None:
    job = make_job(servers=servers)
    lose_one(job, victim, [job.processes[0], *job.servers])
    for process in job.processes:
        assert process.wait(LOST_S) != 0, job.all_output()


# With MXNet's own scheduler node or servers, of which the last named wait for ever: nobody of ours
# is left that could tell them.
@pytest.mark.parametrize(
    ("stock_scheduler", "stock_servers", "victim", "stay"),
    [
        (True, 0, "worker", 1),
        (True, 1, "worker", 2),
        (False, 1, "worker", 0),
        (False, 1, "server", 0),
        (False, 1, "scheduler", 2),
        (False, 2, "worker", 0),
        (False, 2, "server", 0),
        (False, 2, "scheduler", 5),
        (True, 0, "scheduler", 0),
    ],
)
def test_a_loss_ends_every_node_that_our_nodes_can_tell(
    make_job: MakeJob, stock_scheduler: bool, stock_servers: int, victim: str, stay: int
) -> None:
    job = make_job(servers=2, stock_scheduler=stock_scheduler, stock_servers=stock_servers)
    ours = job.servers[stock_servers:]
    lost = lose_one(job, victim, ours if stock_scheduler else [job.processes[0], *ours])
    for process in job.processes[stay:]:
        assert process.wait(LOST_S) != 0, job.all_output()
    assert all(process.running() for process in job.processes[:stay] if process is not lost)


def lose_one(job: Job, victim: str, ours: List[Process]) -> Process:
    """Kill the last of this role while two stock workers train; all of ours must name it."""
    for _ in range(2):
        job.start_worker("stock/stock_worker.py", "dist_sync", "", "train_for_long")
    for worker in job.workers:
        worker.wait_for_line("training as worker ")
    lost = {"worker": job.workers[1], "server": job.servers[-1], "scheduler": job.processes[0]}
    names = {
        "worker": lost["worker"].output().split("training as ")[1].strip(),
        "server": "server",
        "scheduler": "the scheduler node",
    }
    began = time.monotonic()
    lost[victim].kill()
    for process in ours:
        assert process.wait(LOST_S) != 0, job.all_output()
        print(f"{process.name} after {time.monotonic() - began:.1f} s")
        assert process is lost[victim] or f"lost {names[victim]} " in process.output()
    return lost[victim]
