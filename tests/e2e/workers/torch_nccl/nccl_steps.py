"""Steps on the double of a device, whose sums go by BYTESCHEDULER_COMM; NCCL is a double too.

The first argument is a mistake to make, or "none".  Each worker prints a hash of its weights.
"""

import ctypes
import hashlib
import os
import pathlib
import signal
import sys
import threading
import time
from typing import Dict

import torch

STEPS = 20
HANGS = 3  # FakeFault
TESTS = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(TESTS / "python" / "torch"), str(TESTS / "e2e" / "workers" / "torch")]

from fake_device import FakeDevices  # noqa: E402
from models import OPTIMIZERS, loss_of, new_model  # noqa: E402

import bytescheduler.torch as bps  # noqa: E402
from bytescheduler.torch._job.job import current  # noqa: E402


def hang_and_die(operation: int) -> None:
    """Let this rank's NCCL keep an operation; once all before have ended, the process is lost."""
    double().fake_gpu_fault(1, HANGS, operation)
    while operations() < operation:
        time.sleep(0.01)  # nothing tells of it
    time.sleep(0.2)  # until the other rank is in the operation too
    os.kill(os.getpid(), signal.SIGKILL)


def double() -> ctypes.CDLL:
    """Return the library that plays NCCL and the driver."""
    return ctypes.CDLL("libnccl.so.2")


def operations() -> int:
    """Return how many operations NCCL has ended."""
    return metrics().get("library_operations_total", 0)


def metrics() -> "Dict[str, int]":
    session = current().get().carrier
    assert session is not None
    return {row.name: int(row.value) for row in session._worker.measure()}


def err(mistake: str) -> None:
    """Make this mistake on rank 1."""
    if mistake == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    elif mistake == "moves":
        os.environ["BS_FAKE_GPU"] = "7"
    elif mistake == "order":
        bps.push_pull(torch.ones(3), name="second")
    elif mistake == "inside":
        threading.Thread(target=hang_and_die, args=(operations() + 5,), daemon=True).start()


def train(devices: FakeDevices, mistake: str) -> torch.nn.Module:
    model = new_model()
    devices.make_late(model.named_parameters())
    optimizer = bps.DistributedOptimizer(OPTIMIZERS["adam"](model), model=model)
    for step in range(STEPS):
        if step == 5 and bps.rank() == 1:
            err(mistake)
        optimizer.zero_grad()
        loss_of(model, step, bps.rank()).backward()
        optimizer.step()
    optimizer.synchronize()
    return model


def main() -> None:
    mistake = sys.argv[1]
    torch.set_num_threads(1)
    os.environ["BS_FAKE_GPU"] = "0" if mistake == "gpu" else os.environ["RANK"]
    devices = FakeDevices(1, lambda name: mistake != "cpu")
    stop = devices.runtime.on_a_thread()
    current().devices = devices
    bps.init()
    if mistake == "sizes":
        bps.push_pull(torch.ones(3 + bps.rank()), name="one name")
    if mistake == "order":
        bps.push_pull(torch.ones(3), name="second")
    copies_before = devices.copies
    model = train(devices, mistake)
    digest = hashlib.sha256()
    states = model.state_dict()  # makes the updates that wait
    for name, _ in model.named_parameters():
        digest.update(states[name].numpy().tobytes())
    half = bps.push_pull(torch.ones(5, dtype=torch.float16), average=False, name="half")
    assert half.tolist() == [bps.size()] * 5, half
    # Several partitions, and whole numbers: their sum is exact in any order.
    numbers = torch.arange(5000.0)
    many = bps.push_pull(numbers + bps.rank(), average=False, name="many")
    assert many.equal(numbers * bps.size() + sum(range(bps.size()))), many
    print(f"weights of rank {bps.rank()} of {bps.size()}: {digest.hexdigest()}")
    print(f"copies: {devices.copies - copies_before}")
    rows = metrics()
    print(f"sums by the library: {rows.get('library_operations_total', 0)}")
    print(f"bytes summed: {rows.get('library_bytes_total', 0)}")
    print(f"bytes copied: {rows.get('library_copied_bytes_total', 0)}")
    locked = double().fake_gpu_locked
    locked.restype = ctypes.c_size_t
    print(f"bytes page-locked: {locked()}", flush=True)
    bps.shutdown()
    stop()


main()
