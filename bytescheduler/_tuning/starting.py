"""Starts the tuner where a setting says so."""

from typing import TYPE_CHECKING, Callable, Optional, Tuple

from bytescheduler._native import Worker, values
from bytescheduler._process.say import say

if TYPE_CHECKING:
    from bytescheduler._tuning.tuner import Tuner

__all__ = ["start_tuner"]

_TALKATIVE = ("info", "debug")  # log levels


def start_tuner(worker: Worker, declared: Callable[[], Tuple[int, int]]) -> "Optional[Tuner]":
    """Tune the job of `worker`, rank 0, if BYTESCHEDULER_TUNING says so.

    It does so by default too, but not away from numbers that were set by hand, and then tells of
    what it found only.
    `declared` says how many tensors there are, and their bytes; any thread calls it.
    """
    settings = {row.name: row.value for row in values()}
    by_hand = {row.name for row in values() if row.origin != "default"}
    wanted = settings["BYTESCHEDULER_TUNING"]
    asked = "BYTESCHEDULER_TUNING" in by_hand
    pieces = ("BYTESCHEDULER_PARTITION", "BYTESCHEDULER_CREDIT")
    if wanted == "off" or (not asked and by_hand.intersection(pieces)):
        return None
    from bytescheduler._tuning.advisor import LIBRARY, has_library
    from bytescheduler._tuning.tuner import Tuned, Tuner

    def tell(text: str) -> None:
        if settings["BYTESCHEDULER_LOG_LEVEL"] in _TALKATIVE:
            say(f"bytescheduler: {text}")

    def remark(text: str) -> None:
        if asked or settings["BYTESCHEDULER_LOG_LEVEL"] == "debug":
            tell(text)

    def complain(text: str) -> None:
        if settings["BYTESCHEDULER_LOG_LEVEL"] not in ("error", "off"):
            say(f"bytescheduler: {text}")

    warn = complain if asked else remark

    if not has_library():  # before any point is tried
        warn(f"tuning ends: there is no bayes_opt: pip install {LIBRARY}; the job goes on as it is")
        return None

    tuned = Tuned(
        by_hand=bool(by_hand.intersection(pieces)),
        again=wanted == "on",
        root=settings["DMLC_PS_ROOT_URI"],
        cache=settings["BYTESCHEDULER_TUNING_CACHE"],
        declared=declared,
        say=tell,
        remark=remark,
        warn=warn,
        complain=complain,
    )
    try:
        return Tuner(worker, tuned)
    except RuntimeError as error:  # no more threads
        warn(f"tuning ends: {error}; the job goes on as it is")
        return None
