"""What `make docs` has made holds the public names, and its settings refuse what is broken."""

import ast
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
from types import ModuleType

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MADE = ROOT / os.environ.get("BS_BUILD", "build") / "docs" / "docs"
HEADER = ROOT / "include" / "bytescheduler" / "c_api.h"


def anchors(page: str) -> "set[str]":
    """Return the anchors of a page that `make docs` has made."""
    return set(re.findall(r'\bid="([^"]+)"', (MADE / page).read_text()))


def built(source: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    """Return how Sphinx ended over the pages of another folder, with our settings."""
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-E", "-W", "--keep-going"]
    return subprocess.run(
        [*sphinx, "-c", str(ROOT / "docs"), str(source), str(source / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )


@pytest.fixture(scope="module")
def c_header() -> ModuleType:
    spec = importlib.util.spec_from_file_location("c_header", ROOT / "docs" / "c_header.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    ["bytescheduler", *(f"bytescheduler.{each}" for each in ("mxnet", "tensorflow", "torch"))],
)
def test_every_public_name_of_python_is_on_its_page(name: str) -> None:
    source = (ROOT / name.replace(".", "/") / "__init__.py").read_text()
    listed = re.search(r"^__all__ = (\[.*?\])", source, re.M | re.S)
    assert listed is not None
    public = {f"{name}.{each}" for each in ast.literal_eval(listed.group(1))}
    public.discard("bytescheduler.__version__")
    assert public
    assert public <= anchors("reference/python.html")


def test_methods_have_their_parameters() -> None:
    page = (MADE / "reference" / "python.html").read_text()
    assert "bytescheduler.mxnet.ScheduledKVS.pushpull" in anchors("reference/python.html")
    assert "Seconds for what was pushed" in page


def test_functions_of_pytorch_have_their_parameters_and_errors() -> None:
    page = (MADE / "reference" / "python.html").read_text()
    found = anchors("reference/python.html")
    assert "bytescheduler.torch.DistributedOptimizer.synchronize" in found
    assert "Gets worker 0’s parameters and buffers" in page
    assert "tensors are always declared with their first use" in page  # a function of all modules


def test_everything_that_the_header_declares_is_on_its_page() -> None:
    header = re.sub(r"//.*", "", HEADER.read_text())
    functions = set(re.findall(r"^(?:[\w ]+[ *])(bs_\w+)\(", header, re.M))
    types = set(re.findall(r"\b(bs_\w+);$", header, re.M)) | set(
        re.findall(r"\(\*(bs_\w+)\)\(", header)
    )
    found = anchors("reference/c.html")
    assert len(functions) > 40
    assert len(types) > 20
    assert [name for name in functions | types if f"c.{name}" not in found] == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a](no-such-page.md)", "no-such-page.md"),
        ("[a](index.md#no-such-heading)", "no-such-heading"),
        ("```{eval-rst}\n.. automodule:: bytescheduler.no_such\n```", "bytescheduler.no_such"),
        ("```{eval-rst}\n.. c-header:: no-such.h\n```", "no-such.h"),
        ("Text.[^no-such-note]", "no-such-note"),
    ],
)
def test_a_broken_reference_in_a_page_is_an_error(
    text: str, complaint: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "index.md"
    page.write_text("# Title\n\nText.\n")
    assert built(tmp_path).returncode == 0
    page.write_text(f"# Title\n\n{text}\n")
    done = built(tmp_path)
    assert done.returncode != 0
    assert complaint in done.stdout


def test_a_header_is_divided_into_comments_and_their_declarations(c_header: ModuleType) -> None:
    header = (
        "// About\n// it all.\n#ifndef A_H_\n#define A_H_\n\n"
        "// ---- part ----\n\n"
        "// A pair.\ntypedef struct {\n  int a;  // one\n  int b;\n} pair;\n"
        "// Adds\n// `a`.\nint add(int a,\n        int b);\nint sub(int a);\n"
        "// Kinds.\ntypedef enum {\n  // The first.\n  ONE = 1,\n} kind;\n"
        "// Is 0.\nstatic inline int zero(void) {\n  return 0;\n}\n"
    )
    found = list(c_header.groups(header))
    assert [(group.title, group.text) for group in found] == [
        ("", "About it all."),
        ("part", ""),
        ("", "A pair."),
        ("", "Adds `a`."),
        ("", "Kinds."),
        ("", "Is 0."),
    ]
    assert found[3].declarations == ["int add(int a,\n        int b);", "int sub(int a);"]
    lines = c_header.rendered(found[3])
    assert lines[:4] == [".. c:function:: int add(int a, int b)", "", "   Adds ``a``.", "   "]
    assert c_header.rendered(found[2])[0] == ".. c:struct:: pair"
    assert c_header.rendered(found[4])[0] == ".. c:enum:: kind"
    assert c_header.rendered(found[5])[0] == ".. c:function:: int zero(void)"


def test_a_declaration_without_an_end_is_an_error(c_header: ModuleType) -> None:
    with pytest.raises(ValueError, match="without an end: int add"):
        list(c_header.groups("// Adds.\nint add(int a,\n"))
