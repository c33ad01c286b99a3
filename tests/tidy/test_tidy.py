"""House rules that no other tool knows: who includes whom, what lives where, how long a file is."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Layer -> the layers whose headers it may include (docs/architecture.md).
MAY_INCLUDE = {
    "base": {"base"},
    "core": {"base", "core"},
    "ps": {"base", "ps"},
    "reduce": {"base", "reduce"},
    "worker": {"base", "core", "ps", "reduce", "worker"},
    "server": {"base", "ps", "reduce", "server"},
    "config": {"base"},
    "api": {"base", "core", "ps", "reduce", "worker", "server", "api", "config", "c_api"},
    "plugin": {"plugin", "c_api"},
}
# Public headers belong to layers too.
PUBLIC = {
    "status.h": "base",
    "types.h": "base",
    "comm_task.h": "core",
    "core.h": "core",
    "worker.h": "worker",
    "server.h": "server",
    "config.h": "config",
    "c_api.h": "c_api",
}
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def tracked(*patterns: str) -> "list[pathlib.Path]":
    out = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [ROOT / line for line in out.splitlines() if (ROOT / line).is_file()]


def layer_of(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT).parts
    if parts[0] == "src":
        return parts[1]
    if parts[0] == "3rdparty":
        return "ps"
    return PUBLIC[path.name]


def layer_of_include(target: str) -> str:
    first, _, rest = target.partition("/")
    if first == "bytescheduler":
        return PUBLIC[rest]
    return first if rest else "ps"  # a bare name: a private header of ps-lite


def sources() -> "list[pathlib.Path]":
    return tracked("src/*.h", "src/*.cc", "include/*.h", "3rdparty/*.h", "3rdparty/*.cc")


def test_there_are_sources_to_check() -> None:
    assert len(sources()) > 20


def test_includes_point_down() -> None:
    wrong = []
    for path in sources():
        layer = layer_of(path)
        allowed = MAY_INCLUDE.get(layer, set()) | {layer}
        for target in INCLUDE.findall(path.read_text()):
            if layer_of_include(target) not in allowed:
                wrong.append(f"{path.relative_to(ROOT)}: {layer} may not include {target}")
    assert not wrong, "\n".join(wrong)


def test_the_rule_on_includes_can_fail() -> None:
    assert layer_of_include("ps/transport.h") not in MAY_INCLUDE["core"]
    assert layer_of_include("bytescheduler/worker.h") not in MAY_INCLUDE["server"]


@pytest.mark.parametrize(
    ("what", "pattern", "where_allowed"),
    [
        (
            "locks live in src/base",
            r"std::(recursive_|shared_|timed_)?mutex\b|pthread_mutex",
            r"src/base/",
        ),
        (
            "only config.cc reads the environment",
            r"\b(secure_)?getenv\b|\benviron\b",
            r"src/api/config\.cc",
        ),
        (
            "time and chance come through the door",
            r"steady_clock::now|system_clock::now|\brand\(|random_device|\btime\(|clock_gettime",
            r"src/base/loop_thread\.cc|src/base/log\.cc|src/api/node\.cc",
        ),
        ("nobody sleeps to wait", r"sleep_for|sleep_until|\busleep\(|\bsleep\(|nanosleep", r"(?!)"),
        ("threads have an owner", r"\.detach\(\)", r"(?!)"),
        ("threads are loop threads", r"std::thread\b(?!::hardware)", r"src/base/loop_thread\.cc"),
        (
            # numa.cc allocates, as operator new does; wire.cc joins protozero's way, inside.
            "our C++ throws nothing",
            r"\bthrow\b",
            r"src/base/numa\.cc|ps-lite/src/wire\.cc",
        ),
        ("no owner-less work", r"\b(TODO|FIXME|XXX)\b", r"(?!)"),
    ],
)
def test_what_is_kept_in_its_place(what: str, pattern: str, where_allowed: str) -> None:
    wrong = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        if re.search(where_allowed, name):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("//", 1)[0] if "TODO" not in pattern else line
            if re.search(pattern, code):
                wrong.append(f"{name}:{number}: {line.strip()}")
    assert not wrong, what + ":\n" + "\n".join(wrong)


def test_files_are_short_and_say_their_job_first() -> None:
    wrong = []
    for path in sources():
        lines = path.read_text().splitlines()
        name = path.relative_to(ROOT)
        if len(lines) > 400:
            wrong.append(f"{name}: {len(lines)} lines; 400 are enough")
        if not re.match(r"(//|/\*) \S", lines[0]):
            wrong.append(f"{name}: the first line does not say what the file is for")
    assert not wrong, "\n".join(wrong)


def test_plugins_adapt_and_do_not_decide() -> None:
    for path in tracked("src/plugin/*.cc"):
        assert len(path.read_text().splitlines()) <= 200, f"{path.name} is longer than 200 lines"


def test_no_path_of_a_machine_is_in_the_repository() -> None:
    pattern = re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm|root)(/|\b)")
    wrong = []
    for path in tracked():
        if path.suffix in {".png", ".gz", ".svg"} or path == pathlib.Path(__file__):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if pattern.search(line):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    assert not wrong, "\n".join(wrong)


def test_every_source_has_a_test() -> None:
    exempt = {"check.cc", "types.cc", "mutex.cc"}  # covered by the tests of what uses them
    tests = {p.name for p in tracked("tests/*.cc")}
    layers = {p.parent.name for p in tracked("tests/*_test.cc")}
    assert {"base", "core", "ps-lite", "reduce", "worker", "server", "api", "sim"} <= layers
    assert len(tests) > 10
    for layer in ("base", "core"):
        for path in tracked(f"src/{layer}/*.cc"):
            if path.name not in exempt:
                assert path.stem + "_test.cc" in tests, f"{path.relative_to(ROOT)} has no test"
