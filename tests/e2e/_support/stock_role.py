"""Stock MXNet's scheduler node or server, without the three seconds of `import mxnet`.

It is the same library, and the same controller for commands, which is imported when one comes.
"""

import ctypes
import importlib.util
import os
import pathlib
import sys

spec = importlib.util.find_spec("mxnet")
assert spec is not None
assert spec.origin is not None
lib = ctypes.CDLL(str(pathlib.Path(spec.origin).with_name("libmxnet.so")), ctypes.RTLD_LOCAL)
lib.MXGetLastError.restype = ctypes.c_char_p
handle = ctypes.c_void_p()
controllers = []


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def control(command: int, body: bytes, unused: object) -> None:
    """Handle a worker's command as the server of `import mxnet` does."""
    if not controllers:
        os.environ["DMLC_ROLE"] = "worker"  # or the import starts another server
        import mxnet
        from mxnet.kvstore.kvstore_server import KVStoreServer

        os.environ["DMLC_ROLE"] = "server"
        controllers.append(KVStoreServer(mxnet.kvstore.KVStore(handle))._controller())
    controllers[0](command, body, unused)


def check(code: int) -> None:
    """End the process if MXNet's call failed."""
    if code != 0:
        sys.exit(lib.MXGetLastError().decode())


check(lib.MXKVStoreCreate(b"dist", ctypes.byref(handle)))
check(lib.MXKVStoreRunServer(handle, control, None))
