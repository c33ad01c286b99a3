"""Checks of a script: calls that must fail with a reason, and the checks one after the other."""

from typing import Any, Callable, Iterable, Type

import torch


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


def run_all(
    module: Any,  # noqa: ANN401
    checks: Iterable[Callable[..., None]],
    *,
    with_rank: bool = False,
) -> None:
    """Join the job by a module's names, make the checks, which may take the rank, and leave."""
    torch.set_num_threads(1)
    module.init()
    for check in checks:
        check(*[module.rank()] if with_rank else [])
        print(f"{check.__name__} is well")
    module.shutdown()
    print("all is well")
