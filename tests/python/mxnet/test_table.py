"""docs/user/kvstore.md has a row for every member of a store, and names tests that exist."""

import pathlib
import re
from typing import Dict

import pytest
from mxnet.kvstore import KVStore, KVStoreBase

from bytescheduler.mxnet import ScheduledKVS

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "user" / "kvstore.md").read_text()
ROWS: "Dict[str, str]" = dict(re.findall(r"^\| `(\w+)` (\|.*\|)$", PAGE, re.M))
NOTES: "Dict[str, str]" = dict(re.findall(r"^(\[\^\w+\]): (.*(?:\n    .*)*)", PAGE, re.M))
# What no user sees, or what is not done by instances; attributes that only instances have.
LEFT_OUT = {"register", "kv_registry", "OPTIMIZER"}
ATTRIBUTES = {"handle", "_updater", "_is_p3"}


def members() -> "set[str]":
    names = {n for c in (KVStore, KVStoreBase, ScheduledKVS) for n in vars(c) if n[:2] != "__"}
    return (names | ATTRIBUTES) - LEFT_OUT - {"_abc_impl"}


def test_every_member_has_a_row_and_every_row_a_member() -> None:
    assert set(ROWS) == members()


@pytest.mark.parametrize("member", sorted(ROWS))
def test_the_row_says_all_and_its_tests_exist(member: str) -> None:
    cells = [cell.strip() for cell in ROWS[member].strip("|").split("|")]
    assert len(cells) == 2
    assert all(cells)
    notes = re.findall(r"\[\^\w+\]", ROWS[member])
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", "".join(NOTES[note] for note in notes))
    assert named, "no test is named"
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(), f"{file} has no {test}"
