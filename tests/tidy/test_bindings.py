"""That what Python sees of the C interface is all of it: what it does not see it does not fill."""

import pathlib
import re
from typing import Dict, List

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = (
    "include/bytescheduler/c_api.h",
    "src/frontend/mxnet/mxnet.h",
    "src/frontend/mxnet/mxnet_functions.h",
    "src/frontend/mxnet/mxnet_copy.h",
)


def name_of(declaration: str) -> str:
    match = re.search(r"\(\*\s*(\w+)\)", declaration) or re.search(
        r"(\w+)(?:\[\w+\])?$", declaration.strip()
    )
    assert match, declaration
    return match[1]


def in_c() -> Dict[str, List[str]]:
    """Return the fields of each struct."""
    text = "".join((ROOT / header).read_text() for header in HEADERS)
    text = re.sub(r"//[^\n]*|/\*(?s:.*?)\*/", "", text)
    structs = re.findall(r"typedef struct\s*\w*\s*\{([^{}]*)\}\s*(\w+)\s*;", text)
    return {
        name: [name_of(field) for field in body.split(";") if field.strip()]
        for body, name in structs
    }


def in_cython() -> Dict[str, List[str]]:
    """Return the same; structs of which Python has pointers only have none."""
    text = re.sub(r"\n {9,}", " ", (ROOT / "python/c_api.pxd").read_text())
    structs = re.findall(r"ctypedef struct (\w+):\n((?:        .*\n)+)", text)
    fields = re.compile(r'"(\w+)"$|\(\*(\w+)\).*$|(\w+)(?:\[\w+\])?$')
    return {
        name: [
            next(group for group in fields.search(line.strip()).groups() if group)  # type: ignore
            for line in body.splitlines()
            if line.strip() != "pass"
        ]
        for name, body in structs
    }


def test_every_field_of_a_struct_is_known_in_python() -> None:
    c = in_c()
    known = {name: fields for name, fields in in_cython().items() if fields}
    assert len(known) > 8
    assert known == {name: c[name] for name in known}


def first_sizes(text: str) -> List[int]:
    """Return the sizes of the first partition and of the first credit, in bytes."""
    pattern = r"\w*FIRST_?(?:PARTITION|CREDIT)_?BYTES = (?:uint64_t\{)?(\d+)\}? << 10U?"
    return [int(number) << 10 for number in re.findall(pattern, text, re.I)]


def test_python_begins_with_the_sizes_of_the_engine() -> None:
    engine = (ROOT / "src/base/types.h").read_text()
    python = (ROOT / "bytescheduler/_settings.py").read_text()
    assert len(first_sizes(engine)) == 2
    assert first_sizes(python) == first_sizes(engine)


def test_the_rule_on_first_sizes_can_fail() -> None:
    assert first_sizes("constexpr uint64_t kFirstCreditBytes = uint64_t{2} << 10U;") == [2048]
    assert first_sizes("_FIRST_PARTITION_BYTES = 3 << 10") == [3072]
