"""Two-bit compression on stock servers: the wrapped store compresses whole tensors by itself."""

from typing import Any, Dict, Iterable, List, Mapping, Tuple

import mxnet as mx
import numpy as np

from bytescheduler.mxnet._arguments import group
from bytescheduler.mxnet._passthrough import PassThrough
from bytescheduler.mxnet._sparse import is_sparse
from bytescheduler.mxnet._types import Array, Arrays, Groups, Key, Keys, RowIds, Store

# Higher integer keys may hold what pieces needed before the store was given back.
_MAX_KEY = 65535


def check_movable(values: List[Tuple[Key, Array]]) -> None:
    """Raise `MXNetError` if a new store could not take these keys with their values."""
    numbers_of([key for key, _ in values], {})
    for key, value in values:
        if value.dtype != np.float32 or is_sparse(value):
            kind = "row_sparse" if is_sparse(value) else np.dtype(value.dtype).name
            raise mx.base.MXNetError(
                f"key {key!r} is {kind}, and two bits an element are for dense float32 only: "
                "cast it, or do without set_gradient_compression"
            )


def numbers_of(keys: Iterable[Key], taken: Mapping[Key, int]) -> Dict[Key, int]:
    """Return the stock store's numbers of new `keys`, beside those that are taken.

    Raises
    ------
    MXNetError
        A key is taken, out of range, or of another kind than the others.
    """
    numbers: Dict[Key, int] = {}
    known = dict(taken)
    for key in keys:
        if known and isinstance(key, str) is not isinstance(next(iter(known)), str):
            raise mx.base.MXNetError(f"key {key!r}: int and str keys cannot be mixed")
        if key in known:
            raise mx.base.MXNetError(f"duplicate init of key {key!r}")
        number = len(known) if isinstance(key, str) else key
        if not 0 <= number <= _MAX_KEY:
            raise mx.base.MXNetError(
                f"key {key!r}: with compression on stock servers want 0 <= key <= {_MAX_KEY}"
            )
        numbers[key] = known[key] = number
    return numbers


class CompressedStore(PassThrough):
    """See `Backend`.  For a store that has carried pieces, and therefore knows integer keys only.

    Names become numbers in the order of their init, which is what the stock store makes of them
    too.  A pushpull is a push and a pull, as the stock store compresses no pushpull.

    The stock store sends a push without waiting for an earlier pull of its key, which then gives
    what the push made.  So both go through one array for each key: MXNet's engine keeps their
    order, and nobody waits.

    Parameters
    ----------
    inner : KVStore
        A synchronous dist store of MXNet without keys below 65536 that are in use.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._numbers: Dict[Key, int] = {}
        self._relays: Dict[Key, Array] = {}  # of the keys that are compressed: dense float32

    def _declare(self, keys: Keys, values: Arrays) -> None:
        """Give each key of a first value its number."""
        groups = group(keys, values)
        self._numbers.update(numbers_of(groups, self._numbers))
        for key, arrays in groups.items():
            if arrays and arrays[0].dtype == np.float32 and not is_sparse(arrays[0]):
                # The stock store sends from the CPU, whatever context is the current one.
                self._relays[key] = mx.nd.empty(arrays[0].shape, ctx=mx.cpu(), dtype=np.float32)

    def _numbered(self, keys: Keys) -> Any:  # noqa: ANN401 - nested as the keys are
        if isinstance(keys, (list, tuple)):
            return [self._numbered(key) for key in keys]
        assert isinstance(keys, (int, str)), f"unexpected type for keys: {type(keys)}"
        if keys not in self._numbers:
            raise mx.base.MXNetError(
                f"key {keys!r} has not been initialised: call init or broadcast"
            )
        return self._numbers[keys]

    def _groups(self, keys: Keys, arrays: Arrays) -> Groups:
        groups = group(keys, arrays)  # first what is wrong with the arguments as such
        self._numbered(keys)
        return groups

    def _pushed(self, key: Key, arrays: List[Array]) -> List[Array]:
        """Return `arrays`, the first of them through the key's own array."""
        relay = self._relays.get(key)
        if relay is None or not arrays:
            return arrays
        first, *others = arrays
        if is_sparse(first) or (first.shape, first.dtype) != (relay.shape, relay.dtype):
            return arrays  # the stock store says what is wrong with them
        first.copyto(relay)
        # One array alone is used as it is; several are summed on the devices that they are on.
        return [relay if not others else relay.as_in_context(first.context), *others]

    def init(self, key: Keys, value: Arrays) -> None:
        self._declare(key, value)
        super().init(self._numbered(key), value)

    def broadcast(self, key: Keys, value: Arrays, out: Arrays, priority: int) -> None:
        self.init(key, value)
        self.pull(key, out, priority, ignore_sparse=True)

    def push(self, key: Keys, value: Arrays, priority: int) -> None:
        groups = self._groups(key, value)
        arrays = [self._pushed(key, values) for key, values in groups.items()]
        super().push(self._numbered(list(groups)), arrays, priority)

    def pull(self, key: Keys, out: Arrays, priority: int, ignore_sparse: bool) -> None:
        assert out is not None, "pull needs out"
        groups = self._groups(key, out)
        relays = {
            k: self._relays[k]
            for k, outs in groups.items()
            if outs and k in self._relays and not any(map(is_sparse, outs))
        }
        arrays = [[relays[k]] if k in relays else outs for k, outs in groups.items()]
        super().pull(self._numbered(list(groups)), arrays, priority, ignore_sparse)
        for k, relay in relays.items():
            for each in groups[k]:
                relay.copyto(each)

    def pushpull(self, key: Keys, value: Arrays, out: Arrays, priority: int) -> None:
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority, ignore_sparse=True)

    def row_sparse_pull(self, key: Keys, out: Arrays, priority: int, row_ids: RowIds) -> None:
        assert out is not None, "row_sparse_pull needs out"
        assert row_ids is not None, "row_sparse_pull needs row_ids"
        super().row_sparse_pull(self._numbered(key), out, priority, row_ids)
