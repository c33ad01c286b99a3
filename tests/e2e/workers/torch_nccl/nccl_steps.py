"""Steps on the double of a device, whose sums go by BYTESCHEDULER_COMM; NCCL is a double too.

The first argument is a mistake to make, or "none".  Each worker prints a hash of its weights.
"""

import hashlib
import os
import pathlib
import signal
import sys

import torch

STEPS = 20
TESTS = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(TESTS / "python" / "torch"), str(TESTS / "e2e" / "workers" / "torch")]

from fake_device import FakeDevices  # noqa: E402
from models import OPTIMIZERS, loss_of, new_model  # noqa: E402

import bytescheduler.torch as bps  # noqa: E402
from bytescheduler.torch._job.job import current  # noqa: E402


def train(devices: FakeDevices, mistake: str) -> torch.nn.Module:
    model = new_model()
    devices.make_late(model.named_parameters())
    optimizer = bps.DistributedOptimizer(OPTIMIZERS["adam"](model), model=model)
    for step in range(STEPS):
        if mistake == "dies" and step == 5 and bps.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
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
    session = current().get().carrier
    assert session is not None
    rows = {row.name: int(row.value) for row in session._worker.measure()}
    print(f"sums by the library: {rows.get('library_operations_total', 0)}")
    print(f"bytes summed: {rows.get('library_bytes_total', 0)}")
    print(f"bytes copied: {rows.get('library_copied_bytes_total', 0)}", flush=True)
    bps.shutdown()
    stop()


main()
