"""Workers that host the servers of their job, beside a scheduler node in a process of its own.

DMLC_NUM_SERVER=0 says so, as `bslaunch -s 0` sets it.  The scheduler node is where the variables of
a job with servers say: at DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT.
"""

import re
from typing import Dict, Mapping

from bytescheduler._settings import Settings

__all__ = ["counts_no_servers", "hosted_place", "hosts_server", "named_by_workers"]

_PLACE = ("DMLC_NUM_WORKER", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT")
_ANY = "-1"  # the rank that a node asks for without one
_ZERO = re.compile("-?0+")
_SERVER = re.compile(r"\bserver (\d+) \(")
_SILENT = re.compile(r"\bserver (\d+)(?= has not answered)")


def counts_no_servers(variables: Mapping[str, str]) -> bool:
    """Return whether DMLC_NUM_SERVER is the number 0, as the engine reads it."""
    return _ZERO.fullmatch(variables.get("DMLC_NUM_SERVER", "")) is not None


def hosts_server(variables: Mapping[str, str]) -> bool:
    """Return whether this process is a worker of such a job."""
    return variables.get("DMLC_ROLE") == "worker" and counts_no_servers(variables)


def hosted_place(variables: Mapping[str, str]) -> Dict[str, str]:
    """Return the settings of a worker of such a job and of its server; empty in other processes.

    Both have the rank of DMLC_WORKER_ID, else the number that a launcher gave this process; where
    there is neither, they ask for none.  The numbers are not checked.
    """
    if not hosts_server(variables):
        return {}
    place = {name: variables[name] for name in _PLACE if variables.get(name)}
    rank = variables.get("DMLC_WORKER_ID") or str(Settings.read().worker_id)
    if rank != _ANY:
        place.update(DMLC_WORKER_ID=rank, DMLC_SERVER_ID=rank)
    return {**place, "DMLC_NUM_SERVER": place.get("DMLC_NUM_WORKER", "")}


def named_by_workers(text: str) -> str:
    """Return a text with each server named by the worker whose process hosts it."""
    return _SILENT.sub(r"the server of worker \1", _SERVER.sub(r"worker \1 (its server ", text))
