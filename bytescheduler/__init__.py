"""Urgent gradients first: an MXNet KVStore with a native engine and its own parameter servers.

Importing this starts nothing and imports no framework; ``bytescheduler.mxnet`` does the latter.
"""

from bytescheduler.errors import Closed, ConfigError, Error, PeerLost, Timeout, UsageError

from bytescheduler import _native  # isort: skip  # after the errors, which the extension imports

__version__: str = _native.version()

__all__ = ["Closed", "ConfigError", "Error", "PeerLost", "Timeout", "UsageError", "__version__"]
