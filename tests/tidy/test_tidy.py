"""House rules that no other tool knows: who includes whom, what lives where, how long a file is."""

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What all kinds of keys of a server stand on.
SERVER_FLOOR = {
    *("base", "job", "ps", "kv", "reduce", "codec", "protocol"),
    *("server/memory", "server/optimizer", "server/state"),
}
# Room (a folder of src, ps-lite or the C API's header) -> the rooms beside itself whose headers it
# may include: each stands further up in this table.  docs/design/architecture.md has the map.
MAY_INCLUDE = {
    "base": set(),
    "c_api": set(),
    "job": {"base"},
    "core": {"base"},
    # The rooms of ps-lite, in 3rdparty/ps-lite/src; "ps" is messages and the transport interface.
    "ps": {"base"},
    "wire": {"base", "ps"},
    "kv": {"base", "ps", "wire"},
    "transport": {"base", "ps", "wire"},
    "transport/shm": {"base", "ps", "transport"},
    "transport/rdma": {"base", "ps", "wire", "transport"},
    "transport/tcp": {"base", "ps", "wire", "transport", "transport/shm", "transport/rdma"},
    "transport/zmq": {"base", "ps", "wire", "transport"},
    "membership": {"base", "ps", "wire", "kv"},
    "membership/stock": {"base", "ps", "wire", "membership"},
    "membership/coordinator": {"base", "ps", "wire", "kv", "membership", "membership/stock"},
    "membership/member": {"base", "ps", "wire", "kv", "membership", "membership/stock"},
    "config": {"base", "ps", "transport/zmq"},
    "trace": {"base", "job", "core", "config"},
    "reduce": {"base"},
    "codec/kernels": {"reduce"},
    "codec": {"base", "reduce", "codec/kernels"},
    "protocol": {"base", "job", "ps", "wire", "kv", "codec"},
    "backend": {"base", "job", "codec", "protocol"},
    "backend/ps": {"base", "job", "ps", "kv", "codec", "protocol", "backend"},
    "backend/collective": {"base", "core", "ps", "kv", "codec", "protocol", "backend"},
    # A library of its own sends the bytes.
    "backend/collective/mpi": {"base", "backend/collective"},
    "backend/collective/nccl": {"base", "backend/collective"},
    # It sends no message: all it needs of ps is the text of a duration.
    "backend/kvstore": {"base", "job", "ps", "protocol", "backend"},
    # No back end: whatever makes a worker chooses one.
    "worker": {"base", "job", "core", "trace", "reduce", "codec", "protocol", "backend"},
    "server/memory": {"base", "ps"},
    "server/optimizer": {"base", "reduce"},
    "server/state": {
        *("base", "job", "ps", "kv", "codec", "protocol"),
        *("server/memory", "server/optimizer"),
    },
    "server/sync": SERVER_FLOOR,
    "server/async": SERVER_FLOOR,
    "server/stock": SERVER_FLOOR,
    "server/exchange": SERVER_FLOOR,
    "server/grants": {"base", "core", "protocol", "server/state"},
    "server": SERVER_FLOOR
    | {"server/sync", "server/async", "server/stock", "server/exchange", "server/grants"},
    # Sums as a server does, for the workers of a host.
    "backend/host": {
        *("base", "job", "core", "ps", "kv", "reduce", "codec", "protocol"),
        *("backend", "backend/ps", "server/memory", "server/state"),
    },
    "sim": {"base", "ps", "wire"},
    "predict": {"base", "job", "protocol", "backend/ps", "worker", "server", "sim"},
    "host": {"base", "ps", "transport", "transport/rdma", "config", "reduce"},
    "node": {
        *("base", "job", "ps", "config", "host", "trace", "codec", "protocol"),
        *("transport", "transport/rdma", "transport/tcp", "transport/zmq", "membership"),
        *("worker", "server"),
    },
    "node/worker": {
        *("base", "job", "ps", "config", "trace", "protocol", "membership"),
        *("backend", "backend/host", "backend/kvstore", "backend/ps", "backend/collective"),
        *("backend/collective/mpi", "backend/collective/nccl"),
        *("worker", "host", "node"),
    },
    "capi": {
        *("c_api", "base", "job", "config", "trace", "codec"),
        *("backend/ps", "worker", "predict", "host", "node", "node/worker"),
    },
    "frontend/mxnet": {"c_api"},
}
# The public header is a room of its own.
PUBLIC = {"c_api.h": "c_api"}
# So do those of ps-lite; the rest of include/ps is "ps".
PUBLIC_PS = {"ps/kv_server.h": "kv", "ps/kv_worker.h": "kv", "ps/membership.h": "membership"}
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


def room_of(path: pathlib.Path) -> str:
    *folders, _ = path.relative_to(ROOT).parts
    if folders[0] == "src":
        return "/".join(folders[1:])
    if folders[:3] == ["3rdparty", "ps-lite", "src"]:
        return "/".join(folders[3:])
    if folders[0] == "3rdparty":
        return PUBLIC_PS.get(f"ps/{path.name}", "ps")
    return PUBLIC[path.name]


def room_of_include(target: str) -> str:
    room, _, name = target.rpartition("/")
    if room == "bytescheduler":
        return PUBLIC[name]
    return PUBLIC_PS.get(target, room)  # a bare name is of no room


def sources() -> "list[pathlib.Path]":
    return tracked("src/*.h", "src/*.cc", "include/*.h", "3rdparty/*.h", "3rdparty/*.cc")


def test_there_are_sources_to_check() -> None:
    assert len(sources()) > 20


def test_includes_point_down() -> None:
    wrong = []
    for path in sources():
        room = room_of(path)
        allowed = MAY_INCLUDE[room] | {room}
        for target in INCLUDE.findall(path.read_text()):
            if room_of_include(target) not in allowed:
                wrong.append(f"{path.relative_to(ROOT)}: {room} may not include {target}")
    assert not wrong, "\n".join(wrong)


def points_up(rooms: "dict[str, set[str]]") -> "list[str]":
    """Return what the table of rooms allows that does not stand above it."""
    order = list(rooms)
    return [
        f"{room} may include {target}"
        for at, room in enumerate(order)
        for target in sorted(rooms[room] - set(order[:at]))
    ]


def test_the_table_of_rooms_has_no_circle() -> None:
    assert not points_up(MAY_INCLUDE)


def test_the_rule_on_the_table_can_fail() -> None:
    assert points_up({"low": {"high"}, "high": {"low"}}) == ["low may include high"]
    assert points_up({"one": {"one"}}) == ["one may include one"]
    assert points_up({"low": {"gone"}}) == ["low may include gone"]


def test_include_has_only_installed_headers() -> None:
    there = {str(path.relative_to(ROOT)) for path in tracked("include/*")}
    assert there == {f"include/bytescheduler/{name}" for name in PUBLIC}
    cmake = (ROOT / "CMakeLists.txt").read_text()
    assert all(f"install(FILES {name} " in cmake for name in there)


def test_every_room_of_the_table_is_there() -> None:
    there = {room_of(path) for path in sources()}
    assert there == set(MAY_INCLUDE)


# The namespaces of rooms, and of the rooms in them, that have another one than bs::<the first
# folder>; the C API has none.
NAMESPACES = {
    **{"base": "bs", "c_api": "", "frontend/mxnet": "bs::mxnet"},
    "backend/collective": "bs::backend::collective",
}
# Rooms whose main classes, such as Worker, stand in bs.
IN_BS = {"codec", "config", "core", "server", "server/optimizer", "server/state", "worker"}
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{$", re.M)
FORWARD = re.compile(r"namespace [\w:]+ \{\n(?:(?:class|struct) \w+;[^\n]*\n)+\}[^\n]*\n")


def namespaces_of(text: str) -> "set[str]":
    """Return our namespaces in which a source declares more than types of other rooms."""
    return {name for name in NAMESPACE.findall(FORWARD.sub("", text)) if name.startswith("bs")}


def namespaces_for(room: str) -> "set[str]":
    """Return the namespaces that a room may have."""
    around = [room, *map(str, pathlib.PurePath(room).parents)]
    usual = f"bs::{room.split('/')[0]}"
    own = next((NAMESPACES[name] for name in around if name in NAMESPACES), usual)
    return {own, "bs"} if room in IN_BS else {own}


def test_namespaces_follow_rooms() -> None:
    wrong = []
    for path in tracked("src/*.h", "src/*.cc", "include/*.h"):
        for name in namespaces_of(path.read_text()) - namespaces_for(room_of(path)):
            wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert not wrong, "\n".join(wrong)


def test_the_rule_on_namespaces_can_fail() -> None:
    block = "namespace bs::worker {\nint F();\n}  // namespace bs::worker\n"
    forward = "namespace bs::worker {\nclass Backend;\n}  // namespace bs::worker\n"
    assert namespaces_of(block) == {"bs::worker"}
    assert namespaces_of(forward + "namespace ps {\nint F();\n}\n") == set()
    assert "bs::worker" not in namespaces_for("backend/ps")
    assert namespaces_for("backend/ps") == {"bs::backend"}
    assert namespaces_for("backend/collective/mpi") == {"bs::backend::collective"}
    assert namespaces_for("worker") == {"bs", "bs::worker"}


MOST_UNITS = 20


def crowded(paths: "list[pathlib.PurePath]") -> "dict[str, int]":
    """Return folders with too many units; a header and its source are one."""
    units: dict[str, set[str]] = {}
    for path in paths:
        units.setdefault(str(path.parent), set()).add(path.stem)
    return {folder: len(stems) for folder, stems in units.items() if len(stems) > MOST_UNITS}


def test_a_folder_is_a_concept() -> None:
    tops = ("src", "include", "3rdparty", "bytescheduler", "python", "tests", "benchmarks")
    files = tracked(*(f"{top}/*.{ending}" for top in tops for ending in ("h", "cc", "py")))
    found = crowded([path.relative_to(ROOT) for path in files])
    assert not found, f"part it, or find what it has two of: {found}"


def test_the_rule_on_folders_can_fail() -> None:
    both = [pathlib.PurePath(f"src/a/{n}{suffix}") for n in range(20) for suffix in (".h", ".cc")]
    assert crowded(both) == {}
    assert crowded([*both, pathlib.PurePath("src/a/one_more.h")]) == {"src/a": 21}


# The headers of base that hold values and checks only.
VALUES = {"base/check.h", "base/status.h", "base/types.h"}


def of_base(text: str) -> "set[str]":
    return {target for target in INCLUDE.findall(text) if target.startswith("base/")}


def test_the_core_knows_no_thread_and_no_executor() -> None:
    for path in (ROOT / "src" / "core").iterdir():
        assert of_base(path.read_text()) <= VALUES, path


def test_the_rule_on_the_core_can_fail() -> None:
    assert not of_base('#include "base/loop_thread.h"\n') <= VALUES


def test_the_rule_on_includes_can_fail() -> None:
    assert room_of_include("ps/transport.h") not in MAY_INCLUDE["core"]
    assert room_of_include("worker/worker.h") not in MAY_INCLUDE["server"]
    assert room_of_include("backend/ps/ps_backend.h") not in MAY_INCLUDE["worker"]
    assert room_of_include("backend/kvstore/kvstore_backend.h") not in MAY_INCLUDE["worker"]
    assert room_of_include("ps/message.h") not in MAY_INCLUDE["worker"] | MAY_INCLUDE["backend"]
    assert room_of_include("worker/worker.h") not in MAY_INCLUDE["backend"]
    assert room_of_include("capi/c_api_guard.h") not in MAY_INCLUDE["frontend/mxnet"]
    assert room_of_include("server/sync/slot.h") not in MAY_INCLUDE["server/state"]
    assert room_of_include("server/server.h") not in MAY_INCLUDE["server/stock"]
    assert room_of_include("transport/tcp/tcp_connection.h") not in MAY_INCLUDE["transport/zmq"]
    assert room_of_include("ps/membership.h") not in MAY_INCLUDE["kv"]
    assert room_of_include("wire.h") not in MAY_INCLUDE["wire"]
    assert room_of(ROOT / "3rdparty/ps-lite/src/membership/member/x.cc") == "membership/member"
    assert room_of(ROOT / "3rdparty/ps-lite/include/ps/kv_server.h") == "kv"


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
            # MPI reads a variable by itself.
            r"src/config/config\.cc|src/backend/collective/mpi/mpi_library\.cc",
        ),
        (
            "time and chance come through the door",
            r"steady_clock::now|system_clock::now|\brand\(|random_device|\btime\(|clock_gettime",
            r"src/base/loop_thread\.cc|src/base/log\.cc|src/node/node\.cc",
        ),
        ("nobody sleeps to wait", r"sleep_for|sleep_until|\busleep\(|\bsleep\(|nanosleep", r"(?!)"),
        ("threads have an owner", r"\.detach\(\)", r"(?!)"),
        ("threads are loop threads", r"std::thread\b(?!::hardware)", r"src/base/loop_thread\.cc"),
        (
            # numa.cc allocates, as operator new does; wire.cc joins protozero's way, inside.
            "our C++ throws nothing",
            r"\bthrow\b",
            r"src/base/(?:loop_thread|numa)\.cc|ps-lite/src/wire/wire\.cc",
        ),
        ("no owner-less work", r"\b(TODO|FIXME|XXX)\b", r"(?!)"),
    ],
)
def test_each_pattern_stays_in_its_allowed_files(
    what: str, pattern: str, where_allowed: str
) -> None:
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
        if len(lines) > 600:
            wrong.append(f"{name}: {len(lines)} lines; 600 are enough")
        if not re.match(r"(//|/\*) \S", lines[0]):
            wrong.append(f"{name}: the first line does not say what the file is for")
    assert not wrong, "\n".join(wrong)


def test_plugins_adapt_and_do_not_decide() -> None:
    paths = tracked("src/frontend/*.cc")
    assert paths
    for path in paths:
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


PS = "3rdparty/ps-lite/src"
# Sources without a test of their own name -> the test that runs them.
TESTED_THROUGH = {
    f"{PS}/membership/coordinator/reliable_broadcast.cc": "membership_test.cc",
    f"{PS}/wire/control.cc": "membership_test.cc",
    f"{PS}/membership/coordinator/coordinator.cc": "membership_test.cc",
    f"{PS}/membership/coordinator/inbox.cc": "membership_hostile_test.cc",
    f"{PS}/membership/coordinator/outbox.cc": "membership_test.cc",
    f"{PS}/membership/coordinator/refusals.cc": "membership_rejoin_test.cc",
    f"{PS}/membership/coordinator/unwrapped_stores.cc": "membership_stock_test.cc",
    f"{PS}/membership/coordinator/waiting_nodes.cc": "membership_failure_test.cc",
    f"{PS}/membership/member/member.cc": "membership_test.cc",
    f"{PS}/membership/member/member_job.cc": "membership_failure_test.cc",
    f"{PS}/transport/tcp/tcp_inbound.cc": "tcp_transport_test.cc",
    f"{PS}/transport/rdma/ibverbs_device.cc": "ibverbs_test.cc",
    f"{PS}/transport/rdma/ibverbs_symbols.cc": "ibverbs_test.cc",
    f"{PS}/transport/zmq/zmq_callers.cc": "zmq_transport_test.cc",
    f"{PS}/transport/zmq/zmq_endpoint.cc": "zmq_transport_test.cc",
    f"{PS}/transport/zmq/zmq_connection.cc": "zmq_transport_test.cc",
    f"{PS}/transport/zmq/zmq_monitor.cc": "zmq_curve_test.cc",
    f"{PS}/transport/zmq/zmq_socket.cc": "zmq_transport_test.cc",
    f"{PS}/transport/tcp/zmtp_write.cc": "zmtp_test.cc",
    "src/backend/ps/ps_exchange.cc": "exchange_test.cc",
    "src/capi/c_api_worker.cc": "c_api_test.cc",
    "src/capi/operation_fields.cc": "operations_test.cc",
    "src/codec/builtin.cc": "codec_test.cc",
    "src/config/settings_table.cc": "config_test.cc",
    "src/node/worker/ps_membership.cc": "node_test.cc",
    "src/node/worker/ps_worker.cc": "node_test.cc",
    "src/node/worker/store_membership.cc": "store_worker_test.cc",
    "src/node/worker/wrapped_store.cc": "store_worker_test.cc",
    "src/frontend/mxnet/mxnet_round.cc": "mxnet_test.cc",
    "src/predict/replaying_worker.cc": "predict_test.cc",
    "src/server/exchange/exchanges.cc": "exchange_test.cc",
    "src/server/optimizer/optimizer_text.cc": "optimizer_test.cc",
    "src/server/stock/stock_shard.cc": "stock_store_test.cc",
    "src/server/stock/stock_value.cc": "stock_slot_update_test.cc",
    "src/backend/traffic.cc": "worker_metrics_test.cc",
    "src/backend/collective/introduction.cc": "collective_worker_test.cc",
    "src/backend/collective/mpi/mpi_abi.cc": "mpi_library_test.cc",
    "src/backend/collective/mpi/mpi_file.cc": "mpi_library_test.cc",
    "src/backend/host/host_sums.cc": "host_backend_test.cc",
    "src/backend/ps/exchange_body.cc": "ps_backend_test.cc",
    "src/worker/exchange_task.cc": "exchange_test.cc",
    "src/worker/fetch.cc": "worker_test.cc",
    "src/worker/operation.cc": "worker_test.cc",
    "src/worker/worker_impl.cc": "worker_test.cc",
    # Variants for one processor or another, each run against the scalar specification.
    "src/reduce/available_portable.cc": "reduce_test.cc",
    "src/reduce/available_x86.cc": "reduce_test.cc",
    "src/reduce/copy_portable.cc": "reduce_test.cc",
    "src/reduce/copy_x86.cc": "reduce_test.cc",
    "src/reduce/float_environment_portable.cc": "reduce_test.cc",
    "src/reduce/float_environment_x86.cc": "reduce_test.cc",
    "src/codec/kernels/dithering_avx2.cc": "dithering_kernels_test.cc",
    "src/codec/kernels/dithering_avx512.cc": "dithering_kernels_test.cc",
    "src/codec/kernels/onebit_avx2.cc": "onebit_kernels_test.cc",
    "src/codec/kernels/onebit_avx512.cc": "onebit_kernels_test.cc",
    "src/codec/permutation.cc": "randomk_test.cc",
    "src/codec/kernels/picks_avx2.cc": "picks_kernels_test.cc",
    "src/codec/kernels/picks_avx512.cc": "picks_kernels_test.cc",
    "src/reduce/casts_avx2.cc": "casts_test.cc",
    "src/reduce/casts_avx512.cc": "casts_test.cc",
    "src/reduce/kernels_avx2.cc": "reduce_test.cc",
    "src/reduce/kernels_avx512.cc": "reduce_test.cc",
    "src/reduce/kernels_avx512_fp16.cc": "reduce_test.cc",
}


def test_every_source_has_a_test() -> None:
    tests = {p.name for p in tracked("tests/*_test.cc")}
    names = {str(p.relative_to(ROOT)) for p in tracked("src/*.cc", "3rdparty/ps-lite/src/*.cc")}
    assert len(names) > 50
    wrong = [
        f"{name} is in TESTED_THROUGH but does not exist" for name in TESTED_THROUGH.keys() - names
    ]
    for name in sorted(names):
        own = pathlib.Path(name).stem + "_test.cc"
        if name in TESTED_THROUGH and own in tests:
            wrong.append(f"{name} has a test of its own: take it out of TESTED_THROUGH")
        elif TESTED_THROUGH.get(name, own) not in tests:
            wrong.append(f"{name} has no test: {TESTED_THROUGH.get(name, own)} does not exist")
    assert not wrong, "\n".join(wrong)


CONST = r"(?!.*\bconst(expr|init|eval)?\b)"
MUTABLE = (
    # A static or thread-local variable, of a function, a class or a namespace.
    re.compile(rf"^\s*(?:inline\s+)?(?:static|thread_local)\b{CONST}[^()=;{{]*\w\s*[;={{]"),
    # A variable of a namespace: our namespaces are not indented.
    re.compile(
        rf"^(?!(?:using|typedef|template|class|struct|union|enum|namespace|extern|friend)\b|.*\boperator\b){CONST}"
        r"(?:inline\s+)?[A-Za-z_][\w:]*(?:<.*>)?[\s*&]+[\w:]+(?:\[\w*\])?\s*(?:=[^=]|;|\{)"
    ),
)


def is_mutable_global(line: str) -> bool:
    return any(pattern.search(line.split("//", 1)[0]) for pattern in MUTABLE)


def test_python_tests_that_run_together_have_names_of_their_own() -> None:
    """pytest takes two files of one name, without packages around them, for the same module."""
    names = [path.name for path in tracked("tests/python/*.py", "tests/e2e/*.py")]
    again = {name for name in names if names.count(name) > 1} - {"conftest.py"}
    assert not again


def test_nothing_global_can_change() -> None:
    wrong = []
    for path in sources():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if is_mutable_global(line):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not wrong, "state belongs to an object:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "mutable"),
    [
        ("int counter = 0;", True),
        ("std::atomic<int> counter{0};", True),
        ("std::map<std::string, int> cache;", True),
        ("Registry* registry = nullptr;", True),
        ("static uint64_t next;", True),
        ("  static std::mutex lock;", True),
        ("  static Registry registry = Make();", True),
        ("  thread_local int depth = 0;", True),
        ("inline int counter = 0;", True),
        ("int Counter::total_ = 0;", True),
        ("char buffer[64];", True),
        ("constexpr int kMost = 7;", False),
        ("inline constexpr Duration kLong = std::chrono::hours(1);", False),
        ("const char* const kNames[] = {", False),
        ("  static constexpr uint32_t kRoot = 0;", False),
        ("  static Status Check(const Node& node);", False),
        ("  static TimePoint Now() { return {}; }", False),
        ("class Registry;", False),
        ("struct Row {", False),
        ("using Sink = std::function<void()>;", False),
        ("namespace bs {", False),
        ("bool Empty() { return true; }", False),
        ("  int local = 0;", False),
        ("Frame& Frame::operator=(Frame&& other) noexcept {", False),
    ],
)
def test_the_rule_on_globals_knows_them(line: str, mutable: bool) -> None:
    assert is_mutable_global(line) == mutable


# Whose <...> headers may be included, and where; whatever matches no row is free.
FOREIGN = (
    (r"zmq", r"3rdparty/ps-lite/src/transport/zmq/"),
    (
        r"protozero/",
        r"3rdparty/ps-lite/src/(wire/(wire\.cc|fields\.h|fusion\.cc)|membership/control_body\.cc)"
        r"|src/protocol/(data_body|exchange_terms|grants)\.cc",
    ),
    (r"hwloc|numa", r"src/base/numa\.cc"),
    (r"infiniband/", r"3rdparty/ps-lite/src/transport/rdma/ibverbs_symbols\.h"),
    (r"immintrin|x86intrin|cpuid", r"src/reduce/|src/codec/kernels/\w+_avx\d+"),
    (r"Python\.h|pybind11|mxnet|nnvm|dmlc|tvm|torch|tensorflow|cuda|nccl", r"(?!)"),
    # Our own want quotes.
    (rf"({'|'.join(['bytescheduler', *MAY_INCLUDE])})/", r"(?!)"),
)
ANGLES = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.M)


def foreign_includes(name: str, text: str) -> "list[str]":
    return [
        target
        for target in ANGLES.findall(text)
        for header, where in FOREIGN
        if re.match(header, target) and not re.match(where, name)
    ]


def test_frameworks_are_known_where_they_are_wrapped_only() -> None:
    wrong = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        found = foreign_includes(name, path.read_text())
        wrong += [f"{name} may not include <{target}>" for target in found]
    assert not wrong, "\n".join(wrong)


def test_the_rule_on_frameworks_can_fail() -> None:
    assert foreign_includes("src/core/core.cc", "#include <zmq.h>\n") == ["zmq.h"]
    assert foreign_includes("src/frontend/mxnet/mxnet.cc", "#include <mxnet/c_api.h>") == [
        "mxnet/c_api.h"
    ]
    assert foreign_includes("src/worker/worker.cc", "#  include <ps/message.h>") == ["ps/message.h"]
    assert foreign_includes("src/node/node.cc", "#include <server/sync/slot.h>") == [
        "server/sync/slot.h"
    ]
    assert (
        foreign_includes("3rdparty/ps-lite/src/transport/zmq/zmq_connection.cc", "#include <zmq.h>")
        == []
    )
