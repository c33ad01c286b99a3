"""The question whether a compiler traces a hook, with names of old and of new versions."""

import importlib
from typing import List

import pytest
import torch

from bytescheduler.torch._crossing import compilers


def test_versions_before_2_3_are_asked_by_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def old_name() -> bool:
        return False

    with monkeypatch.context() as old:
        old.delattr(torch.compiler, "is_compiling")
        old.setattr(torch._utils, "is_compiling", old_name, raising=False)
        importlib.reload(compilers)
        assert compilers.is_compiling is old_name
        assert compilers.COMPILES_HOOKS
    importlib.reload(compilers)
    assert not compilers.is_compiling()


def test_a_traced_function_hears_that_it_is() -> None:
    seen: List[bool] = []

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if compilers.is_compiling() else x * 3

    seen.append(bool(torch.compile(doubled, backend="eager")(torch.ones(1)) == 2))
    seen.append(bool(doubled(torch.ones(1)) == 3))
    assert seen == [True, True]
