"""The RDMA device of an address of this machine: ``python -m benchmarks.rdma.device ADDRESS``.

It prints what perftest needs to use the device, or ends with why there is none.
"""

import json
import sys
from typing import NamedTuple

from bytescheduler._native import about_host

__all__ = ["Device", "device_at"]


class Device(NamedTuple):
    """A port of a device, and one of its addresses.

    Attributes
    ----------
    name : str
        The device's, such as ``mlx5_0``.
    port : str
        The number of the port.
    gid : str
        The index of the address in the port's table; "-1": it needs none, as on InfiniBand.
    """

    name: str
    port: str
    gid: str


def device_at(address: str) -> Device:
    """Return the device that a node at this address uses.

    Raises
    ------
    SystemExit
        There is none; the message says why and what to do.
    """
    settings = {
        "DMLC_ROLE": "worker",
        "DMLC_NUM_WORKER": "1",
        "DMLC_NUM_SERVER": "1",
        "DMLC_PS_ROOT_URI": address,
        "DMLC_PS_ROOT_PORT": "9091",
        "DMLC_NODE_HOST": address,
        "DMLC_ENABLE_RDMA": "auto",
    }
    (choice,) = (fact for fact in about_host(settings) if fact.what == "rdma_choice")
    if not choice.name:
        raise SystemExit(f"no RDMA at {address}: {choice.value}")
    name, _, port = choice.name.partition(":")
    return Device(name, port, choice.value.split()[-1])


if __name__ == "__main__":
    sys.stdout.write(json.dumps(device_at(sys.argv[1])) + "\n")
