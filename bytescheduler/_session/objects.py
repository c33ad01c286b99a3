"""Python objects of one worker for all of them, and what differs between workers."""

import pickle
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from bytescheduler._session.relay import Relay
from bytescheduler._session.view import HasView
from bytescheduler.errors import ConfigError, UsageError

__all__ = ["Fact", "Facts", "Kind", "Objects", "difference", "first_difference", "unlike"]

_COUNT_BYTES = 8
_NO_OBJECT = 2**63  # a count that no object has
_ABSENT = "absent"
_NAMED_WORKERS = 3


class Objects:
    """Carries objects between the workers of this job, which trust each other's pickles.

    Parameters
    ----------
    relay : Relay, optional
        Carries the bytes; None where this worker is alone.
    job : HasView
        The job of the workers.
    """

    def __init__(self, relay: Optional[Relay], job: HasView) -> None:
        self._relay = relay
        self._job = job

    def check_root(self, root: int) -> None:
        """Raise ConfigError if there is no worker `root`."""
        if not isinstance(root, int) or not 0 <= root < self._job.view.num_workers:
            raise ConfigError(f"root_rank {root!r}: want 0 to {self._job.view.num_workers - 1}", 1)

    def broadcast(self, value: object, root: int) -> object:
        """Return worker `root`'s `value`.  Blocks."""
        self.check_root(root)
        if self._relay is None:
            return value
        pickled, error = b"", None
        if self._job.view.rank == root:
            try:
                pickled = pickle.dumps(value)
            except Exception as failed:  # noqa: B902 - any object's own
                error = failed
        size = _NO_OBJECT if error is not None else len(pickled)
        count = bytearray(size.to_bytes(_COUNT_BYTES, "little"))
        self._relay.broadcast(memoryview(count), root)
        if error is not None:
            raise error
        size = int.from_bytes(count, "little")
        if size == _NO_OBJECT:
            raise UsageError(
                f"worker {root} could not pickle its object, and says why; give an object that "
                "pickle takes",
                5,
            )
        data = bytearray(pickled) if self._job.view.rank == root else bytearray(size)
        self._relay.broadcast(memoryview(data), root)
        return value if self._job.view.rank == root else pickle.loads(data)

    def gather(self, value: object) -> List[object]:
        """Return every worker's `value`, in the order of their ranks.  Blocks."""
        if self._relay is None:
            return [value]
        return [self.broadcast(value, root) for root in range(self._job.view.num_workers)]

    def check_same(self, kinds: Sequence[Tuple[str, object]], root: int) -> None:
        """Raise ConfigError if worker `root` has tensors of other names or kinds.  Blocks.

        Parameters
        ----------
        kinds : sequence of pairs
            The name of each tensor, and its dtype and shape.
        root : int
            The worker to compare them with.
        """
        ours = dict(kinds)
        if len(ours) < len(kinds):
            names = [name for name, _ in kinds]
            again = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"{again}: two tensors have this name; give each its own", 5)
        theirs = self.broadcast(ours, root)
        assert isinstance(theirs, dict)
        _check_same(ours, theirs, root)


def _check_same(ours: Mapping[str, object], theirs: Mapping[str, object], root: int) -> None:
    cure = "build the same model on every worker, and broadcast all of it"
    first = first_difference([theirs, ours])
    if first is not None:
        name, (at_root, here) = first
        if here is None or at_root is None:
            lacking_worker = "here" if here is None else f"on worker {root}"
            raise ConfigError(f"{name}: there is no such tensor {lacking_worker}; {cure}", 1)
        raise ConfigError(f"{name}: it is {here} here and {at_root} on worker {root}; {cure}", 1)
    if list(ours) != list(theirs):
        raise ConfigError(
            f"the tensors come in another order than on worker {root}: sort them by name", 1
        )


class Kind(NamedTuple):
    """A kind of facts, which share a cure.

    Parameters
    ----------
    cure : str
        The cure if a fact differs.
    is_digest : bool
        Their values say nothing to a reader.
    """

    cure: str
    is_digest: bool = False


class Fact(NamedTuple):
    """A value, and its kind."""

    kind: str
    value: str


Facts = Dict[str, Fact]  # by their labels, in the order in which a difference is looked for


def unlike(values: Sequence[object]) -> Optional[int]:
    """Return the first place whose value is not that of place 0; None: all are equal."""
    return next((place for place, value in enumerate(values) if value != values[0]), None)


def first_difference(
    by_worker: Sequence[Mapping[str, object]],
) -> Optional[Tuple[str, List[Any]]]:
    """Return the first label whose values differ, and these; None: all are equal.

    A worker without the label has None.
    """
    for label in dict.fromkeys(label for worker in by_worker for label in worker):
        values = [worker.get(label) for worker in by_worker]
        if unlike(values) is not None:
            return label, values
    return None


def difference(facts: Sequence[Facts], kinds: Mapping[str, Kind]) -> Optional[str]:
    """Return a sentence about the first fact that differs, with its cure; None: all are equal.

    Parameters
    ----------
    facts : sequence of Facts
        Each worker's, by rank.
    kinds : mapping of str to Kind
        The kinds of the facts.
    """
    first = first_difference(
        [{label: fact.value for label, fact in worker.items()} for worker in facts]
    )
    if first is None:
        return None
    label, values = first
    kind = kinds[next(worker[label].kind for worker in facts if label in worker)]
    shown = [_ABSENT if value is None else value for value in values]
    return f"{label}: {_of_values(kind, shown)}; {kind.cure}"


def _of_values(kind: Kind, values: List[str]) -> str:
    if not kind.is_digest or _ABSENT in values:
        shown = ["there" if kind.is_digest and value != _ABSENT else value for value in values]
        rank = unlike(shown)
        assert rank is not None
        return f"it is {shown[0]} on worker 0 and {shown[rank]} on worker {rank}"
    differing = [rank for rank, value in enumerate(values) if value != values[0]]
    workers = " and ".join([f"worker {rank}" for rank in differing[:_NAMED_WORKERS]])
    more = ", with further ones," if len(differing) > _NAMED_WORKERS else ""
    verb = "has" if len(differing) == 1 else "have"
    return f"{workers}{more} {verb} other values than worker 0"
