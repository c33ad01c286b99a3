"""The room of sessions needs no framework."""

import pathlib
import re
import subprocess
import sys

import bytescheduler._session


def test_importing_it_imports_no_framework_and_no_numpy() -> None:
    package = pathlib.Path(bytescheduler._session.__file__).parent
    names = [
        ".".join(path.relative_to(package).with_suffix("").parts)
        for path in sorted(package.rglob("*.py"))
        if path.stem != "__init__"
    ]
    assert {"session", "groups.members"} <= set(names)
    program = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module('bytescheduler._session.' + name)\n"
        "print(sorted({'mxnet', 'torch', 'tensorflow', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd="/", capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_its_sources_have_no_word_of_mxnets() -> None:
    package = pathlib.Path(bytescheduler._session.__file__).parent
    told = [
        f"{path.name}:{number}"
        for path in sorted(package.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"mxnet|gluon|kvstore|ndarray|\bstore", line, re.I)
        and not re.search(r'such as (MXNet|"store")', line)
    ]
    assert told == []
