"""Urgent gradients first: for PyTorch, TensorFlow and MXNet, with an engine and servers.

Importing this starts nothing and imports no framework; ``bytescheduler.mxnet``,
``bytescheduler.torch`` and ``bytescheduler.tensorflow`` each import their own.
"""

from bytescheduler.errors import Closed, ConfigError, Error, PeerLost, Timeout, UsageError

from bytescheduler import _native  # isort: skip  # after the errors, which the extension imports

__version__: str = _native.version()

__all__ = ["Closed", "ConfigError", "Error", "PeerLost", "Timeout", "UsageError", "__version__"]
