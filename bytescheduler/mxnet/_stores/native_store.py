"""The native back end: MXNet's semantics on top of the engine's two operations."""

import functools
import logging
from contextlib import nullcontext
from operator import index as as_int
from typing import Dict, Iterable, List, Mapping, Optional, Set, Tuple

import mxnet as mx
from mxnet.base import KVStoreHandle

from bytescheduler._compression.params import Compression, by_coding
from bytescheduler._native import Coding
from bytescheduler._session.keys import EngineKeys
from bytescheduler.mxnet._arrays.compression import (
    check_change,
    check_compressible,
    check_keys,
    compression_from,
)
from bytescheduler.mxnet._arrays.sparse import is_sparse, wanted_rows
from bytescheduler.mxnet._arrays.tensor import FLOAT32, Tensor
from bytescheduler.mxnet._functions import open_copier
from bytescheduler.mxnet._optimizer.updater import make_updater, require_alike
from bytescheduler.mxnet._sessions.tensor_session import TensorSession, Usual
from bytescheduler.mxnet._stores.agreement import Agreement
from bytescheduler.mxnet._stores.arguments import group, rows
from bytescheduler.mxnet._stores.gluon_names import GluonNames
from bytescheduler.mxnet._stores.nesterov import Nesterov
from bytescheduler.mxnet._stores.rates import rates_of, tell_summary, tell_unsuited
from bytescheduler.mxnet._stores.rescaling import Rescaling
from bytescheduler.mxnet._stores.scaled_steps import ScaledSteps, check_unscaled, scaling_trainer
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

Outs = List[Tuple[Tensor, List[Array]]]
Pulls = List[Tuple[Tensor, List[int], List[Array]]]  # some rows of tensors


class NativeStore:
    """See `Backend`.  Every method that takes keys checks all of them before it sends anything.

    The updater runs on every worker after the sum has arrived, as ordinary engine work.  So it must
    be deterministic and the same on all workers.  float16 is summed in float16.  Once an optimizer
    with multi_precision was set, it is summed, stored and updated in float32.

    Parameters
    ----------
    session : TensorSession
        Owned from now on.
    inner : KVStore, optional
        The stock store; its own data path is not used.
    kind : str
        The type that the store has for MXNet; empty: that of `inner`.
    records : bool
        Whether a timeline is recorded, which may be made a profile of.
    """

    updates_here = True  # so the workers must agree on an updater

    def __init__(
        self,
        session: TensorSession,
        inner: Optional[Store] = None,
        *,
        kind: str = "",
        records: bool = False,
    ) -> None:
        self._session = session
        self._inner = inner
        self._copier = open_copier()
        self._type = kind or ("dist_sync" if inner is None else str(inner.type))
        self._tensors: Dict[Key, Tensor] = {}
        self._usual: Usual = {}
        self._told_sparse: Set[Key] = set()
        self._compression = Compression()
        self._nesterov = Nesterov(self._compression)
        self._has_coded = False  # something was pushed with it
        self._has_told = True  # how much of the model it concerns
        self._judges = False  # the next push waits until all workers have said how they compress
        self._compares = False  # the coding is compared with other workers', once all can
        self._is_wide = False  # half precision travels as float32
        self._widens = False  # present keys travel as float32 from the next joint call on
        self._closed = False
        self._scaled = ScaledSteps()
        self._keys = EngineKeys(session)
        self._gluon = GluonNames(self._show, finds_order=records)
        self._agreement = Agreement(
            session, self._copier, lambda name: self._keys.bookkeeping(f"{name} of optimizer")
        )
        self._rescaling = Rescaling(self._agreement.share)
        self.updater: Updater = None
        self._followed: Optimizer = None  # its rates; the updater's, or a Trainer's
        self.handle: Handle = getattr(inner, "handle", None) or KVStoreHandle()

    def _check(self) -> None:
        if self._closed:
            raise mx.base.MXNetError("the store was closed")
        self._session.check()

    @property
    def is_p3(self) -> bool:
        return False

    @property
    def type(self) -> str:
        return self._type

    @property
    def rank(self) -> int:
        self._check()
        return self._session.rank

    @property
    def num_workers(self) -> int:
        self._check()
        return self._session.num_workers

    def retune(self, partition_bytes: int, credit_bytes: int) -> None:
        self._check()
        self._session.retune(partition_bytes, credit_bytes)

    # -- keys ----------------------------------------------------------------------------------

    def _values(self, key: Keys, value: Arrays) -> Groups:
        groups = self._group(key, value)
        for name, arrays in groups.items():
            if not arrays:
                raise mx.base.MXNetError(f"key {name!r}: an empty list, want at least one array")
        return groups

    def _group(self, key: Keys, value: Arrays) -> Groups:
        self._check()
        groups = group(key, value)
        declared = next(iter(self._tensors), None)
        for wanted in groups:
            if declared is not None and isinstance(declared, str) is not isinstance(wanted, str):
                raise mx.base.MXNetError(
                    f"key {wanted!r}: this store's keys are {type(declared).__name__}, "
                    "and int and str cannot be mixed"
                )
        return groups

    def _tensor(self, key: Key) -> Tensor:
        tensor = self._tensors.get(key)
        if tensor is None:
            raise mx.base.MXNetError(
                f"key {key!r} has not been initialised: call init or broadcast"
            )
        return tensor

    def _declare(self, groups: Groups) -> List[Tensor]:
        for key in groups:
            if key in self._tensors or len(groups[key]) > 1:
                raise mx.base.MXNetError(
                    f"duplicate init of key {key!r}: this store has it already; each Trainer or "
                    "Module needs a store of its own, such as ScheduledKVS() (stock servers take "
                    "one of each process: let one Trainer have the parameters of all nets there)"
                )
        numbers = self._keys.of(groups)
        tensors = [self._new_tensor(key, numbers[key], arrays[0]) for key, arrays in groups.items()]
        for index, tensor in enumerate(tensors, len(self._tensors)):
            tensor.position = index if isinstance(tensor.key, str) else tensor.key
        return tensors

    def _show(self, key: Key, name: str) -> None:
        self._session.show(self._tensors[key].engine_key, name)

    def _new_tensor(self, key: Key, engine_key: int, like: Array) -> Tensor:
        tensor = Tensor(key, engine_key, like, self._copier, self._is_wide)
        if tensor.is_narrow and self._travels_wide(tensor):
            return Tensor(key, engine_key, like, self._copier, wide=True)
        return tensor

    def _coding_of(self, tensor: Tensor) -> Optional[Coding]:
        return self._compression.coding_for(tensor.own_bytes, tensor.dtype.size_bytes)

    def _travels_wide(self, tensor: Tensor) -> bool:
        """Return whether a tensor of half precision travels as float32."""
        return self._is_wide or (
            self._compression.widens and self._coding_of(tensor) is not None and not tensor.sparse
        )

    def _rows_of(self, tensor: Tensor) -> Tensor:
        """Return a new vector for how many workers send which row of `tensor`."""
        none = mx.nd.zeros((tensor.shape[0],))
        rows = Tensor(tensor.key, self._keys.beside(tensor.key, "rows"), none, self._copier)
        rows.take(none)
        return rows

    # -- values --------------------------------------------------------------------------------

    def init(self, key: Keys, value: Arrays) -> None:
        groups = self._values(key, value)
        self._init(groups, self._declare(groups))

    def _init(self, groups: Groups, tensors: List[Tensor]) -> None:
        self._widen()
        with mx.autograd.pause():
            for tensor in tensors:
                if self._session.rank == 0:
                    tensor.take(groups[tensor.key][0])
            counted = [t for t in tensors if t.sparse and self._session.counts_rows]
            rows = {t.key: self._rows_of(t) for t in counted}
            notes = self._agreement.undeclared() if self.updates_here else []
            self._broadcast([*tensors, *rows.values(), *notes])
            self._agreement.is_declared = self.updates_here
            self._compare_codings()
            self.agree_on_rescaling(again=False)
            for tensor in tensors:
                tensor.rows = rows.get(tensor.key)
                self._tensors[tensor.key] = tensor
                if self.updater is not None:
                    tensor.store_apart()
                self._note_usual(tensor)
            self._gluon.declare(groups)

    def agree_on_rescaling(self, *, again: bool = True) -> None:
        """Let workers have another rescale_grad from now on, if all have one; all call it.

        Blocks.
        """
        if self.updates_here and self._agreement.is_declared and self._session.num_workers > 1:
            self._rescaling.agree(self.updater, again=again)

    def _note_usual(self, tensor: Tensor) -> None:
        is_wide = self._is_wide and tensor.is_narrow
        if tensor.is_usual and not self._compression.is_on and not is_wide:
            self._usual[tensor.key] = tensor.rounds

    def _broadcast(self, tensors: List[Tensor]) -> None:
        def is_coded(tensor: Tensor) -> bool:
            return tensor.code == FLOAT32 and self._coding_of(tensor) is not None

        # Keys are cut for their coding; two bits take any partitions.
        coded = list(filter(is_coded, tensors)) if self._compression.widens else []
        if len(coded) < len(tensors):
            taken = set(map(id, coded))
            self._session.broadcast([tensor for tensor in tensors if id(tensor) not in taken])
        for coding, alike in by_coding(coded, self._coding_of).items():
            self._session.broadcast(alike, coding=coding)

    def broadcast(self, key: Keys, value: Arrays, out: Arrays, priority: int) -> None:
        groups, outs = self._values(key, value), self._group(key, out)
        tensors = self._declare(groups)
        for tensor in tensors:
            for array in outs[tensor.key]:
                tensor.check_out(array)
        self._init(groups, tensors)
        with mx.autograd.pause():
            self._copy_out([(self._tensor(k), arrays) for k, arrays in outs.items()])

    def push(self, key: Keys, value: Arrays, priority: int) -> None:
        priority = as_int(priority)
        groups = self._values(key, value)
        values = self._checked(groups)
        self._settle_if_held(groups)
        if self._widen():
            values = self._checked(groups)
        with mx.autograd.pause():
            self._send(values, priority)

    def pull(self, key: Keys, out: Arrays, priority: int, ignore_sparse: bool) -> None:
        assert out is not None
        as_int(priority)
        outs = self._checked_outs(self._group(key, out), ignore_sparse)
        with mx.autograd.pause():
            self._copy_out(outs)

    def pushpull(self, key: Keys, value: Arrays, out: Arrays, priority: int) -> None:
        self._check()
        priority = as_int(priority)
        if self._scaled:
            self._settle_if_held(group(key, value))
        arguments = (self._copier, self._usual, key, value, out, priority, self.updater is None)
        if not self._widens and self._factor() == 1.0 and self._session.exchange(*arguments):
            rounds = len(key) if isinstance(key, (list, tuple)) else 1
            self._agreement.pushed(rounds, self.updater, rescales=self._rescales)
            if self.updater is not None:
                self._update_usual(key, value if out is None else out)
            return
        groups = self._values(key, value)
        out_groups = None if out is None else self._group(key, out)
        values, outs = self._checked_both(groups, out_groups)
        if self._widen():
            values, outs = self._checked_both(groups, out_groups)
        with mx.autograd.pause():
            self._send(values, priority)
            self._copy_out(outs)

    def _checked_both(self, groups: Groups, out_groups: Optional[Groups]) -> Tuple[Outs, Outs]:
        values = self._checked(groups)
        if out_groups is None:
            return values, values
        return values, self._checked_outs(out_groups, ignore_sparse=False)

    def _checked(self, groups: Groups) -> Outs:
        check_unscaled(self._compression)
        if self.updates_here and not self._has_told:  # before any key is updated
            tensors, optimizer = self._tensors.values(), self._followed
            check_keys(tensors, self._coding_of, self._compression, optimizer)
        pairs = [(self._tensor(key), arrays) for key, arrays in groups.items()]
        self._nesterov.check(self.updater, pairs)
        for tensor, arrays in pairs:
            for array in arrays:
                tensor.check(array)
            if self._coding_of(tensor) is not None:
                check_compressible(tensor, arrays, self._compression)
        # The order is the stock store's: by number, or by order of init.  Under NaiveEngine each
        # round ends before the next begins, so workers that disagree would wait for each other.
        return sorted(pairs, key=lambda pair: pair[0].position)

    def _checked_outs(self, groups: Groups, ignore_sparse: bool) -> Outs:
        pairs = []
        for key, arrays in groups.items():
            tensor = self._tensor(key)
            taken = [a for a in arrays if not (ignore_sparse and is_sparse(a))]
            if len(taken) < len(arrays) and key not in self._told_sparse:
                self._told_sparse.add(key)
                _log.warning("pull of key %r skips arrays that are row_sparse", key)
            for array in taken:
                tensor.check_out(array)
            pairs.append((tensor, taken))
        return pairs

    def _send(self, values: Outs, priority: int) -> None:
        if not self._has_told:
            self._has_told = True
            tell_summary(self._compression, self._session.rank, self._tensors.values())
        self._declare_rows(values)
        factor = self._factor()
        for tensor, arrays in values:
            tensor.gather(arrays)
            if factor != 1.0:
                tensor.send[:] *= factor
            self._nesterov.apply(tensor, self.updater)
            coding = self._coding_of(tensor)
            self._has_coded |= coding is not None
            rates = rates_of(coding, self._followed, tensor.key)
            self._session.push_pull(tensor, priority, coding, rates)
            if tensor.rows is not None:
                self._session.push_pull(tensor.rows, priority)
            self._agreement.pushed(1, self.updater, rescales=self._rescales)
        if self._judges:
            # Where workers differ, servers and hosts may wait for sums that never come, and a sum
            # of small tensors would change weights before the error.
            self._judges = False
            self._session.judge()
        # Behind all pushes: an updater that waits for its sum must hold back none of them.
        if self.updater is not None:
            self._apply([tensor for tensor, _ in values])

    @property
    def _rescales(self) -> bool:
        """True if workers may differ in rescale_grad; codes are made of gradients as pushed."""
        return self._rescaling.is_known and not self._compression.is_on

    def _factor(self) -> float:
        return self._rescaling.factor(self.updater) if self._rescales else 1.0

    def _declare_rows(self, values: Outs) -> None:
        """Prepare dense keys for their first row_sparse push; blocks until rank 0 does so too."""
        new = [t for t, arrays in values if t.rows is None and any(map(is_sparse, arrays))]
        if new:
            rows = [self._rows_of(tensor) for tensor in new]
            self._session.broadcast(rows)
            for tensor, its_rows in zip(new, rows):
                tensor.rows = its_rows
                self._usual.pop(tensor.key, None)

    def _update_usual(self, key: Keys, out: Arrays) -> None:
        """Update what `exchange` has sent, behind all of it, and copy it out."""
        keys, outs = (key, out) if isinstance(key, (list, tuple)) else ([key], [out])
        pairs = [(self._tensors[name], arrays) for name, arrays in zip(keys, outs)]
        pairs.sort(key=lambda pair: pair[0].position)
        with mx.autograd.pause():
            self._apply([tensor for tensor, _ in pairs])
            for tensor, arrays in pairs:
                array = arrays[0] if isinstance(arrays, (list, tuple)) else arrays
                if self._scaled.holds(tensor.key):
                    self._scaled.then(functools.partial(tensor.copy_out, [array]))
                else:
                    self._copier.copy(tensor.stored_handle, array.handle.value)

    def _apply(self, tensors: List[Tensor]) -> None:
        """Update with the sums that arrive; a Trainer with AMP says when, and whether."""
        trainer = scaling_trainer(getattr(self.updater, "optimizer", None))
        for tensor in tensors:
            if trainer is None:
                self._update(tensor)
            else:
                update = functools.partial(self._update, tensor)
                self._scaled.hold(trainer, tensor.key, [tensor.recv], update)

    def _settle_if_held(self, keys: Iterable[Key]) -> None:
        """End AMP's step before the sums that it is judged by are those of the next."""
        if any(map(self._scaled.holds, keys)):
            self._scaled.settle()

    def _update(self, tensor: Tensor) -> None:
        # Stock stores give an updater str keys as bytes.
        key = tensor.key.encode() if isinstance(tensor.key, str) else tensor.key
        common = self._rescaling.common(self.updater) if self._rescales else nullcontext()
        with common, self._nesterov.plain(tensor, self.updater):
            self.updater(key, tensor.received, tensor.stored)

    def _copy_out(self, outs: Outs) -> None:
        for tensor, arrays in outs:
            if self._scaled.holds(tensor.key):
                self._scaled.then(functools.partial(tensor.copy_out, arrays))
            else:
                tensor.copy_out(arrays)

    def row_sparse_pull(self, key: Keys, out: Arrays, priority: int, row_ids: RowIds) -> None:
        pulls = self._checked_rows(key, out, row_ids)
        with mx.autograd.pause():
            self._copy_rows_out(pulls)

    def _checked_rows(self, key: Keys, out: Arrays, row_ids: RowIds) -> Pulls:
        pulls = []
        for name, array, ids, copies in rows(key, out, row_ids):
            self._group(name, [array, *copies])
            tensor = self._tensor(name)
            for target in (array, *copies):
                if not is_sparse(target):
                    raise mx.base.MXNetError(
                        f"key {name!r}: row_sparse_pull needs row_sparse arrays to pull into, "
                        f"got a {target.stype} one"
                    )
                tensor.check_out(target)
            pulls.append((tensor, wanted_rows(name, ids, tensor.shape[0]), [array, *copies]))
        return pulls

    @staticmethod
    def _copy_rows_out(pulls: Pulls) -> None:
        for tensor, wanted, targets in pulls:
            for target in targets:
                tensor.copy_rows_out(wanted, target)

    # -- updates -------------------------------------------------------------------------------

    def set_gradient_compression(self, params: Mapping[str, object]) -> None:
        self._check()
        compression = compression_from(params)
        if not self._session.leaves_small_plain:
            compression = compression._replace(least_bytes=0)
        self._check_change(compression)
        nesterov = Nesterov(compression, self.updater)
        tell_unsuited(compression.coding, getattr(self.updater, "optimizer", None))
        if compression.coding is not None:
            self._session.compress(params, compression.coding, self._compressible())
        self._has_told &= self._compression.coding is not None or compression.coding is None
        self._compression, self._nesterov = compression, nesterov
        self._widens |= any(map(self._travels_wide, self._narrow()))
        self._compares = not self._session.compares_codings
        self._compare_codings()
        noted = compression if self._session.compares_codings else compression.without_coding()
        self._agreement.compressed(noted)
        self._judges = noted.is_on
        self._usual.clear()
        if not self._session.counts_rows:
            for tensor in self._tensors.values():
                tensor.rows = None  # only dense arrays can be pushed from now on: all rows

    def _check_change(self, compression: Compression) -> None:
        """Raise MXNetError if compression cannot change to `compression` any more."""
        coded = self._has_coded or self._nesterov.has_begun
        for_good = not self._session.leaves_small_plain
        check_change(self._compression, compression, coded=coded, for_good=for_good)

    def _compare_codings(self) -> None:
        """Raise if workers compress otherwise than others; before the first key they cannot say."""
        coding = self._compression.coding
        if self._compares and coding is not None and self._agreement.is_declared:
            self._compares = False
            self._agreement.same_coding(coding)

    def _compressible(self) -> List[Tensor]:
        tensors = sorted(self._tensors.values(), key=lambda tensor: tensor.position)
        agreed = self._agreement.tensors() if self._agreement.is_declared else []
        return [*(t for t in tensors if t.dtype.name == "float32"), *agreed]

    def set_optimizer(self, optimizer: Optimizer) -> None:
        self.set_updater(make_updater(optimizer))

    def set_updater(self, updater: Updater) -> None:
        self._check()
        if updater is not None and not callable(updater):
            raise TypeError(f"want a function of key, gradient and weight, got {updater!r}")
        if self.num_workers > 1:
            require_alike(updater)
        self._nesterov.check(updater)
        tell_unsuited(self._compression.coding, getattr(updater, "optimizer", None))
        self._use(updater)
        self._agreement.changed()

    def follow(self, optimizer: Optimizer) -> None:
        self._followed = optimizer

    def _use(self, updater: Updater) -> None:
        self.updater = updater
        self._nesterov.begin_anew()
        self._usual.clear()
        optimizer = self._followed = getattr(updater, "optimizer", None)
        with mx.autograd.pause():
            if getattr(optimizer, "multi_precision", False):
                self._is_wide = self._widens = True
            for tensor in self._tensors.values():
                tensor.store_apart()
                if updater is not None:  # else the value is no longer the last sum, nor updated
                    self._note_usual(tensor)

    def _widen(self, *, met: bool = False) -> bool:
        """Let half precision travel as float32 from now on, if so decided; return whether.

        Blocks until all workers do so.  So this belongs into calls that all make alike.  Unless
        they have `met` at a barrier, rank 0 alone may have set the optimizer, which is then said
        as soon as the others push.
        """
        if not self._widens:
            return False
        self._widens = False
        narrow = [tensor for tensor in self._narrow() if self._travels_wide(tensor)]
        if not narrow:
            return True
        if not met:
            self._agreement.require()
        with mx.autograd.pause():
            wide = [t.widened(self._keys.beside(t.key, "float32")) for t in narrow]
            self._broadcast(wide)
            for before, tensor in zip(narrow, wide):
                self._tensors[tensor.key] = tensor
                if before.is_apart:
                    tensor.store_apart()
            self._gluon.repeat(tensor.key for tensor in wide)
        return True

    def _narrow(self) -> List[Tensor]:
        return [tensor for tensor in self._tensors.values() if tensor.is_narrow]

    def is_capable(self, capability: str) -> bool:
        if capability.lower() == mx.kvstore.KVStoreBase.OPTIMIZER:
            return True
        raise ValueError(f"Unknown capability: {capability}")

    def save_optimizer_states(self, fname: str, dump_optimizer: bool) -> None:
        assert self.updater is not None, "no optimizer was set, so there are no states to save"
        self._nesterov.tell_unsaved()
        with open(fname, "wb") as file:
            file.write(self.updater.get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str) -> None:
        assert self.updater is not None, "set an optimizer before loading its states"
        with open(fname, "rb") as file:
            self.updater.set_states(file.read())
        self._nesterov.begin_anew()
        self._agreement.loaded()

    # -- the job -------------------------------------------------------------------------------

    def barrier(self) -> None:
        self._check()
        self._session.barrier()
        if not self.updates_here:
            return
        optimizer = self._agreement.meet(self.updater)
        if optimizer is not None:
            self._use(make_updater(optimizer))
        if not self._rescaling.is_known:
            self.agree_on_rescaling()
        self._widen(met=True)

    def send_command_to_servers(self, head: int, body: str) -> None:
        self._check()
        if self._inner is not None:
            self._inner._send_command_to_servers(head, body)

    def close(self, drain_s: Optional[float]) -> None:
        if not self._closed:
            self._closed = True
            self._session.close(drain_s)
            self._keys.give_back(self._session.is_idle)

    def drop(self) -> None:
        if not self._closed:
            self._closed = True
            self._session.drop()
            self._keys.give_back(self._session.is_idle)
