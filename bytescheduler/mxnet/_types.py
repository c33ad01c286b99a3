"""Names for what MXNet passes around: it has no types of its own."""

from typing import Any, Dict, List

from bytescheduler._session.keys import Key as Key

Keys = Any  # a Key, or a (nested) list or tuple of them
Array = Any  # mx.nd.NDArray
Arrays = Any  # an Array, a list of them (one for each device), or a list of such lists
RowIds = Any  # an Array or a list of them
Store = Any  # mx.kvstore.KVStoreBase
Handle = Any  # ctypes pointer to a store in C++
Optimizer = Any  # mx.optimizer.Optimizer
Updater = Any  # f(key, received, stored)
Groups = Dict[Key, List[Array]]
