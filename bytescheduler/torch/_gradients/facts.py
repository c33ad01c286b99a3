"""The kinds of facts that must be equal on all workers, each with its cure."""

from typing import Dict, Optional, Sequence

from bytescheduler._session import objects
from bytescheduler._session.objects import Fact, Facts, Kind

__all__ = ["CALL", "GROUPS", "MODEL", "NUMBERS", "STATE", "WEIGHTS", "Fact", "Facts", "difference"]

CALL = "call"
MODEL = "model"
GROUPS = "groups"
NUMBERS = "numbers"
WEIGHTS = "weights"
STATE = "state"
_KINDS: Dict[str, Kind] = {
    CALL: Kind("pass the same to DistributedOptimizer on every worker"),
    MODEL: Kind("build the same model on every worker"),
    GROUPS: Kind("make the same optimizer on every worker"),
    NUMBERS: Kind(
        "give the optimizers of all workers the same numbers in every step; if one worker "
        "has loaded a checkpoint, call bytescheduler.torch.broadcast_optimizer_state(optimizer, "
        "root_rank=0) before DistributedOptimizer"
    ),
    WEIGHTS: Kind(
        "call bytescheduler.torch.broadcast_parameters(model.state_dict(), root_rank=0) on "
        "every worker before training, or pass model=model; if they were equal, step the optimizer "
        "that DistributedOptimizer has returned",
        is_digest=True,
    ),
    STATE: Kind(
        "load the checkpoint on every worker, or call "
        "bytescheduler.torch.broadcast_optimizer_state(optimizer, root_rank=0) on every worker "
        "before training",
        is_digest=True,
    ),
}


def difference(facts: Sequence[Facts]) -> Optional[str]:
    """Return a sentence about the first fact that differs, with its cure; None: all are equal.

    Parameters
    ----------
    facts : sequence of Facts
        Each worker's, by rank.
    """
    return objects.difference(facts, _KINDS)
