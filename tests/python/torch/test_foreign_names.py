"""Names of other packages: those that are missing stand in the pages, with what to do."""

import pathlib
from types import ModuleType
from typing import Any, Callable

import pytest
import torch
from inline_snapshot import snapshot

import bytescheduler.torch as bps
import bytescheduler.torch.cross_barrier as across
import bytescheduler.torch.optimizer as by_its_page
import bytescheduler.torch.parallel as wrappers
from bytescheduler.errors import UsageError
from bytescheduler.torch._api.missing import MISSING
from bytescheduler.torch._optimizer.options import accepted
from bytescheduler.torch._sums.choice import Choice
from bytescheduler.torch._sums.compression import Compression, chosen, scaled

PAGES = pathlib.Path(__file__).resolve().parents[3] / "docs" / "migrate"


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_name_says_the_cure_and_stands_in_a_page(name: str) -> None:
    assert name not in bps.__all__
    with pytest.raises(AttributeError, match=f"bytescheduler.torch has no {name}: "):
        getattr(bps, name)
    pages = [(PAGES / f"from-{page}.md").read_text() for page in ("horovod", "byteps")]
    assert any(f"`{name}`" in page for page in pages)


@pytest.mark.parametrize("module", [bps, across, by_its_page, wrappers])
def test_every_module_answers_for_missing_names(module: ModuleType) -> None:
    with pytest.raises(AttributeError) as refused:
        module.elastic  # noqa: B018
    assert str(refused.value) == f"{module.__name__} has no elastic: {MISSING['elastic']}"
    with pytest.raises(AttributeError) as unknown:
        module.no_such_name  # noqa: B018
    assert str(unknown.value) == f"module '{module.__name__}' has no attribute 'no_such_name'"
    assert not hasattr(module, "__wrapped__")


def test_an_import_of_a_missing_name_says_the_cure() -> None:
    with pytest.raises(ImportError) as refused:
        from bytescheduler.torch import elastic  # type: ignore[attr-defined]  # noqa: F401
    assert str(refused.value) == f"bytescheduler.torch has no elastic: {MISSING['elastic']}"
    with pytest.raises(ImportError, match="cannot import name 'no_such_name'"):
        from bytescheduler.torch import no_such_name  # type: ignore[attr-defined]  # noqa: F401


def test_a_name_of_the_package_is_named_by_its_other_modules() -> None:
    with pytest.raises(AttributeError) as refused:
        by_its_page.allgather_object  # noqa: B018
    assert str(refused.value) == snapshot(
        "bytescheduler.torch.optimizer has no allgather_object: take it from bytescheduler.torch"
    )


def test_the_module_for_crossing_has_the_names_that_scripts_of_byteps_use() -> None:
    assert across.CrossBarrier is by_its_page.CrossBarrier
    for name in across.__all__:
        assert getattr(across, name) is getattr(bps, name)


def test_the_module_of_bytescheduler_has_the_names_of_its_readme() -> None:
    for name in (
        *("init", "shutdown", "rank", "size", "local_rank", "local_size"),
        *("broadcast_parameters", "broadcast_optimizer_state", "push_pull"),
    ):
        assert getattr(by_its_page, name) is getattr(bps, name)


def test_scaled_tensors_are_multiplied_before_they_are_narrowed() -> None:
    compressor = scaled(Compression.fp16, 0.25, 4.0)
    wide = torch.full((2,), 1e5)
    narrow, context = compressor.compress(wide)
    assert narrow.dtype == torch.float16
    assert torch.isfinite(narrow).all()
    torch.testing.assert_close(compressor.decompress(narrow, context), wide, rtol=1e-3, atol=0)
    assert scaled(Compression.bf16, 1.0, 1.0) is Compression.bf16
    two_bit = Compression.two_bit(0.5)
    assert scaled(two_bit, 2.0, 0.5).coding is two_bit.coding


def test_an_instance_of_a_compressor_is_as_good_as_its_class() -> None:
    assert chosen(Compression.fp16()) is Compression.fp16
    two_bit = Compression.two_bit(0.5)
    assert chosen(two_bit()) is two_bit


@pytest.mark.parametrize(
    "call",
    [
        lambda name: bps.push_pull(torch.ones(2), name=name),
        lambda name: bps.push_pull_inplace(torch.ones(2), name=name),
        lambda name: bps.allreduce_async(torch.ones(2), name=name),
        lambda name: bps.grouped_allreduce([torch.ones(2)], name=name),
        lambda name: bps.declare(name),
    ],
)
def test_a_name_that_cannot_travel_is_refused_alone_too(call: Callable[[str], object]) -> None:
    bps.init()
    try:
        with pytest.raises(UsageError, match="has a character that UTF-8 lacks"):
            call("caf\udce9")
    finally:
        bps.shutdown()


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("staleness=2", (True, 1.0, 0, 2)),
        ("num_groups or groups", (True, 1.0, -1, 0)),
        ("num_groups or groups", (True, 1.0, True, 0)),
        ("want a number above 0", (True, 0.0, 0, 0)),
        ("want a number above 0", (True, float("inf"), 0, 0)),
        ("want a number above 0", (True, "2", 0, 0)),
        ("needs op=Average", (False, 2.0, 0, 0)),
    ],
)
def test_arguments_of_other_packages_are_checked(text: str, given: Any) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match=text):
        accepted(Choice(), *given)
    assert accepted(Choice(), False, 1.0, [[]], 0) == Choice()
