"""The speed of a device by itself: programs of perftest, between two hosts."""

import re
import shutil
import subprocess
import time
from typing import List, Tuple

from benchmarks.rdma.hosts import device_of
from bytescheduler._launch.launcher import Place
from bytescheduler._process.ports import Ports

__all__ = ["gbytes_per_s"]

_ENDS = Tuple[Place, Place]
_TIMEOUT_S = 120.0
_LISTENS_S = 30.0  # the emulated guest needs some of it
_BETWEEN_TRIES_S = 0.2
_NOT_YET = "Couldn't connect to"


def _command(program: str, host: Place, port: int, more: List[str]) -> List[str]:
    device = device_of(host)
    words = ["-F", "-p", str(port), "-d", device.name, "-i", device.port]
    gid = ["-x", device.gid] if device.gid != "-1" else []
    return [*host.prefix, program, *words, *gid, *more]


def _rate_in(said: str, size_bytes: int) -> float:
    """Return the average of a table's row, in GB/s."""
    row = re.search(rf"^\s*{size_bytes}\s+\d+\s+[\d.]+\s+([\d.]+)\s", said, re.M)
    if row is None:
        raise SystemExit(f"perftest did not measure: {said.strip()[-400:]}")
    return float(row.group(1)) * (1 << 20) / 1e9


def gbytes_per_s(
    program: str, ends: _ENDS, size_bytes: int, count: int, both_ways: bool = False
) -> float:
    """Return what a program such as ib_read_bw moves, each way.

    Parameters
    ----------
    program
        Of perftest, one that measures a rate.
    ends
        The host that asks, and the other one.
    size_bytes, count
        Of each message, and how many there are.
    both_ways
        Whether both hosts ask at once; the rate is then half of the sum.

    Raises
    ------
    SystemExit
        The program is not there, or failed.
    """
    if shutil.which(program) is None:
        raise SystemExit(f"{program} is not there: apt-get install perftest")
    near, far = ends
    more = ["-s", str(size_bytes), "-n", str(count), *(["-b"] if both_ways else [])]
    with Ports() as ports:
        port = ports.free()
        ask = [*_command(program, near, port, more), far.address]
        with subprocess.Popen(
            _command(program, far, port, more), stdout=subprocess.DEVNULL
        ) as listener:
            try:
                said = _asked(ask, listener)
            finally:
                listener.kill()
    return _rate_in(said, size_bytes) / (2 if both_ways else 1)


def _asked(ask: List[str], listener: "subprocess.Popen[bytes]") -> str:
    """Return what the asking program writes, once the other one listens."""
    end = time.monotonic() + _LISTENS_S
    while True:
        asked = subprocess.run(ask, capture_output=True, check=False, text=True, timeout=_TIMEOUT_S)
        said = asked.stdout + asked.stderr
        if asked.returncode == 0 or _NOT_YET not in said or time.monotonic() > end:
            return said
        if listener.poll() is not None:
            raise SystemExit(f"{listener.args!r} ended with exit code {listener.returncode}")
        time.sleep(_BETWEEN_TRIES_S)
