"""The native back end of dist_async: servers update the weights with every push as it comes."""

import logging
import math
from operator import index as as_int
from typing import List, Mapping, Optional, Set, Tuple

import mxnet as mx

from bytescheduler._compression.params import FOLLOWING, Compression, by_coding
from bytescheduler._native import Coding
from bytescheduler.mxnet._arrays.rows_tensor import RowsTensor
from bytescheduler.mxnet._arrays.sparse import is_sparse
from bytescheduler.mxnet._arrays.tensor import FLOAT32, Tensor
from bytescheduler.mxnet._optimizer.server_updates import describe_key
from bytescheduler.mxnet._optimizer.text import for_servers
from bytescheduler.mxnet._optimizer.updater import require_optimizer
from bytescheduler.mxnet._sessions.tensor_session import TensorSession
from bytescheduler.mxnet._stores.native_store import NativeStore, Outs
from bytescheduler.mxnet._stores.rates import tell_summary, tell_unsuited
from bytescheduler.mxnet._stores.scaled_steps import scaling_trainer
from bytescheduler.mxnet._types import (
    Array,
    Arrays,
    Groups,
    Key,
    Keys,
    Optimizer,
    RowIds,
    Store,
    Updater,
)

_log = logging.getLogger(__name__)
_UPDATED = ("float32", "float64", "float16")
# The largest sizes that servers accept, in bytes.
_MAX_PARTITION_BYTES = 2**30
_MAX_ABOUT_BYTES = 1024


class AsyncStore(NativeStore):
    """See `Backend`.  Keys, checks and errors are those of `NativeStore`.

    The optimizer runs on the servers.  Its learning rate, weight decay (with the multipliers of
    each key) and rescale_grad are read here at each push and travel with it.  So changes take
    effect at once; a learning-rate scheduler sees this worker's own count of updates.

    Parameters
    ----------
    session : TensorSession
        Owned from now on.
    inner : KVStore, optional
        The stock store; its own data path is not used.
    kind : str
        As `NativeStore`.
    """

    updates_here = False  # the servers have the optimizer

    def __init__(
        self, session: TensorSession, inner: Optional[Store] = None, *, kind: str = ""
    ) -> None:
        super().__init__(session, inner, kind=kind)
        self._optimizer: Optimizer = None
        self._is_native = False  # the optimizer: the servers need no whole keys
        self._cut: Set[Key] = set()  # in units, so that codecs which need them can code gradients

    def retune(self, partition_bytes: int, credit_bytes: int) -> None:
        raise mx.base.MXNetError(
            "partitions and credit cannot change while a dist_async store is in use: its servers "
            "keep weights in them"
        )

    def _declare(self, groups: Groups) -> List[Tensor]:
        tensors = super()._declare(groups)
        for tensor in tensors:
            if tensor.dtype.name not in _UPDATED:
                raise mx.base.MXNetError(
                    f"key {tensor.key!r}: dist_async cannot update {tensor.dtype.name}, only "
                    + ", ".join(_UPDATED)
                )
            is_coded = self._compression.widens and super()._coding_of(tensor) is not None
            if tensor.is_narrow and is_coded:
                raise mx.base.MXNetError(
                    f"key {tensor.key!r}: dist_async keeps {tensor.dtype.name} as it is, so its "
                    f"gradients cannot be {self._compression.coding}: cast it to float32, or use "
                    "dist_sync"
                )
        return tensors

    def _wanted_coding(self, tensor: Tensor) -> Optional[Coding]:
        """Return the coding for which a tensor has to be cut into units; None: there is none.

        Two bits take any partitions.
        """
        has_units = self._compression.widens and tensor.code == FLOAT32
        return super()._coding_of(tensor) if has_units else None

    def _is_left(self, tensor: Tensor) -> bool:
        """Return whether a tensor was there before its coding, and so travels plain."""
        if not self._compression.widens or super()._coding_of(tensor) is None:
            return False
        return tensor.is_narrow or (tensor.code == FLOAT32 and tensor.key not in self._cut)

    def _coding_of(self, tensor: Tensor) -> Optional[Coding]:
        return None if self._is_left(tensor) else super()._coding_of(tensor)

    def _travels_wide(self, tensor: Tensor) -> bool:
        """Return False: the servers keep a weight's own dtype."""
        return False

    def _new_tensor(self, key: Key, engine_key: int, like: Array) -> Tensor:
        return (RowsTensor if is_sparse(like) else Tensor)(key, engine_key, like, self._copier)

    def _broadcast(self, tensors: List[Tensor]) -> None:
        # The servers' Python may have to update whole keys while no optimizer is known.
        whole: List[Tuple[Tensor, str, bool]] = []
        partitioned: List[Tensor] = []
        for tensor in tensors:
            rows = isinstance(tensor, RowsTensor)
            about = describe_key(tensor.key, tensor.shape, rows=rows)
            fits = len(about.encode()) <= _MAX_ABOUT_BYTES
            fits = fits and tensor.size_bytes <= _MAX_PARTITION_BYTES
            if rows and not fits:
                raise mx.base.MXNetError(
                    f"key {tensor.key!r}: dist_async takes row_sparse arrays of at most 1 GiB, "
                    "with names of at most 900 bytes"
                )
            if fits and (rows or not self._is_native):
                whole.append((tensor, about, rows))
            else:
                partitioned.append(tensor)
        for coding, alike in by_coding(partitioned, self._wanted_coding).items():
            self._session.broadcast(alike, asynchronous=True, coding=coding)
        if whole:
            self._session.broadcast_whole(whole)
        # A whole key is in units too.
        self._cut |= {t.key for t in tensors if self._wanted_coding(t) is not None}

    # -- values --------------------------------------------------------------------------------

    def pull(self, key: Keys, out: Arrays, priority: int, ignore_sparse: bool) -> None:
        assert out is not None
        priority = as_int(priority)
        outs = self._checked_outs(self._group(key, out), ignore_sparse)
        with mx.autograd.pause():
            for tensor, _ in outs:
                self._session.update(tensor, priority, pushes=False, pulls=True)
            self._copy_out(outs)

    def pushpull(self, key: Keys, value: Arrays, out: Arrays, priority: int) -> None:
        priority = as_int(priority)
        values = self._checked(self._values(key, value))
        outs = values
        if out is not None:
            outs = self._checked_outs(self._group(key, out), ignore_sparse=False)
        with mx.autograd.pause():
            self._update_all(values, priority, pulls=True)
            # The same keys, which may have got rows meanwhile.
            self._copy_out([(self._tensor(tensor.key), arrays) for tensor, arrays in outs])

    def row_sparse_pull(self, key: Keys, out: Arrays, priority: int, row_ids: RowIds) -> None:
        priority = as_int(priority)
        pulls = self._checked_rows(key, out, row_ids)
        with mx.autograd.pause():
            for tensor in {id(tensor): tensor for tensor, _, _ in pulls}.values():
                self._session.update(tensor, priority, pushes=False, pulls=True)
            self._copy_rows_out(pulls)

    def _send(self, values: Outs, priority: int) -> None:
        self._update_all(values, priority, pulls=False)

    def _declare_rows(self, values: Outs) -> None:
        """Give dense keys their rows before the first row_sparse push.

        Blocks until rank 0 does so too; every worker then has its value.
        """
        new = [
            RowsTensor.of(tensor, self._keys.beside(tensor.key, "rows"))
            for tensor, arrays in values
            if not isinstance(tensor, RowsTensor) and any(map(is_sparse, arrays))
        ]
        if not new:
            return
        if self._session.rank == 0:
            for tensor in new:
                dense = self._tensors[tensor.key]
                self._session.update(dense, 0, pushes=False, pulls=True)
                tensor.take(dense.recv)
        self._broadcast(list(new))
        self._tensors.update({tensor.key: tensor for tensor in new})

    def _update_all(self, values: Outs, priority: int, *, pulls: bool) -> None:
        if scaling_trainer(self._optimizer) is not None:
            raise mx.base.MXNetError(
                "AMP's loss scaling does not go with a dist_async store: all workers skip a step "
                "that overflows on one, and here they have no steps in common; use dist_sync"
            )
        if not self._has_told:
            self._has_told = True
            tensors = self._tensors.values()
            tell_summary(self._compression, self._session.rank, tensors, self._is_left)
        self._declare_rows(values)
        values = [(self._tensor(tensor.key), arrays) for tensor, arrays in values]
        rates = [self._rates(tensor.key) for tensor, _ in values]
        for (tensor, arrays), rate in zip(values, rates):
            tensor.gather(arrays)
            coding = self._coding_of(tensor)
            self._has_coded |= coding is not None
            self._session.update(
                tensor,
                priority,
                pushes=True,
                pulls=pulls,
                rates=rate,
                coding=coding,
            )

    def _rates(self, key: Key) -> Optional[Tuple[float, float, float]]:
        """Return what this push counts, or None if another worker has set the optimizer."""
        optimizer = self._optimizer
        if optimizer is None:
            return None
        optimizer._update_count(key)
        rates = (
            # Not its own, if it has any: that runs on the server, on what is sent.
            float(mx.optimizer.Optimizer._get_lrs(optimizer, [key])[0]),
            float(mx.optimizer.Optimizer._get_wds(optimizer, [key])[0]),
            float(optimizer.rescale_grad),
        )
        if not all(math.isfinite(rate) for rate in rates):
            raise mx.base.MXNetError(
                f"key {key!r}: learning rate, weight decay and rescale_grad are {rates}, "
                "want finite numbers"
            )
        return rates

    # -- updates -------------------------------------------------------------------------------

    def set_gradient_compression(self, params: Mapping[str, object]) -> None:
        super().set_gradient_compression(params)
        tell_unsuited(self._compression.coding, self._optimizer)
        left = [tensor for tensor in self._tensors.values() if self._is_left(tensor)]
        if left:
            _log.warning(
                "dist_async: gradients of keys that were initialised before compression was set "
                "travel as they are, such as key %r: set it before init",
                left[0].key,
            )

    def _check_change(self, compression: Compression) -> None:
        coding = compression.coding
        if coding is not None and coding.feedback in FOLLOWING:
            raise mx.base.MXNetError(
                f"ef {FOLLOWING[coding.feedback]!r} of gradient compression follows a learning "
                "rate that all workers share, and those of dist_async have none: use ef "
                "'vanilla', or a synchronous store"
            )
        # The codec's own way to send sums is no wish of the user.
        if coding is not None and coding.pull > (0 if compression.is_two_bit else 1):
            raise mx.base.MXNetError(
                f"gradients for dist_async cannot be {coding}: its servers answer with weights, "
                "which travel plain; leave out 'pull', or use a synchronous store"
            )
        if compression.has_momentum:
            raise mx.base.MXNetError(
                "momentum 'nesterov' of gradient compression has no place in dist_async, whose "
                "servers update with each gradient: leave it out, or use a synchronous store"
            )
        super()._check_change(compression)

    def set_optimizer(self, optimizer: Optimizer) -> None:
        self._check()
        require_optimizer(optimizer)
        instructions = for_servers(optimizer)
        # Earlier pushes are updated with the earlier optimizer.
        mx.nd.waitall()
        self._session.set_optimizer(instructions.text, instructions.pickle)
        tell_unsuited(self._compression.coding, optimizer)
        self._optimizer = optimizer
        self._is_native = instructions.native

    def set_updater(self, updater: Updater) -> None:
        self._check()
        _log.warning("dist_async: servers update the weights, so this updater is never called")

    def save_optimizer_states(self, fname: str, dump_optimizer: bool) -> None:
        raise AssertionError("Cannot save states for distributed training")

    def load_optimizer_states(self, fname: str) -> None:
        raise AssertionError("Cannot load states for distributed training")
