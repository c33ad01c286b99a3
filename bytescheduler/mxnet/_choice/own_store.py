"""The dist store of MXNet's own that this process has: it cannot make a second one."""

import os
import weakref
from typing import Callable, Optional

from bytescheduler.mxnet._types import Store

__all__ = ["OwnStore"]


class OwnStore:
    """Knows the store without keeping it alive."""

    def __init__(self) -> None:
        self._store: Callable[[], Optional[Store]] = lambda: None
        self._process = 0

    def get(self) -> Optional[Store]:
        """Return the store; None once it is gone, and in a forked child."""
        return self._store() if self._process == os.getpid() else None

    def set(self, store: Store) -> None:
        """Let `store` be the one."""
        self._store = weakref.ref(store)
        self._process = os.getpid()
