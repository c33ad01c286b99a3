"""The store that `mx.kv.create` gives where MXNet's own dist store can have no part in the job."""

import weakref
from typing import Optional

import mxnet as mx
from mxnet.kvstore import KVStore

from bytescheduler.mxnet._sessions.tensor_session import TensorSession
from bytescheduler.mxnet._types import Handle

__all__ = ["StandIn"]


class StandIn(KVStore):  # type: ignore[misc]  # MXNet has no types
    """A dist store to be wrapped: it has its place in the job, and no data path of its own.

    Every operation raises until it is wrapped.

    Parameters
    ----------
    name : str
        What it was created as, which is its type.
    session : TensorSession
        Owned from now on.
    reason : str
        Begins the errors: why MXNet's own store cannot be had here.
    """

    def __init__(self, name: str, session: TensorSession, reason: str) -> None:
        self._name = name
        self._session = session
        self._why = reason
        self._updater = None
        self._updater_func = None
        self._str_updater_func = None
        self._is_p3 = False
        self._gives_up = weakref.finalize(self, session.drop)
        self._gives_up.atexit = False  # the session ends by itself

    def __del__(self) -> None:
        """Free nothing: MXNet has no store for it."""

    def take_session(self) -> Optional[TensorSession]:
        """Return the session, which the caller owns from now on; None: it was taken."""
        return None if self._gives_up.detach() is None else self._session

    @property
    def handle(self) -> Handle:
        """Raise: MXNet's own functions have nothing to work on."""
        raise mx.base.MXNetError(
            f"{self._why}: add kvs = ScheduledKVS(kvs) before anything else is done with the store "
            "(from bytescheduler.mxnet import ScheduledKVS)"
        )

    @property
    def type(self) -> str:
        """The name it was created by."""
        return self._name

    @property
    def rank(self) -> int:
        """Position among the workers, from 0."""
        return self._session.rank

    @property
    def num_workers(self) -> int:
        """How many workers there are."""
        return self._session.num_workers
