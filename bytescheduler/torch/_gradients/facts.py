"""Facts that must be equal on all workers, and the sentence about the first that is not."""

from typing import Dict, List, NamedTuple, Optional, Sequence

__all__ = ["CALL", "GROUPS", "MODEL", "NUMBERS", "STATE", "WEIGHTS", "Fact", "Facts", "difference"]


class Fact(NamedTuple):
    """A value, and what it is about: one of the kinds below."""

    kind: str
    value: str


Facts = Dict[str, Fact]  # by their labels, in the order in which a difference is looked for

CALL = "call"
MODEL = "model"
GROUPS = "groups"
NUMBERS = "numbers"
WEIGHTS = "weights"
STATE = "state"
_CURES = {
    CALL: "pass the same to DistributedOptimizer on every worker",
    MODEL: "build the same model on every worker",
    GROUPS: "make the same optimizer on every worker",
    NUMBERS: "give the optimizers of all workers the same numbers in every step; if one worker "
    "has loaded a checkpoint, call bytescheduler.torch.broadcast_optimizer_state(optimizer, "
    "root_rank=0) before DistributedOptimizer",
    WEIGHTS: "call bytescheduler.torch.broadcast_parameters(model.state_dict(), root_rank=0) on "
    "every worker before training, or pass model=model; if they were equal, step the optimizer "
    "that DistributedOptimizer has returned",
    STATE: "load the checkpoint on every worker, or call "
    "bytescheduler.torch.broadcast_optimizer_state(optimizer, root_rank=0) on every worker before "
    "training",
}
_ABSENT = "absent"
_NAMED_WORKERS = 3
_DIGESTS = (WEIGHTS, STATE)  # their values say nothing to a reader


def difference(facts: Sequence[Facts]) -> Optional[str]:
    """Return a sentence about the first fact that differs, with its cure; None: all are equal.

    Parameters
    ----------
    facts : sequence of Facts
        Each worker's, by rank.
    """
    labels = {label: fact.kind for worker in facts for label, fact in worker.items()}
    for label, kind in labels.items():
        values = [worker[label].value if label in worker else _ABSENT for worker in facts]
        if any(value != values[0] for value in values):
            return f"{label}: {_of_values(kind, values)}; {_CURES[kind]}"
    return None


def _of_values(kind: str, values: List[str]) -> str:
    differing = [rank for rank, value in enumerate(values) if value != values[0]]
    if kind not in _DIGESTS or _ABSENT in values:
        shown = ["there" if kind in _DIGESTS and value != _ABSENT else value for value in values]
        rank = next(rank for rank in differing if shown[rank] != shown[0])
        return f"it is {shown[0]} on worker 0 and {shown[rank]} on worker {rank}"
    workers = " and ".join([f"worker {rank}" for rank in differing[:_NAMED_WORKERS]])
    more = ", with further ones," if len(differing) > _NAMED_WORKERS else ""
    verb = "has" if len(differing) == 1 else "have"
    return f"{workers}{more} {verb} other values than worker 0"
