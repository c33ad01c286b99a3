"""The argument grammar of MXNet's stores: keys and values in, the arrays of each key out."""

from typing import List, Tuple

import mxnet as mx

from bytescheduler.mxnet._types import Array, Arrays, Groups, Key, Keys, RowIds


def _legacy(array: Array) -> Array:
    """Return `array` as an mx.nd.NDArray; mx.np arrays refuse operators of the other kind."""
    return array.as_nd_ndarray() if isinstance(array, mx.np.ndarray) else array


def _pairs(keys: Keys, values: Arrays) -> List[Tuple[Key, List[Array]]]:
    if isinstance(keys, (tuple, list)):
        assert len(keys) == len(values), f"{len(keys)} keys for {len(values)} values"
        return [pair for key, value in zip(keys, values) for pair in _pairs(key, value)]
    assert isinstance(keys, (int, str)), f"unexpected type for keys: {type(keys)}"
    arrays = [values] if isinstance(values, mx.nd.NDArray) else list(values)
    for array in arrays:
        assert isinstance(array, mx.nd.NDArray), f"key {keys!r}: want NDArray, got {type(array)}"
    return [(keys, [_legacy(array) for array in arrays])]


def group(keys: Keys, values: Arrays) -> Groups:
    """Return the arrays of each key, one for each device, keys in the order of their first mention.

    Parameters
    ----------
    keys : int, str, or (nested) list or tuple of them
    values : NDArray, list of NDArray, or list of list of NDArray
        As many as there are keys.  A key that appears twice has more devices.

    Raises
    ------
    AssertionError
        Lengths differ, a key or value has another type, or int and str keys are mixed.
    TypeError
        A value is neither an array nor iterable.
    """
    groups: Groups = {}
    for key, arrays in _pairs(keys, values):
        groups.setdefault(key, []).extend(arrays)
    kinds = {isinstance(key, str) for key in groups}
    assert len(kinds) < 2, "inconsistent types of keys detected."
    return groups


def rows(keys: Keys, outs: Arrays, row_ids: RowIds) -> List[Tuple[Key, Array, Array, List[Array]]]:
    """Return for each row_sparse pull: its key, the array, the row ids, and the arrays for copies.

    Raises
    ------
    AssertionError
        As `group`; or `row_ids` is no array or list, or not one for each array.
    """
    assert outs is not None, "row_sparse_pull needs out"
    assert row_ids is not None, "row_sparse_pull needs row_ids"
    row_ids = [row_ids] if isinstance(row_ids, mx.nd.NDArray) else row_ids
    assert isinstance(row_ids, list), "row_ids should be NDArray or list of NDArray"
    shared = len(row_ids) == 1 and isinstance(outs, list)  # then one pull serves all outs
    copies: List[Array] = list(outs[1:]) if shared else []
    wanted = [(k, a) for k, arrays in _pairs(keys, outs[:1] if shared else outs) for a in arrays]
    ids = [array for _, arrays in _pairs(keys, row_ids) for array in arrays]
    assert len(ids) == len(wanted), "the number of row_ids doesn't match the number of values"
    return [(key, out, row_numbers, copies) for (key, out), row_numbers in zip(wanted, ids)]
