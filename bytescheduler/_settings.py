"""The settings that Python reads, typed and frozen; the engine reads the environment.

`Settings` is made here alone.  A setting that Python needs is one more field with its reader.
"""

import dataclasses
import re
from typing import Callable, FrozenSet, Mapping, Optional, Tuple, TypeVar, cast

from bytescheduler._native import settings, values
from bytescheduler._process.where import bare

__all__ = ["Settings", "seconds", "size"]

_T = TypeVar("_T")
# Where one of both is set, the other is this if it is auto; src/base/types.h has it.
_FIRST_PARTITION_BYTES = 128 << 10
_FIRST_CREDIT_BYTES = 512 << 10
_UNITS_S = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(value: str) -> float:
    """Return a time as a setting that was checked has it, such as ``500ms``, in seconds."""
    number, unit = re.fullmatch(r"([\d.]+)(\D*)", value).groups()  # type: ignore[union-attr]
    return float(number) * _UNITS_S[unit]


def size(value: str) -> int:
    """Return a size as settings have it, such as ``128KiB``, in bytes.

    Raises
    ------
    ValueError
        It is none.
    """
    match = re.fullmatch(r"(\d+)(|B|[KMG]|[KMG]i?B)", value)
    if match is None:
        raise ValueError(f"{value}: want bytes, such as 8388608 or 8MiB")
    number, unit = match.groups()
    return int(number) << 10 * "BKMG".index(unit[:1] or "B")


def _size_or_auto(value: str) -> Optional[int]:
    return None if value == "auto" else size(value)


def _count(value: str) -> int:
    return int(value or "0")


def _known_count(value: str) -> Optional[int]:
    return int(value) if value else None


def _flag(value: str) -> bool:
    return value.lower() not in ("", "0", "false", "no", "off")


def _names(value: str) -> Tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _row(name: str, read: Callable[[str], _T]) -> _T:
    """Return the field of a setting: its name, and the function that reads its text."""
    return cast(_T, dataclasses.field(metadata={"name": name, "read": read}))


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of this process.

    A malformed value reads as the default: `check_settings` refuses it, in better words.  Texts
    that are not set are empty, numbers 0 or None.
    """

    role: str = _row("DMLC_ROLE", str)
    num_workers: Optional[int] = _row("DMLC_NUM_WORKER", _known_count)
    num_servers: Optional[int] = _row("DMLC_NUM_SERVER", _known_count)
    worker_id: int = _row("DMLC_WORKER_ID", int)  # -1: any
    root_host: str = _row("DMLC_PS_ROOT_URI", bare)
    root_port: int = _row("DMLC_PS_ROOT_PORT", _count)
    node_host: str = _row("DMLC_NODE_HOST", bare)
    interface: str = _row("DMLC_INTERFACE", str)
    port: int = _row("DMLC_PORT", _count)
    uses_files: bool = _row("DMLC_LOCAL", _flag)  # in /tmp, instead of addresses
    uses_kubernetes: bool = _row("DMLC_USE_KUBERNETES", _flag)
    backend: str = _row("BYTESCHEDULER_BACKEND", str)
    comm: str = _row("BYTESCHEDULER_COMM", str)
    local_sums: str = _row("BYTESCHEDULER_LOCAL_SUMS", str)
    rdma: str = _row("DMLC_ENABLE_RDMA", str)
    timeline: str = _row("BYTESCHEDULER_TIMELINE", str)
    partition_bytes: Optional[int] = _row("BYTESCHEDULER_PARTITION", _size_or_auto)  # None: auto
    credit_bytes: Optional[int] = _row("BYTESCHEDULER_CREDIT", _size_or_auto)
    min_compress_bytes: int = _row("BYTESCHEDULER_MIN_COMPRESS", size)
    tuning: str = _row("BYTESCHEDULER_TUNING", str)
    tuning_cache: str = _row("BYTESCHEDULER_TUNING_CACHE", str)
    secret_file: str = _row("BYTESCHEDULER_SECRET_FILE", str)
    timeout_s: float = _row("BYTESCHEDULER_TIMEOUT", seconds)
    straggler_s: float = _row("BYTESCHEDULER_STRAGGLER_TIMEOUT", seconds)
    rejoin_s: float = _row("BYTESCHEDULER_REJOIN_TIMEOUT", seconds)
    own_rendezvous_s: float = _row("BYTESCHEDULER_RENDEZVOUS_TIMEOUT", seconds)
    grace_s: float = _row("BYTESCHEDULER_GRACE", seconds)
    pickles: str = _row("BYTESCHEDULER_PICKLES", str)
    trusted_modules: Tuple[str, ...] = _row("BYTESCHEDULER_TRUSTED_MODULES", _names)
    log_level: str = _row("BYTESCHEDULER_LOG_LEVEL", str)
    metrics: str = _row("BYTESCHEDULER_METRICS", str)
    tf_op: str = _row("BYTESCHEDULER_TF_OP", str)
    changed: FrozenSet[str] = frozenset()  # names of settings that are not at their defaults

    @classmethod
    def read(cls, overrides: Optional[Mapping[str, str]] = None) -> "Settings":
        """Return the settings of this process as they stand; never fails.

        `overrides` win over the environment.
        """
        rows = values(overrides)
        changed = frozenset(row.name for row in rows if row.origin not in ("default", "not set"))
        return cls.of({row.name: row.value for row in rows}, changed)

    @classmethod
    def of(cls, texts: Mapping[str, str], changed: Optional[FrozenSet[str]] = None) -> "Settings":
        """Return settings with these texts; those that are not among them have their defaults."""
        changed = frozenset(texts) if changed is None else changed
        defaults = {row.name: row.default.replace("required", "") for row in settings()}
        fields = {}
        for field in dataclasses.fields(cls):
            if "name" in field.metadata:
                name, read = field.metadata["name"], field.metadata["read"]
                fields[field.name] = _read(read, texts.get(name, defaults[name]), defaults[name])
        return cls(changed=changed, **fields)

    @property
    def rendezvous_s(self) -> float:
        """How long a process waits for the other nodes at the start."""
        is_told = "BYTESCHEDULER_TIMEOUT" in self.changed
        is_own = "BYTESCHEDULER_RENDEZVOUS_TIMEOUT" in self.changed
        return self.timeout_s if is_told and not is_own else self.own_rendezvous_s

    @property
    def is_talkative(self) -> bool:
        """True if the log has lines about success too."""
        return self.log_level in ("info", "debug")

    @property
    def sums_by_library(self) -> bool:
        """True if a library of collective operations makes the sums, and sizes its operations."""
        return self.comm in ("mpi", "nccl") or self.local_sums == "nccl"

    @property
    def nccl_by(self) -> Tuple[str, str]:
        """The setting that lets NCCL sum tensors on GPUs, and another one; both empty: none."""
        if self.comm == "nccl":
            return "BYTESCHEDULER_COMM=nccl", "BYTESCHEDULER_COMM=direct"
        if self.local_sums == "nccl":
            return "BYTESCHEDULER_LOCAL_SUMS=nccl", "BYTESCHEDULER_LOCAL_SUMS=1"
        return "", ""

    @property
    def tuning_is_given(self) -> bool:
        """True if tuning was asked for, or refused."""
        return "BYTESCHEDULER_TUNING" in self.changed

    @property
    def partitions_are_given(self) -> bool:
        """True if partitions or credit were set by hand."""
        return self.partition_bytes is not None or self.credit_bytes is not None

    @property
    def sizes(self) -> Tuple[int, int]:
        """Partition and credit with which a job begins, in bytes."""
        return (
            self.partition_bytes or _FIRST_PARTITION_BYTES,
            self.credit_bytes or _FIRST_CREDIT_BYTES,
        )


def _read(read: Callable[[str], _T], text: str, default: str) -> _T:
    try:
        return read(text)
    except (AttributeError, KeyError, ValueError):
        return read(default)
