"""The way of the sums: BYTESCHEDULER_COMM against the kind of the job."""

from bytescheduler._process.say import plain
from bytescheduler.errors import ConfigError

__all__ = ["LIBRARIES", "check_comm"]

# Libraries that sum in a direct job, where they are named.
LIBRARIES = ("mpi", "nccl")
_NAME = "BYTESCHEDULER_COMM"


def check_comm(comm: str, *, servers: str = "", started: str = "") -> None:
    """Raise ConfigError if sums cannot be made in this way in this job.

    Parameters
    ----------
    comm : str
        BYTESCHEDULER_COMM.
    servers : str
        The servers of the job, such as "2 servers"; empty: it has none of their own.
    started : str
        A clause that says how this process got its number; empty: it is alone.
    """
    wanted = f"{_NAME}={plain(comm)}"
    if servers:
        if comm in ("direct", *LIBRARIES):
            raise ConfigError(
                f"{wanted}, and this job has {servers}: unset {_NAME}, or start the workers alone, "
                "by a launcher such as torchrun, without DMLC_ROLE, DMLC_NUM_WORKER and "
                "DMLC_NUM_SERVER",
                1,
            )
    elif comm == "servers":
        raise ConfigError(
            f"{wanted}, and {started or 'no launcher has started this process'}, so there are no "
            f"servers: start the job with bslaunch --servers N, or unset {_NAME}",
            1,
        )
    elif comm in LIBRARIES:
        raise ConfigError(
            f"{wanted}: this version does not have it; unset {_NAME}, and a server in each "
            "worker's process sums",
            1,
        )
