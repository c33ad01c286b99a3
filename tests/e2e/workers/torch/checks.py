"""Checks of calls that must fail, with a text that says why."""

from typing import Callable, Type


def refused(text: str, call: Callable[..., object], *given: object, **named: object) -> None:
    refused_by(Exception, text, call, *given, **named)


def refused_by(
    kind: Type[BaseException],
    text: str,
    call: Callable[..., object],
    *given: object,
    **named: object,
) -> None:
    said = ""
    try:
        call(*given, **named)
    except kind as error:
        said = f"{error!r}: {error}"
    assert text in said, f"want an error that says {text!r}, got {said!r}"
