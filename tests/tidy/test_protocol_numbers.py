"""Whatever has a number on the wire stands in PROTOCOL.md, with that number."""

import pathlib
import re
from typing import List

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Lines of a paragraph may end anywhere.
PROTOCOL = re.sub(r"\n *", " ", (ROOT / "3rdparty/ps-lite/PROTOCOL.md").read_text())
ENUMERATOR = re.compile(r"^\s*(k\w+) = (\d+),", re.M)


def enumerators(file: str, name: str) -> "List[str]":
    """Return "3 kPush" and so on."""
    text = (ROOT / file).read_text()
    body = re.search(rf"enum (?:class )?{name} : [\w:]+ {{(.*?)\n}};", text, re.S)
    assert body, f"{file} has no enum {name}"
    return [f"{number} {word}" for word, number in ENUMERATOR.findall(body.group(1))]


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("3rdparty/ps-lite/include/ps/message.h", "Op"),
        ("src/base/types.h", "DType"),
        ("src/base/types.h", "Mode"),
        ("src/base/status.h", "StatusCode"),
        ("src/server/stock/mxnet_protocol.cc", "StockCommand"),
    ],
)
def test_every_number_is_told(file: str, name: str) -> None:
    found = enumerators(file, name)
    assert len(found) > 1
    plain = PROTOCOL.replace("`", "").replace(" | ", " ")
    missing = [each for each in found if not re.search(rf"\b{each}\b", plain)]
    assert not missing, f"PROTOCOL.md does not tell of {name}: {', '.join(missing)}"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("3rdparty/ps-lite/src/wire/wire.cc", "MetaField"),
        ("3rdparty/ps-lite/src/membership/control_body.cc", "Field"),
        ("src/protocol/data_body.cc", "Field"),
    ],
)
def test_every_field_of_ours_has_a_row(file: str, name: str) -> None:
    """Those of stock messages, which have numbers below 100, stand there in other words."""
    fields = [each.split() for each in enumerators(file, name)]
    ours = [(number, word) for number, word in fields if int(number) >= 100]
    assert len(ours) > 3
    for number, word in ours:
        words = re.sub(r"(?<!^)([A-Z])", r"_\1", word[1:]).lower()
        assert f"| {number} | {words} |" in PROTOCOL, word


def test_every_codec_is_told() -> None:
    """By the number on the wire and the name in its row."""
    rows = [
        (number[1], name[1])
        for text in (path.read_text() for path in (ROOT / "src/codec").glob("*.cc"))
        if (number := re.search(r"constexpr uint32_t k\w+Id = (\d+);", text))
        and (name := re.search(r'\.name = "([^"]+)"', text))
    ]
    table = (ROOT / "src/codec/builtin.cc").read_text()
    assert len(rows) == len(re.findall(r"\w+Codec\(\)", table)) > 0
    for number, name in rows:
        assert f"{number} `{name}`" in PROTOCOL, name


def test_it_tells_which_settings_a_job_shares() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \|[^|]*\|(?:[^|\\]|\\.)*\| job \|",
        (ROOT / "docs/user/settings.md").read_text(),
        re.M,
    )
    assert len(rows) > 1
    assert ", ".join(f"`{row}`" for row in rows) in PROTOCOL
