"""Python for a server: loads pickled optimizers and updates weights with them."""

import importlib
import os
from typing import Callable, Optional, Sequence, Tuple

__all__ = ["Host"]

_Rates = Tuple[Optional[float], Optional[float], Optional[float]]
_UPDATES = "bytescheduler.mxnet._optimizer.server_updates"
_LONGEST = 900  # characters of an error; the rest of a message needs room too


def _import_updates() -> "type":
    """Import MXNet as a worker would: under another role it would become a server of its own."""
    role = os.environ.pop("DMLC_ROLE", None)
    try:
        return importlib.import_module(_UPDATES).Updates  # type: ignore[no-any-return]
    finally:
        if role is not None:
            os.environ["DMLC_ROLE"] = role


def _describe(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}".strip()
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


class Host:
    """Updates weights for the server in this process; MXNet is imported when it is first needed.

    Called on the server's thread "bs-updater" alone.  Nothing is raised: what fails is said in a
    text, which goes to the worker.

    Parameters
    ----------
    pickles : {"allow-list", "refuse"}
        Whether optimizers may come pickled.
    trusted : sequence of str
        Modules whose classes and functions pickles may use besides MXNet's optimizers.
    say : callable
        Gets a line for the server's log.
    """

    def __init__(self, *, pickles: str, trusted: Sequence[str], say: Callable[[str], None]) -> None:
        self._refuses = pickles == "refuse"
        self._trusted = tuple(trusted)
        self._say = say
        self._updates: object = None

    def set_optimizer(self, pickled: bytes) -> Optional[str]:
        """Let the optimizer in `pickled` make all later updates; return why not, or None."""
        refusal = self._load(pickled)
        if refusal is not None:
            self._say(f"refused an optimizer: {refusal}")
        return refusal

    def _load(self, pickled: bytes) -> Optional[str]:
        if self._refuses:
            return (
                "this server loads no pickled optimizers (BYTESCHEDULER_PICKLES=refuse): use an "
                "optimizer that servers have themselves, or update on the workers: ScheduledKVS "
                "over dist_sync does, and a stock store with MXNET_UPDATE_ON_KVSTORE=0"
            )
        try:
            updates = _import_updates()
        except Exception as error:
            return f"the server's Python cannot import mxnet ({_describe(error)}): install it there"
        # Not before: it needs mxnet's classes.
        from bytescheduler._hosting import pickles

        try:
            optimizer = pickles.load(pickled, self._trusted)
            self._updates = updates(optimizer)
        except pickles.Refused as refused:
            return str(refused)
        except Exception as error:
            return _describe(error)
        self._say(f"updates weights by {type(optimizer).__module__}.{type(optimizer).__name__}")
        return None

    def update(
        self,
        key: int,
        about: str,
        dtype: int,
        gradient: int,
        weights: int,
        size_bytes: int,
        rates: _Rates,
    ) -> Optional[str]:
        """Update the weights at an address in place; return what failed, or None."""
        try:
            self._updates.update(  # type: ignore[attr-defined]
                key, about, dtype, (gradient, weights, size_bytes), rates
            )
        except Exception as error:
            self._say(f"an update of key {about or key} failed: {_describe(error)}")
            return _describe(error)
        return None
