"""The command lines of benchmarks: they refuse wrong options before anything starts."""

import argparse
import importlib.util
import math
from typing import Callable, Iterable, List


def names(known: Iterable[str]) -> Callable[[str], List[str]]:
    """Return what makes a list of some of the `known` names, for argparse."""
    names = list(known)

    def chosen(text: str) -> List[str]:
        words = text.split(",")
        for word in words:
            if word not in names:
                raise argparse.ArgumentTypeError(f"{word!r}: want some of {','.join(names)}")
            if words.count(word) > 1:
                raise argparse.ArgumentTypeError(f"{word!r} is there twice")
        return words

    return chosen


def require_tuner(parser: argparse.ArgumentParser) -> None:
    """End with an error where a job would only warn that it cannot tune itself."""
    if importlib.util.find_spec("bayes_opt") is None:
        parser.error('tuning needs bayesian-optimization: pip install "bytescheduler[tuning]"')


def count(least: int = 1) -> Callable[[str], int]:
    """Return what makes a whole number from `least` on, for argparse."""

    def counted(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}: want a whole number from {least} on")
        return int(text)

    return counted


def seconds(text: str) -> float:
    """Return a time above zero, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: want seconds above 0, such as 0.25")
    return value


def counts(text: str) -> List[int]:
    """Return what a list such as "2,8" says, for argparse."""
    return [count()(word) for word in text.split(",")]


def counts_if_any(text: str) -> List[int]:
    """Return the same, of a list that may be empty."""
    return counts(text) if text else []
