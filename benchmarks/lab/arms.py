"""The arms of a benchmark: which of them a run takes, and how they take turns."""

import argparse
import functools
import subprocess
import sys
from typing import Any, Callable, Dict, Iterable, List, Optional, TypeVar

from benchmarks.lab import machine, options
from benchmarks.lab.output import give, keep

Run = TypeVar("Run")


def add_arms_option(
    parser: argparse.ArgumentParser, known: Iterable[str], default: Optional[str] = None
) -> None:
    """Let the caller choose among the `known` arms; `args.arms` is a list of them, if any."""
    known = list(known)
    parser.add_argument(
        "--arms", type=options.names(known), default=default, help=f"of {','.join(known)}"
    )


def attempt(name: str, run: Callable[[], Run]) -> Optional[Run]:
    """Return what a run returns, or None if it takes longer than it may."""
    try:
        return run()
    except subprocess.TimeoutExpired as late:
        print(f"{name}: hung, given up after {late.timeout:g} s", file=sys.stderr, flush=True)
        return None


def alternate(
    args: argparse.Namespace,
    run: Callable[[str], Run],
    summary: Callable[[List[Run]], Any],
    about: Optional[Dict[str, Any]] = None,
    check: Callable[[Dict[str, List[Run]]], None] = lambda ended: None,
    together: Callable[[Dict[str, List[Run]]], Dict[str, Any]] = lambda ended: {},
) -> Dict[str, Any]:
    """Run each of `args.arms` in turn, `args.repeats` times; print and return what comes of it.

    After each run what is there is written, so that one which fails loses nothing of those before.
    One that takes longer than it may is null, and counted as hung. `stolen` is the share of the
    processors' time that went to other machines, of each try; the one that lost least is the run.

    Parameters
    ----------
    args
        With the options of `add_arms_option`, `machine.add_option` and `add_out_option`.
    run
        Runs an arm once.
    summary
        Makes an arm's row of its runs that ended, at least one.
    about
        What else the JSON says.
    check
        Gets the runs that ended, by arm, after each, and raises SystemExit if something is wrong.
    together
        Gets the same and returns what the JSON says of several arms together.

    """
    runs: Dict[str, List[Optional[Run]]] = {arm: [] for arm in args.arms}
    stolen: Dict[str, List[List[float]]] = {arm: [] for arm in args.arms}
    result: Dict[str, Any] = {}
    for _ in range(args.repeats):
        for arm, of_arm in runs.items():
            one_run = functools.partial(attempt, arm, functools.partial(run, arm))
            one, shares = machine.quietly(arm, one_run, args.most_stolen)
            of_arm.append(one)
            stolen[arm].append(shares)
            ended = {name: [one for one in of if one is not None] for name, of in runs.items()}
            result = {
                **(about or {}),
                **together(ended),
                "medians": {name: summary(of) if of else None for name, of in ended.items()},
                "hung": {name: of.count(None) for name, of in runs.items()},
                "all": runs,
                "stolen": stolen,
            }
            print(f"{arm}: {result['medians'][arm]}", file=sys.stderr, flush=True)
            keep(result, args)
            check(ended)
    give(result, args)
    return result
