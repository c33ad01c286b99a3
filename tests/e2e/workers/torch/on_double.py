"""Runs another worker's script with its tensors on the double of a device.

``on_double.py [--late] SCRIPT [ARGUMENTS]``: with --late, gradients come later than backward, which
reads none of them twice then.
"""

import os
import pathlib
import runpy
import sys
from typing import Any, Iterable

_HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(_HERE.parents[3] / "python" / "torch"))

from fake_device import FakeDevices  # noqa: E402

from bytescheduler.torch._gradients.gradients import Gradients  # noqa: E402
from bytescheduler.torch._job.job import current  # noqa: E402


def let_gradients_be_late(devices: FakeDevices) -> None:
    plain = Gradients.add

    def add(self: Gradients, members: Iterable[Any]) -> None:
        listed = list(members)
        devices.make_late([(name, param) for name, param, _ in listed])
        plain(self, listed)

    Gradients.add = add  # type: ignore[method-assign]


def main() -> None:
    given = sys.argv[1:]
    devices: Any = FakeDevices(seed=os.getpid())
    print(f"the double's seed is {os.getpid()}")
    devices.runtime.on_a_thread()
    current().devices = devices
    if given[0] == "--late":
        let_gradients_be_late(devices)
        given = given[1:]
    script = str(_HERE.parent / given[0])
    sys.argv = [script, *given[1:]]
    sys.path.insert(0, str(_HERE.parent))
    runpy.run_path(script, run_name="__main__")
    assert devices.copies > 0


main()
