"""Bayesian optimization in a process of its own: from trials to the next candidate.

The library takes a second to load and tenths of a second for each candidate.  A training process
cannot spare them, so a process of low priority does it.  `Advisor` is the end in the training
process, and ``python -m bytescheduler._tuning.advisor`` is the other end.  Each line of its input
is a request and each line of its output the response, both in JSON.
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
    "Trial",
    "has_library",
]

LIBRARY = "bayesian-optimization==1.4.3"

# The most rungs from a good trial to a candidate.
REACH = 2
# A trial is good if its step takes at most this many times the incumbent's.
_GOOD_RATIO = 1.1
_POLL_MS = 100
_TIMEOUT_S = 120.0
# The process gets a tenth of a busy processor.  It needs a second or two, and should have them in
# the end even if all processors are busy.
_NICE = 10


Floats = Any  # np.ndarray
GaussianProcess = Any  # sklearn's GaussianProcessRegressor


class Trial(NamedTuple):
    """The measurement of a point."""

    at: Rungs
    seconds: float  # a step
    noise: float  # the standard error of `seconds`, in seconds


class Advice(NamedTuple):
    """The next candidate, and the incumbent."""

    next: Rungs
    gain: float  # the expected improvement at `next`, as a share of the incumbent's step
    best: int  # the position of the trial whose point is likely the fastest


class AdvisorError(Exception):
    """There is no advice; the message has the reason."""


class AdvisorSlow(AdvisorError):
    """There is no advice yet, because the processors are busy."""


def has_library() -> bool:
    """Return whether the library is installed, without loading it."""
    return importlib.util.find_spec("bayes_opt") is not None


class Advisor:
    """The training process's end.  `close` ends the other one; confined to one thread.

    Parameters
    ----------
    stopped : callable
        Returns True to end a wait.
    """

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self._stopped = stopped
        self._pid = 0
        self._text = b""

    def start(self) -> None:
        """Start the process, which is ready after a second; call it once, first.

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
            # Fork would make a framework stop its engine, and leave all our descriptors open.
            self._pid = os.posix_spawn(
                sys.executable,
                words,
                {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, ends[0], 0),
                    (os.POSIX_SPAWN_DUP2, ends[3], 1),
                ],
                # A terminal's signal is for the training process, with which this one ends.
                setsigmask=[signal.SIGINT],
            )
        except OSError as error:
            for fd in ends:
                os.close(fd)
            raise AdvisorError(f"{sys.executable}: {error.strerror}") from error
        stdin, self._requests, self._responses, stdout = ends
        os.close(stdin)
        os.close(stdout)

    def ask(self, seen: Sequence[Trial]) -> Advice:
        """Return the next candidate; blocks, two minutes at most.

        Raises
        ------
        AdvisorSlow
            There was no response in time.
        AdvisorError
            The process has ended or reports an error, or `stopped` returned True.
        """
        request = json.dumps([[*trial.at, trial.seconds, trial.noise] for trial in seen])
        try:
            os.write(self._requests, request.encode() + b"\n")
        except OSError as error:
            raise AdvisorError(
                f"the process that looks for a better point has ended: {error}"
            ) from error
        line = self._line()
        try:
            response = json.loads(line)
            if "error" in response:
                raise AdvisorError(response["error"])
            return Advice(
                (response["next"][0], response["next"][1]), response["gain"], response["best"]
            )
        except (ValueError, LookupError, TypeError) as error:
            raise AdvisorError(f"the response makes no sense: {line[:80]!r}") from error

    def _line(self) -> bytes:
        deadline = time.monotonic() + _TIMEOUT_S
        poll = select.poll()  # select() takes no descriptor above 1023
        poll.register(self._responses, select.POLLIN)
        while b"\n" not in self._text:
            if self._stopped():
                raise AdvisorError("stopped")
            if time.monotonic() > deadline:
                raise AdvisorSlow(f"no advice in {_TIMEOUT_S:g} s")
            if poll.poll(_POLL_MS):
                more = os.read(self._responses, 1 << 16)
                if not more:
                    raise AdvisorError("the process that looks for a better point has ended")
                self._text += more
        line, _, self._text = self._text.partition(b"\n")
        return line

    def close(self) -> None:
        """End the process and wait for that; a second call does nothing."""
        if self._pid == 0:
            return
        os.close(self._requests)
        os.close(self._responses)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, 9)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._pid = 0


# -- in the process -------------------------------------------------------------------------------


class _WithinReach:
    """Expected improvement as the acquisition function, near good trials only."""

    def __init__(self, good: "List[Rungs]") -> None:
        from bayes_opt import UtilityFunction

        self._improvement = UtilityFunction(kind="ei", xi=0.0)
        self._good = good
        self.gp: GaussianProcess = None
        self.y_max = 0.0

    def utility(self, x: Floats, gp: GaussianProcess, y_max: float) -> Floats:
        """Return a number for each row of `x`; the library calls this by its name."""
        import numpy as np

        self.gp, self.y_max = gp, y_max
        ei = self._improvement.utility(x, gp, y_max)
        away = np.min([np.abs(x - np.asarray(point)).max(axis=1) for point in self._good], axis=0)
        # The engine takes a credit below a partition as one partition: that is another point.
        return np.where((away <= REACH) & (_fits(x)), ei, -away - 1.0)


def _fits(x: Floats) -> Floats:
    import numpy as np

    return np.rint(x[:, 0]) <= np.rint(x[:, 1])


def advise(seen: Sequence[Trial], seed: int = 1) -> Advice:
    """Return the next candidate.

    The model is a Gaussian process over the rungs of the trials, with the library's Matern 5/2
    kernel.  The candidate has the largest expected improvement; see Snoek et al., NeurIPS 2012.
    If it was tried before, the best point without a trial takes its place.
    """
    import numpy as np
    from bayes_opt import BayesianOptimization

    seconds = np.array([trial.seconds for trial in seen])
    spread = max(float(seconds.std()), 1e-9)
    noise = float(np.median([trial.noise for trial in seen]))
    search = BayesianOptimization(
        f=None,
        pbounds={"0": (0, len(PARTITIONS) - 1), "1": (0, len(CREDITS) - 1)},
        random_state=seed,
        verbose=0,
        allow_duplicate_points=True,
    )
    # The library scales targets to a variance of 1, so the noise must be scaled too.
    search.set_gp_params(alpha=min(max((noise / spread) ** 2, 1e-4), 1.0))
    for trial in seen:
        search.register({"0": trial.at[0], "1": trial.at[1]}, -trial.seconds)
    best_s = float(seconds.min())
    good = [trial.at for trial in seen if trial.seconds <= _GOOD_RATIO * best_s]
    within = _WithinReach(good)
    wanted = search.suggest(within)
    x = round(wanted["0"])
    rungs = (x, max(round(wanted["1"]), x))
    measured = {trial.at for trial in seen}
    if rungs in measured:  # another trial of it would show little
        others = [
            (i, j)
            for i in range(len(PARTITIONS))
            for j in range(i, len(CREDITS))
            if (i, j) not in measured
        ]
        worth = within.utility(np.array(others, dtype=float), within.gp, within.y_max)
        rungs = others[int(np.argmax(worth))]
    at = np.array([rungs], dtype=float)
    improvement = float(within.utility(at, within.gp, within.y_max)[0])
    predicted = within.gp.predict(np.array([trial.at for trial in seen]))
    return Advice(
        next=rungs,
        gain=max(improvement, 0.0) / best_s,
        best=int(np.argmax(predicted)),
    )


def _response(line: str) -> Dict[str, object]:
    try:
        rows = json.loads(line)
        advice = advise([Trial((int(x), int(y)), s, noise) for x, y, s, noise in rows])
        on_rungs(advice.next)  # raises unless the ladders have these rungs
    except ImportError as error:
        return {"error": f"{error}: pip install {LIBRARY}"}
    except Exception as error:  # the libraries raise many kinds for odd numbers
        return {"error": f"{type(error).__name__}: {error}"}
    if not math.isfinite(advice.gain):
        return {"error": f"the expected gain is {advice.gain}"}
    return {"next": advice.next, "gain": advice.gain, "best": advice.best}


def main(requests: IO[str], responses: IO[str], parent: Optional[int] = None) -> None:
    """Respond until the requests, or the training process, end."""
    if parent is not None:
        die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training process
    os.nice(_NICE)
    with contextlib.suppress(ImportError):  # the first response reports it
        import bayes_opt  # noqa: F401  # now, while there is time before the first request
    for line in requests:
        responses.write(json.dumps(_response(line)) + "\n")
        responses.flush()


if __name__ == "__main__":
    # Libraries may print to stdout, which would break the responses.
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        main(sys.stdin, output, int(sys.argv[1]))
