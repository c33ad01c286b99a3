"""The variables by which PyTorch's processes know their rank, and where they meet.

PyTorch reads them before it asks a backend.
"""

from typing import Callable, Dict, Mapping

__all__ = ["meeting_place", "ranks"]


def ranks(
    rank: int, size: int, local_rank: int, local_size: int, *, host: int = 0
) -> Dict[str, str]:
    """Return the variables of a worker, one of `local_size` on its host, which has a number."""
    numbers = {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": local_size,
        "GROUP_RANK": host,
    }
    return {name: str(number) for name, number in numbers.items()}


def meeting_place(
    variables: Mapping[str, str], address: str, free_port: Callable[[], int]
) -> Dict[str, str]:
    """Return the variables of the place where rank 0 listens.

    Parameters
    ----------
    variables : mapping of str to str
        The variables of the job: a place that they have stays.
    address : str
        Rank 0's, as other workers reach it.
    free_port : callable
        Returns a free port of rank 0's host.
    """
    if variables.get("MASTER_ADDR") and variables.get("MASTER_PORT"):
        return {name: variables[name] for name in ("MASTER_ADDR", "MASTER_PORT")}
    return {"MASTER_ADDR": address, "MASTER_PORT": str(free_port())}
