"""Says where to look next: Bayesian optimization, in a process of its own.

The library takes a second to load and tenths of a second to think, which a training process cannot
spare; here it has what the machine does not need.  `Advisor` is the end in the training process;
``python -m bytescheduler._tuning.advisor`` is the other: each line of its input is a question, each
line of its output the answer, both JSON.
"""

import contextlib
import importlib.util
import json
import math
import os
import select
import signal
import sys
import time
from typing import IO, Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from bytescheduler._process.child import die_with
from bytescheduler._tuning.points import CREDITS, PARTITIONS, Rungs, on_rungs

__all__ = [
    "LIBRARY",
    "Advice",
    "Advisor",
    "AdvisorError",
    "AdvisorSlow",
    "Seen",
    "has_library",
]

LIBRARY = "bayesian-optimization==1.4.3"

# So many rungs from a point that was no slower than most, a point is tried.
REACH = 2
# And a point is no slower than most if it takes at most so much more time than the best.
_GOOD = 1.1
_SLICE_MS = 100
_PATIENCE_S = 120.0
# A tenth of what others get: it needs a second or two, and should have them at last on a machine
# whose processors are all busy.
_NICE = 10


Floats = Any  # np.ndarray
Process = Any  # sklearn's GaussianProcessRegressor


class Seen(NamedTuple):
    """A point that was measured."""

    at: Rungs
    seconds: float  # a step
    noise: float  # standard error of that, in seconds


class Advice(NamedTuple):
    """What the advisor makes of it all."""

    next: Rungs
    gain: float  # that is to be expected there, as a share of the best step
    best: int  # the position among those seen of what is likely the fastest


class AdvisorError(Exception):
    """There is no advice; says why."""


class AdvisorSlow(AdvisorError):
    """There is none yet: others need the processors."""


def has_library() -> bool:
    """Whether there is what an advisor thinks with; nothing is loaded."""
    return importlib.util.find_spec("bayes_opt") is not None


class Advisor:
    """The process that thinks, from here.  `close` ends it; confined to one thread.

    Parameters
    ----------
    stopped : callable
        Whether to wait no more.
    """

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped
        self._pid = 0
        self._text = b""

    def start(self) -> None:
        """Start the process, which takes a second to be ready to think; call it once, first.

        Raises
        ------
        AdvisorError
            It cannot be started.
        """
        words = [sys.executable, "-m", __name__, str(os.getpid())]
        ends: List[int] = []
        try:
            for _ in range(2):
                ends += os.pipe()
            # Not fork, which makes MXNet stop its engine; and of ours only these two stay open.
            self._pid = os.posix_spawn(
                sys.executable,
                words,
                {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, ends[0], 0),
                    (os.POSIX_SPAWN_DUP2, ends[3], 1),
                ],
            )
        except OSError as error:
            for fd in ends:
                os.close(fd)
            raise AdvisorError(f"{sys.executable}: {error.strerror}") from error
        asked, self._asks, self._answers, answered = ends
        os.close(asked)
        os.close(answered)

    def ask(self, seen: Sequence[Seen]) -> Advice:
        """Return where to look next; blocks, two minutes at most.

        Raises
        ------
        AdvisorSlow
            It has not answered in time.
        AdvisorError
            The process has ended or says what is wrong; or nobody wants to know.
        """
        question = json.dumps([[*point.at, point.seconds, point.noise] for point in seen])
        try:
            os.write(self._asks, question.encode() + b"\n")
        except OSError as error:
            raise AdvisorError(
                f"the process that looks for a better point has ended: {error}"
            ) from error
        line = self._line()
        try:
            answer = json.loads(line)
            if "error" in answer:
                raise AdvisorError(answer["error"])
            return Advice((answer["next"][0], answer["next"][1]), answer["gain"], answer["best"])
        except (ValueError, LookupError, TypeError) as error:
            raise AdvisorError(f"an answer that is none: {line[:80]!r}") from error

    def _line(self) -> bytes:
        deadline = time.monotonic() + _PATIENCE_S
        poll = select.poll()  # which takes any descriptor
        poll.register(self._answers, select.POLLIN)
        while b"\n" not in self._text:
            if self._stopped():
                raise AdvisorError("stopped")
            if time.monotonic() > deadline:
                raise AdvisorSlow(f"no advice in {_PATIENCE_S:g} s")
            if poll.poll(_SLICE_MS):
                more = os.read(self._answers, 1 << 16)
                if not more:
                    raise AdvisorError("the process that looks for a better point has ended")
                self._text += more
        line, _, self._text = self._text.partition(b"\n")
        return line

    def close(self) -> None:
        """End the process and wait for that; a second call does nothing."""
        if self._pid == 0:
            return
        os.close(self._asks)
        os.close(self._answers)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, 9)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._pid = 0


# -- in the process -------------------------------------------------------------------------------


class _WithinReach:
    """Expected improvement, of points that cannot be far worse than one that was measured."""

    def __init__(self, good: "List[Rungs]") -> None:
        from bayes_opt import UtilityFunction

        self._improvement = UtilityFunction(kind="ei", xi=0.0)
        self._good = good
        self.gp: Process = None
        self.y_max = 0.0

    def utility(self, x: Floats, gp: Process, y_max: float) -> Floats:
        """Return what the library asks for: one number for each row of `x`."""
        import numpy as np

        self.gp, self.y_max = gp, y_max
        ei = self._improvement.utility(x, gp, y_max)
        away = np.min([np.abs(x - np.asarray(point)).max(axis=1) for point in self._good], axis=0)
        # A credit below a partition is one partition, which another point is.
        return np.where((away <= REACH) & (_fits(x)), ei, -away - 1.0)


def _fits(x: Floats) -> Floats:
    import numpy as np

    return np.rint(x[:, 0]) <= np.rint(x[:, 1])


def advise(seen: Sequence[Seen], seed: int = 1) -> Advice:
    """Return where to look next.

    A Gaussian process over the rungs of what was seen (Matern 5/2, as the library has it), expected
    improvement, and of what that names the nearest point that was not seen; see Snoek et al.,
    NeurIPS 2012.
    """
    import numpy as np
    from bayes_opt import BayesianOptimization

    seconds = np.array([point.seconds for point in seen])
    spread = max(float(seconds.std()), 1e-9)
    noise = float(np.median([point.noise for point in seen]))
    search = BayesianOptimization(
        f=None,
        pbounds={"0": (0, len(PARTITIONS) - 1), "1": (0, len(CREDITS) - 1)},
        random_state=seed,
        verbose=0,
        allow_duplicate_points=True,
    )
    # Targets are scaled to a variance of 1, so noise is, too.
    search.set_gp_params(alpha=min(max((noise / spread) ** 2, 1e-4), 1.0))
    for point in seen:
        search.register({"0": point.at[0], "1": point.at[1]}, -point.seconds)
    best_s = float(seconds.min())
    good = [point.at for point in seen if point.seconds <= _GOOD * best_s]
    within = _WithinReach(good)
    wanted = search.suggest(within)
    x = round(wanted["0"])
    rungs = (x, max(round(wanted["1"]), x))
    known = {point.at for point in seen}
    if rungs in known:  # which has nothing to tell; of the others, the best
        others = [
            (i, j)
            for i in range(len(PARTITIONS))
            for j in range(i, len(CREDITS))
            if (i, j) not in known
        ]
        worth = within.utility(np.array(others, dtype=float), within.gp, within.y_max)
        rungs = others[int(np.argmax(worth))]
    at = np.array([rungs], dtype=float)
    improvement = float(within.utility(at, within.gp, within.y_max)[0])
    predicted = within.gp.predict(np.array([point.at for point in seen]))
    return Advice(
        next=rungs,
        gain=max(improvement, 0.0) / best_s,
        best=int(np.argmax(predicted)),
    )


def _answer(line: str) -> Dict[str, object]:
    try:
        rows = json.loads(line)
        found = advise([Seen((int(x), int(y)), s, noise) for x, y, s, noise in rows])
        on_rungs(found.next)  # there is such a point
    except ImportError as error:
        return {"error": f"{error}: pip install {LIBRARY}"}
    except Exception as error:  # whatever the libraries think of the numbers
        return {"error": f"{type(error).__name__}: {error}"}
    if not math.isfinite(found.gain):
        return {"error": f"the expected gain is {found.gain}"}
    return {"next": found.next, "gain": found.gain, "best": found.best}


def main(asks: IO[str], answers: IO[str], parent: Optional[int] = None) -> None:
    """Answer until there are no more questions, or the training process has ended."""
    if parent is not None:
        die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training process
    os.nice(_NICE)
    with contextlib.suppress(ImportError):  # which the first answer says
        import bayes_opt  # noqa: F401  # now, as there is time before the first question
    for line in asks:
        answers.write(json.dumps(_answer(line)) + "\n")
        answers.flush()


if __name__ == "__main__":
    # What libraries print is no answer.
    with os.fdopen(os.dup(1), "w") as own:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        main(sys.stdin, own, int(sys.argv[1]))
