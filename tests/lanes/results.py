"""Reads what test programs wrote as JUnit XML: counts, and what did not run and why."""

import dataclasses
import pathlib
import re
import xml.etree.ElementTree
from typing import Dict, List

__all__ = ["Results", "read_results"]


@dataclasses.dataclass
class Results:
    """What a lane's tests came to.

    Attributes
    ----------
    passed, failed : int
        How many tests; a test that runs in two builds counts twice.
    skipped : dict
        Reason -> the tests that did not run for it, each once.
    """

    passed: int = 0
    failed: int = 0
    skipped: "Dict[str, List[str]]" = dataclasses.field(default_factory=dict)

    @property
    def num_skipped(self) -> int:
        """How many tests did not run."""
        return sum(len(tests) for tests in self.skipped.values())


def reason_of(skipped: xml.etree.ElementTree.Element) -> str:
    """Return the reason that a test gave for not running, without the place in its source."""
    text = skipped.get("message") or skipped.text or "no reason given"
    if text == "collection skipped":  # pytest has the reason of a whole file in the text
        match = re.search(r"Skipped: (.*)['\"]\)", skipped.text or "")
        text = match.group(1) if match else text
    # GoogleTest writes "FILE:LINE" and a newline before the reason.
    text = re.sub(r"^\S+:\d+\s+", "", text.strip())
    return " ".join(text.split())


def read_file(path: pathlib.Path, into: Results) -> None:
    """Add the tests of one file; a file that is no XML counts as a failure."""
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except xml.etree.ElementTree.ParseError:
        into.failed += 1
        return
    for case in root.iter("testcase"):
        name = f"{case.get('classname', '')}.{case.get('name', '')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            into.failed += 1
        elif skipped is not None:
            tests = into.skipped.setdefault(reason_of(skipped), [])
            if name not in tests:
                tests.append(name)
        elif case.get("status") != "notrun":
            into.passed += 1


def read_results(folder: pathlib.Path) -> Results:
    """Return what all XML files below `folder` say."""
    results = Results()
    for path in sorted(folder.rglob("*.xml")):
        read_file(path, results)
    return results
