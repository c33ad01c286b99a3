"""Python objects of one worker for all of them."""

import pickle
from typing import List, Mapping, Optional, Sequence, Tuple

from bytescheduler._session.relay import Relay
from bytescheduler._session.view import HasView
from bytescheduler.errors import ConfigError, UsageError

__all__ = ["Objects"]

_COUNT_BYTES = 8
_NO_OBJECT = 2**63  # a count that no object has


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
    for name in [*theirs, *ours]:
        if name not in ours or name not in theirs:
            lacking_worker = "here" if name not in ours else f"on worker {root}"
            raise ConfigError(f"{name}: there is no such tensor {lacking_worker}; {cure}", 1)
        if ours[name] != theirs[name]:
            raise ConfigError(
                f"{name}: it is {ours[name]} here and {theirs[name]} on worker {root}; {cure}", 1
            )
    if list(ours) != list(theirs):
        raise ConfigError(
            f"the tensors come in another order than on worker {root}: sort them by name", 1
        )
