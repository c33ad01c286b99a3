"""Types of the native extension (python/_core.pyx)."""

from typing import (
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from bytescheduler.errors import Error

FIRST_BOOKKEEPING_KEY: int

class Setting(NamedTuple):
    """One row of the table of settings."""

    name: str
    kind: str
    unit: str
    default: str
    scope: str
    sentence: str
    for_experts: bool

class Value(NamedTuple):
    """A setting as it stands: origin is "default", "environment" or "argument"."""

    name: str
    value: str
    origin: str

class HostFact(NamedTuple):
    """What this host has: src/host/about_host.h lists the rows."""

    what: str
    name: str
    value: str

class Metric(NamedTuple):
    """A number that a node tells of itself: `of` is a rank where there are several."""

    name: str
    of: Optional[int]
    value: float

class Prediction(NamedTuple):
    """How a job will run; src/predict/predict.h."""

    step_s: float
    simulated_workers: int
    partitions: int
    messages: int
    most_waiting: int
    server_waiting: int
    worker_busy: float
    server_busy: float

def predict(
    layers: Sequence[Tuple[int, float, float]],
    *,
    workers: int,
    servers: int,
    policy: int,
    bytes_per_second: float,
    latency_s: float,
    partition_bytes: int,
    credit_bytes: int,
    steps: int = 6,
    most_workers: int = 8,
    coding_s: Sequence[float] = (0.0, 0.0, 0.0, 0.0),
    places: Optional[Sequence[Tuple[int, float]]] = None,
) -> Prediction: ...
def partition_and_credit(
    *, bytes_per_second: float, round_trip_s: float, servers: int, adds_up: bool = False
) -> Tuple[int, int]: ...
def version() -> str: ...
def c_api() -> object: ...
def fail_exit() -> None: ...
def settings() -> List[Setting]: ...
def values(overrides: Optional[Mapping[str, str]] = None) -> List[Value]: ...
def check_settings(overrides: Optional[Mapping[str, str]] = None) -> None: ...
def leave_for(
    place: str, overrides: Optional[Mapping[str, str]] = None, *, reason: str = ""
) -> None: ...
def vouch_for(workers: int, token: int, overrides: Optional[Mapping[str, str]] = None) -> None: ...
def names_known(overrides: Optional[Mapping[str, str]] = None, *, waited_s: float = 0) -> bool: ...
def await_names(
    overrides: Optional[Mapping[str, str]] = None,
    *,
    is_stopped: Optional[Callable[[], bool]] = None,
) -> bool: ...
def about_host(overrides: Optional[Mapping[str, str]] = None) -> List[HostFact]: ...

class Completions:
    """Operations that have ended; see python/_core.pyx."""

    def wait(self, timeout_ms: int) -> List[int]: ...
    def wake(self) -> None: ...

class Pending:
    """An operation under way; see python/_core.pyx."""

    @property
    def starter(self) -> Tuple[int, int]: ...
    def pushed(self) -> bool: ...
    def over(self) -> bool: ...
    def wait(self) -> None: ...
    def wait_for(self, timeout_ms: int) -> bool: ...

class Worker:
    """A worker's handle on the engine; see python/_core.pyx."""

    @staticmethod
    def open(
        settings: Optional[Mapping[str, str]] = None, *, wanted_rank: int = -1
    ) -> "Worker": ...
    @staticmethod
    def open_kvstore_backend(
        store: "MXNetStore",
        rank: int,
        settings: Optional[Mapping[str, str]] = None,
        *,
        blocks: bool = False,
    ) -> "Worker": ...
    def view(self) -> Tuple[int, int, Tuple[int, ...], int]: ...
    @property
    def rank(self) -> int: ...
    @property
    def num_workers(self) -> int: ...
    @property
    def place(self) -> str: ...
    @property
    def num_servers(self) -> int: ...
    def broadcast(
        self,
        items: Iterable[Tuple[int, int, int, int]],
        *,
        owner: object = None,
        asynchronous: bool = False,
        coding: Optional[Coding] = None,
    ) -> None: ...
    def broadcast_from(
        self, root: int, items: Iterable[Tuple[int, int, int]], *, owner: object = None
    ) -> None: ...
    def broadcast_whole(
        self, items: Iterable[Tuple[int, int, int, int, str, bool]], *, owner: object = None
    ) -> None: ...
    def set_optimizer(self, text: str, pickle: bytes = b"") -> None: ...
    def retune(self, partition_bytes: int, credit_bytes: int) -> None: ...
    def give_back(self, keys: Iterable[int], *, for_good: bool) -> None: ...
    def start_push_pull(
        self,
        key: int,
        send: int,
        recv: int,
        size: int,
        *,
        owner: object,
        priority: int = 0,
        called: int = 0,
        at_once: bool = False,
        waited_ns: int = 0,
        factor: float = 1,
        coding: Optional[Coding] = None,
        rates: Optional[Tuple[float, float, float]] = None,
        deferred: bool = False,
    ) -> Pending: ...
    def start_exchange(
        self,
        key: int,
        givers: Iterable[int],
        takers: Iterable[int],
        *,
        size: int,
        owner: object,
        dtype: int = 0,
        op: int = 0,
        send: int = 0,
        receive: int = 0,
        home: int = -1,
        label: str = "",
        priority: int = 0,
        timeout_s: float = 0,
        completions: Optional[Completions] = None,
        token: int = 0,
    ) -> Pending: ...
    def quit_exchange(self, key: int, reason: str) -> None: ...
    def reprioritise_exchange(self, key: int, priority: int) -> None: ...
    def barrier(self) -> None: ...
    def fail(self, reason: str) -> None: ...
    def explain(self, reason: str) -> None: ...
    def status(self) -> Optional[Error]: ...
    def measure(self, *, timeout_ms: int = 1000) -> List[Metric]: ...
    def name_key(self, key: int, name: str) -> None: ...
    def name_framework(self, name: str) -> None: ...
    def steps(self, *, timeout_ms: int = 1000) -> List[Tuple[int, float]]: ...
    def end_with(self, end: Callable[[bool], None]) -> None: ...
    def close(self, *, drain_ms: int = 10000) -> None: ...
    @property
    def closed(self) -> bool: ...

class RdmaProbe:
    """One end of a measurement of READs by RDMA; see python/rdma.pxi."""

    @staticmethod
    def open(settings: Optional[Mapping[str, str]] = None) -> "RdmaProbe": ...
    @property
    def offer(self) -> str: ...
    def join(self, offer: str) -> None: ...
    def read(self, size_bytes: int, most_reads: int, limit_s: float) -> Tuple[int, float]: ...

class Node:
    """A scheduler or server role on threads of its own; see python/_core.pyx."""

    @staticmethod
    def start(
        settings: Optional[Mapping[str, str]] = None, *, updater: object = None
    ) -> "Node": ...
    @property
    def port(self) -> int: ...
    def wait(self, timeout: Optional[float] = None) -> bool: ...
    def measure(self, *, timeout_ms: int = 1000) -> List[Metric]: ...
    def close(self, reason: str = ...) -> None: ...

class Coding:
    """How gradients are coded, and how their sums travel; see python/coding.pxi."""

    def __init__(self, type: Optional[str], options: Mapping[str, str]) -> None: ...
    @staticmethod
    def of(form: bytes) -> "Coding": ...
    @property
    def codec(self) -> int: ...
    @property
    def parameters(self) -> bytes: ...
    @property
    def pull(self) -> int: ...
    @property
    def feedback(self) -> int: ...
    def sizes(self, size_bytes: int) -> Tuple[int, int]: ...
    def __bytes__(self) -> bytes: ...
    def __eq__(self, value: object) -> bool: ...
    def __hash__(self) -> int: ...

class MXNetRounds:
    """The common part of all rounds of a key; see src/frontend/mxnet/mxnet.h."""

    position: int
    send: int
    def __init__(
        self, key: int, name: Optional[str], recv_handle: int, size: int, joined: bool
    ) -> None: ...
    @property
    def key(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def recv(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...

class MXNetPlugin:
    """Two dependency proxies a tensor and round; see src/frontend/mxnet/mxnet.h."""

    in_place: bool
    copies: bool
    def __init__(
        self,
        worker: Worker,
        functions: Mapping[str, int],
        in_place: bool = False,
        copies: bool = False,
    ) -> None: ...
    def push_pull(
        self,
        rounds: MXNetRounds,
        priority: int,
        *,
        coding: Optional[Coding] = None,
        rates: Optional[Tuple[float, float, float]] = None,
    ) -> None: ...
    def exchange(
        self,
        copier: "MXNetCopier",
        usual: Dict[Union[int, str], MXNetRounds],
        keys: object,
        values: object,
        outs: object,
        priority: int,
        copies_out: bool = True,
    ) -> bool: ...
    def update(
        self,
        rounds: MXNetRounds,
        priority: int,
        *,
        pushes: bool,
        pulls: bool,
        rates: Optional[Tuple[float, float, float]] = None,
        coding: Optional[Coding] = None,
    ) -> None: ...
    def pending(self) -> int: ...
    def drain(self, timeout: Optional[float] = None) -> bool: ...
    def close(self) -> None: ...

class Gate:
    """A gate to a worker for operations of other shared objects; see python/table.pxi."""

    def __init__(self, worker: Worker) -> None: ...
    @property
    def address(self) -> int: ...
    def shut(self) -> None: ...
    def pending(self) -> int: ...
    def wait(self) -> None: ...

class MXNetStore:
    """A stock MXNet store under the kvstore back end; see src/frontend/mxnet/mxnet_store.h."""

    def __init__(self, store: int, functions: Mapping[str, int]) -> None: ...
    @staticmethod
    def exit_at_once() -> None: ...

class MXNetCopier:
    """Copies between plain arrays; see src/frontend/mxnet/mxnet_copy.h."""

    def __init__(self, functions: Mapping[str, int], array_type: type) -> None: ...
    def fits(self, array: int, second: int) -> bool: ...
    def copy(self, src: int, dst: int, priority: int = 0) -> None: ...
