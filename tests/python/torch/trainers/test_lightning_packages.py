"""Lightning is found under the name by which the script has imported it."""

import types
from typing import Any, Callable, Sequence

import pytest
from inline_snapshot import snapshot

from bytescheduler.torch._lightning.packages import found


def loader(*installed: str) -> Callable[[str], Any]:
    """Return an importer that has these packages."""

    def load(name: str) -> Any:  # noqa: ANN401 - a module
        if name not in installed:
            top = name.partition(".")[0]
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
        return types.SimpleNamespace(name=name)

    return load


def names(imported: Sequence[str], *installed: str) -> "list[str]":
    return [package.name for package in found(imported.__contains__, loader(*installed))]


BOTH = ("lightning.pytorch", "pytorch_lightning")


def test_a_package_that_is_imported_is_taken() -> None:
    assert names(["pytorch_lightning"], *BOTH) == ["pytorch_lightning"]
    assert names(["lightning.pytorch"], *BOTH) == ["lightning.pytorch"]
    assert names(BOTH, *BOTH) == [*BOTH]


def test_without_an_import_the_first_that_is_installed_is_taken() -> None:
    assert names([], *BOTH) == ["lightning.pytorch"]
    assert names([], "pytorch_lightning") == ["pytorch_lightning"]


def test_a_missing_package_is_one_sentence() -> None:
    with pytest.raises(ModuleNotFoundError) as raised:
        names([])
    assert str(raised.value) == snapshot(
        "Lightning is not installed: python -m pip install lightning"
    )
    assert raised.value.name == "lightning"


def test_a_package_that_lacks_another_keeps_its_own_error() -> None:
    def load(name: str) -> Any:  # noqa: ANN401
        raise ModuleNotFoundError("No module named 'torchmetrics'", name="torchmetrics")

    with pytest.raises(ModuleNotFoundError, match="torchmetrics"):
        found([].__contains__, load)
