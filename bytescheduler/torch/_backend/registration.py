"""Lets `init_process_group("bytescheduler")` find the backend."""

import functools
from typing import Any, Mapping, Optional

from torch.distributed import Backend, Store

from bytescheduler.torch._backend.base import NAME
from bytescheduler.torch._backend.group import CALLS, Group
from bytescheduler.torch._backend.memory import DEVICES
from bytescheduler.torch._backend.world import World, backends_at, check_settings_of
from bytescheduler.torch._crossing.compilers import apart
from bytescheduler.torch._engine.session import TorchSession
from bytescheduler.torch._job.job import open_by_store

__all__ = ["WORLD", "register"]

_REASON = "its calls start exchanges of the engine, which no compiler traces"


def _open(variables: Mapping[str, str], store: Store) -> Optional[TorchSession]:
    return open_by_store(variables, lambda *_: store)


WORLD = World(_open)


@functools.lru_cache(maxsize=None)
def _hide_from_compilers() -> None:
    """Keep Dynamo from tracing calls that C++ makes in a compiled forward pass.

    It happens at the first group, as it imports Dynamo.
    """
    for name in CALLS:
        setattr(Group, name, apart(getattr(Group, name), _REASON))


def _create(options: Any, _: object) -> Group:  # noqa: ANN401 - PyTorch's types are not read
    check_settings_of(backends_at(2))
    _hide_from_compilers()
    return WORLD.create(options)


def register() -> None:
    """Let c10d know the backend; a second call does nothing new."""
    Backend.register_backend(NAME, _create, extended_api=True, devices=list(DEVICES))
