"""`mx.kv.create("dist_sync")` where MXNet's own store would wait for ever: it creates a stand-in.

In a job with a secret, or by IPv6, MXNet's own store cannot speak to our nodes.  A direct job has
no servers for it.  In any job a process has one of them: a second one waits in a barrier that the
other nodes never join.
"""

import functools
from typing import Callable

import mxnet as mx
from mxnet.kvstore import KVStoreBase

from bytescheduler._native import await_names, check_settings
from bytescheduler._session.direct import in_direct_job
from bytescheduler._settings import Settings
from bytescheduler.mxnet._choice.by_name import take_part
from bytescheduler.mxnet._choice.meeting import own_address_shown
from bytescheduler.mxnet._choice.opening import (
    OWN,
    await_scheduler,
    check_job,
    open_direct_stand_in,
    open_stand_in,
)
from bytescheduler.mxnet._choice.own_store import OwnStore
from bytescheduler.mxnet._types import Store

__all__ = ["DistNames", "take_names"]

_NAMES = (
    "dist",
    "dist_sync",
    "dist_async",
    "dist_device_sync",
    "dist_sync_device",
    "dist_device_async",
    "dist_async_device",
)


class DistNames:
    """Creates the dist stores of this process: `mx.kv.create` comes here with their names.

    Parameters
    ----------
    stock : OwnStore
        Learns which store is MXNet's own.
    on_waiting : callable
        Called before a wait for a rendezvous that MXNet's own store may never end.
    on_joined : callable
        Called when this process waits for no rendezvous any more.
    """

    def __init__(
        self, stock: OwnStore, on_waiting: Callable[[], None], on_joined: Callable[[], None]
    ) -> None:
        self._own = stock
        self._on_waiting = on_waiting
        self._on_joined = on_joined

    def take_over(self) -> None:
        """Let `mx.kv.create` come here."""
        for name in _NAMES:
            KVStoreBase.kv_registry.setdefault(name, functools.partial(self.create, name))

    def create(self, name: str) -> Store:
        """Return MXNet's own store, or what stands in for it.  Blocks."""
        settings = Settings.read()
        check_job(settings)
        if in_direct_job():
            without_servers = open_direct_stand_in(name, settings)
            self._on_joined()
            return without_servers
        if settings.role != "worker":
            store = self._create_outside(name, settings)
        else:
            check_settings()  # MXNet's own would abort, or wait for ever
            await_names()
            stand_in = open_stand_in(name, settings)
            if stand_in is not None:
                self._on_joined()
                return stand_in
            self._on_waiting()
            await_scheduler(settings)
            with own_address_shown(settings):
                store = self._create_stock(name)
        self._own.set(store)
        self._on_joined()
        return store

    def _create_outside(self, name: str, settings: Settings) -> Store:
        """Return MXNet's own store, in a process that is no worker."""
        try:
            return self._create_stock(name)
        except mx.base.MXNetError as error:
            if settings.role:
                raise
            raise mx.base.MXNetError(
                f"MXNet cannot create a {name} store: this process has no part in a job, as "
                "DMLC_ROLE is not set; start the script with bslaunch --local -w 2 -- python ..., "
                "with torchrun, mpirun or srun, "
                f'or create a store of one process, mx.kv.create("local")\n{error}'
            ) from error

    @staticmethod
    def _create_stock(name: str) -> Store:
        ours = KVStoreBase.kv_registry.pop(name)
        try:
            return mx.kv.create(name)
        finally:
            KVStoreBase.kv_registry[name] = ours


def take_names(on_waiting: Callable[[], None], on_joined: Callable[[], None]) -> None:
    """Let MXNet find our stores, and the stand-ins, by their names."""
    take_part()
    DistNames(OWN, on_waiting, on_joined).take_over()
