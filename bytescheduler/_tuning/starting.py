"""The start of the tuner, if the settings ask for it."""

from typing import TYPE_CHECKING, Callable, Optional, Tuple

from bytescheduler._native import Worker
from bytescheduler._process.say import say
from bytescheduler._settings import Settings

if TYPE_CHECKING:
    from bytescheduler._tuning.tuner import Tuner

__all__ = ["start_tuner"]


def start_tuner(worker: Worker, declared: Callable[[], Tuple[int, int]]) -> "Optional[Tuner]":
    """Tune the job of `worker`, rank 0, if BYTESCHEDULER_TUNING says so.

    By default it tunes only if the user set neither partition nor credit, and reports only results.
    Where a library makes the sums, its operations have sizes of their own.
    `declared` returns the number of tensors and their bytes; any thread may call it.
    """
    settings = Settings.read()
    asked = settings.tuning_is_given
    if settings.sums_by_library or settings.tuning == "off":
        return None
    if not asked and settings.partitions_are_given:
        return None
    from bytescheduler._tuning.advisor import LIBRARY, has_library
    from bytescheduler._tuning.tuner import Tuned, Tuner

    def tell(text: str) -> None:
        if settings.is_talkative:
            say(f"bytescheduler: {text}")

    def remark(text: str) -> None:
        if asked or settings.log_level == "debug":
            tell(text)

    def complain(text: str) -> None:
        if settings.log_level not in ("error", "off"):
            say(f"bytescheduler: {text}")

    warn = complain if asked else remark

    if not has_library():  # before any point is tried
        warn(f"tuning ends: there is no bayes_opt: pip install {LIBRARY}; the job goes on as it is")
        return None

    tuned = Tuned(
        by_hand=settings.partitions_are_given,
        again=settings.tuning == "on",
        root=settings.root_host,
        cache=settings.tuning_cache,
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
