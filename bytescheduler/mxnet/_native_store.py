"""The native back end: MXNet's semantics on top of the engine's two operations."""

import hashlib
import logging
from typing import Dict, List, Mapping, Optional, Set, Tuple

import mxnet as mx
from mxnet.base import KVStoreHandle

from bytescheduler.mxnet._arguments import group
from bytescheduler.mxnet._link import Link
from bytescheduler.mxnet._tensor import Tensor, require_dense
from bytescheduler.mxnet._types import (
    Array,
    Arrays,
    Groups,
    Handle,
    Key,
    Keys,
    Optimizer,
    RowIds,
    Store,
    Updater,
)

_log = logging.getLogger(__name__)
_NOT_YET = "not supported yet by the native back end"

Outs = List[Tuple[Tensor, List[Array]]]


def _engine_key(key: Key) -> int:
    """Return 63 bits that every worker computes alike."""
    if isinstance(key, str):
        return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1
    if not 0 <= key < 2**63:
        raise mx.base.MXNetError(f"key {key}: want 0 <= key < 2**63")
    return int(key)


class NativeStore:
    """See `Backend`.  Every method that takes keys checks all of them before it sends anything.

    The updater runs on every worker after the sum has arrived, as ordinary engine work, so it must
    be deterministic and the same on all workers.  float16 is summed in float16, whatever the
    optimizer's multi_precision says.

    Parameters
    ----------
    link : Link
        Owned from now on.
    inner : KVStore, optional
        The stock store; its own data path is not used.
    """

    def __init__(self, link: Link, inner: Optional[Store] = None) -> None:
        self._link = link
        self._inner = inner
        self._type = "dist_sync" if inner is None else str(inner.type)
        self._tensors: Dict[Key, Tensor] = {}
        self._taken: Dict[int, Key] = {}
        self._told_sparse: Set[Key] = set()
        self.updater: Updater = None
        self.handle: Handle = getattr(inner, "handle", None) or KVStoreHandle()

    @property
    def is_p3(self) -> bool:
        return False

    @property
    def type(self) -> str:
        return self._type

    @property
    def rank(self) -> int:
        self._link.check()
        return self._link.rank

    @property
    def num_workers(self) -> int:
        self._link.check()
        return self._link.num_workers

    # -- keys ----------------------------------------------------------------------------------

    def _values(self, key: Keys, value: Arrays) -> Groups:
        groups = self._group(key, value)
        for mine, arrays in groups.items():
            if not arrays:
                raise mx.base.MXNetError(f"key {mine!r}: an empty list, want at least one array")
        return groups

    def _group(self, key: Keys, value: Arrays) -> Groups:
        self._link.check()
        groups = group(key, value)
        for mine in self._tensors:
            for yours in groups:
                if isinstance(mine, str) is not isinstance(yours, str):
                    raise mx.base.MXNetError(
                        f"key {yours!r}: this store's keys are {type(mine).__name__}, "
                        "and int and str cannot be mixed"
                    )
            break
        return groups

    def _tensor(self, key: Key) -> Tensor:
        tensor = self._tensors.get(key)
        if tensor is None:
            raise mx.base.MXNetError(
                f"key {key!r} has not been initialised: call init or broadcast"
            )
        return tensor

    def _declare(self, groups: Groups) -> List[Tensor]:
        taken = dict(self._taken)
        for key in groups:
            if key in self._tensors:
                raise mx.base.MXNetError(f"duplicate init of key {key!r}")
            other = taken.setdefault(_engine_key(key), key)
            if other != key:
                raise mx.base.MXNetError(
                    f"keys {other!r} and {key!r} have the same hash: rename one of them"
                )
        tensors = [Tensor(key, _engine_key(key), arrays[0]) for key, arrays in groups.items()]
        for index, tensor in enumerate(tensors, len(self._tensors)):
            tensor.position = index if isinstance(tensor.key, str) else tensor.key
        self._taken = taken
        return tensors

    # -- values --------------------------------------------------------------------------------

    def init(self, key: Keys, value: Arrays) -> None:
        groups = self._values(key, value)
        self._init(groups, self._declare(groups))

    def _init(self, groups: Groups, tensors: List[Tensor]) -> None:
        with mx.autograd.pause():
            for tensor in tensors:
                self._link.name(tensor.engine_key, tensor.key)
                if self._link.rank == 0:
                    groups[tensor.key][0].copyto(tensor.recv)
            self._link.broadcast(tensors)
            for tensor in tensors:
                self._tensors[tensor.key] = tensor
                if self.updater is not None:
                    tensor.store_apart()

    def broadcast(self, key: Keys, value: Arrays, out: Arrays, priority: int) -> None:
        groups, outs = self._values(key, value), self._group(key, out)
        tensors = self._declare(groups)
        for tensor in tensors:
            for array in outs[tensor.key]:
                tensor.check_out(array)
        self._init(groups, tensors)
        self._copy_out([(self._tensor(k), arrays) for k, arrays in outs.items()])

    def push(self, key: Keys, value: Arrays, priority: int) -> None:
        groups = self._values(key, value)
        self._send(self._checked(groups), priority)

    def pull(self, key: Keys, out: Arrays, priority: int, ignore_sparse: bool) -> None:
        assert out is not None
        self._copy_out(self._checked_outs(self._group(key, out), ignore_sparse))

    def pushpull(self, key: Keys, value: Arrays, out: Arrays, priority: int) -> None:
        groups = self._values(key, value)
        values = self._checked(groups)
        outs = values
        if out is not None:
            out_groups = self._group(key, out)
            outs = self._checked_outs(out_groups, ignore_sparse=False)
        self._send(values, priority)
        self._copy_out(outs)

    def _checked(self, groups: Groups) -> Outs:
        pairs = [(self._tensor(key), arrays) for key, arrays in groups.items()]
        for tensor, arrays in pairs:
            for array in arrays:
                tensor.check(array)
        # As stock: by number, or by order of init.  Under NaiveEngine each round ends before the
        # next begins, so workers that disagree would wait for each other for ever.
        return sorted(pairs, key=lambda pair: pair[0].position)

    def _checked_outs(self, groups: Groups, ignore_sparse: bool) -> Outs:
        pairs = []
        for key, arrays in groups.items():
            tensor = self._tensor(key)
            dense = [array for array in arrays if array.stype == "default"]
            if len(dense) < len(arrays):
                self._refuse_sparse_out(key, arrays, ignore_sparse)
            for array in dense:
                tensor.check_out(array)
            pairs.append((tensor, dense))
        return pairs

    def _refuse_sparse_out(self, key: Key, arrays: List[Array], ignore_sparse: bool) -> None:
        if not ignore_sparse:
            for array in arrays:
                require_dense(key, array)
        if key not in self._told_sparse:
            self._told_sparse.add(key)
            _log.warning("pull of key %r skips arrays that are not dense", key)

    def _send(self, values: Outs, priority: int) -> None:
        with mx.autograd.pause():
            for tensor, arrays in values:
                tensor.gather(arrays)
                self._link.push_pull(tensor, int(priority))
            # Behind all pushes: an updater that waits for its sum must hold back none of them.
            if self.updater is not None:
                for tensor, _ in values:
                    self._update(tensor)

    def _update(self, tensor: Tensor) -> None:
        # Stock stores give an updater str keys as bytes.
        key = tensor.key.encode() if isinstance(tensor.key, str) else tensor.key
        self.updater(key, tensor.recv, tensor.stored)

    def _copy_out(self, outs: Outs) -> None:
        with mx.autograd.pause():
            for tensor, arrays in outs:
                tensor.copy_out(arrays)

    def row_sparse_pull(self, key: Keys, out: Arrays, priority: int, row_ids: RowIds) -> None:
        self._link.check()
        raise mx.base.MXNetError(f"key {key!r}: row_sparse arrays are {_NOT_YET}")

    # -- updates -------------------------------------------------------------------------------

    def set_gradient_compression(self, params: Mapping[str, object]) -> None:
        self._link.check()
        raise mx.base.MXNetError(f"gradient compression ({params}) is {_NOT_YET}")

    def set_optimizer(self, optimizer: Optimizer) -> None:
        self.set_updater(mx.optimizer.get_updater(optimizer))

    def set_updater(self, updater: Updater) -> None:
        self._link.check()
        self.updater = updater
        with mx.autograd.pause():
            for tensor in self._tensors.values():
                tensor.store_apart()

    def is_capable(self, capability: str) -> bool:
        if capability.lower() == mx.kvstore.KVStoreBase.OPTIMIZER:
            return True
        raise ValueError(f"Unknown capability: {capability}")

    def save_optimizer_states(self, fname: str, dump_optimizer: bool) -> None:
        assert self.updater is not None, "no optimizer was set, so there are no states to save"
        with open(fname, "wb") as file:
            file.write(self.updater.get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str) -> None:
        assert self.updater is not None, "set an optimizer before loading its states"
        with open(fname, "rb") as file:
            self.updater.set_states(file.read())

    # -- the job -------------------------------------------------------------------------------

    def barrier(self) -> None:
        self._link.check()
        self._link.barrier()

    def send_command_to_servers(self, head: int, body: str) -> None:
        self._link.check()
        if self._inner is not None:
            self._inner._send_command_to_servers(head, body)

    def close(self, drain_s: Optional[float]) -> None:
        self._link.close(drain_s)
