"""The host: cores, NUMA nodes, kernels, limits of the system, free space."""

import os
import pathlib
import resource
import shutil
import socket
from typing import List, Optional, Sequence

from bytescheduler._doctor.findings import Finding, good, problem, warning
from bytescheduler._native import HostFact
from bytescheduler._process.say import counted

__all__ = ["check"]

_AREA = "host"
_MIB = 1 << 20
_GIB = 1 << 30
# Python does not name it yet; 3rdparty/ps-lite/src/transport/tcp_socket.cc sets it.
_TCP_RTO_MAX_MS = 44
_FILES_PER_PEER = 4
_FILES_OF_A_PROCESS = 256  # libraries, the data and the log of a training script
_FEW_FILES = 1024
_ENOUGH_PROCESSORS = 2  # one for the network, one for summing or training
_SMALL_BUFFER_BYTES = _MIB  # 10 Gbit/s over about a millisecond
_LITTLE_SPACE_BYTES = 256 * _MIB


def _size(size_bytes: int) -> str:
    if size_bytes >= _GIB:
        return f"{size_bytes / _GIB:.3g} GiB"
    return f"{size_bytes / _MIB:.3g} MiB"


def _processor(facts: Sequence[HostFact]) -> List[Finding]:
    usable = len(os.sched_getaffinity(0))
    text = f"{usable} of {os.cpu_count()} CPU cores may be used"
    cores = good(_AREA, "cores", text)
    if usable == 1:
        advice = "give the process more (taskset, cpusets): network and summing share one now"
        cores = warning(_AREA, "cores", text, advice)
    quota = [_quota(float(fact.name), usable) for fact in facts if fact.what == "quota"]
    nodes = [fact for fact in facts if fact.what == "numa"]
    layout = "; ".join(f"node {node.name}: cores {node.value}" for node in nodes)
    kernels = next(fact.name for fact in facts if fact.what == "kernels")
    return [
        cores,
        *quota,
        good(_AREA, "numa", f"{counted(len(nodes), 'NUMA node')} ({layout})"),
        good(_AREA, "kernels", f"servers sum with {kernels} kernels"),
    ]


def _quota(processors: float, usable: int) -> Finding:
    text = f"the control group allows the time of {processors:g} processors"
    if processors >= min(usable, _ENOUGH_PROCESSORS):
        return good(_AREA, "quota", text)
    text += f", fewer than the {counted(usable, 'core')}: the kernel halts the process beyond that"
    advice = (
        "give it more (docker --cpus, resources.limits.cpu in Kubernetes, CPUQuota= in systemd); "
        "a server makes few threads and bs-io does not spin there"
    )
    return warning(_AREA, "quota", text, advice)


def _files(peers: Optional[int]) -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FEW_FILES if peers is None else _FILES_OF_A_PROCESS + _FILES_PER_PEER * peers
    text = f"{soft if soft >= 0 else 'any number of'} open files allowed"
    if soft < 0 or soft >= wanted:
        return good(_AREA, "open_files", text)
    advice = f"ulimit -n {wanted}"
    if 0 <= hard < wanted:
        advice += f", which the hard limit of {hard} forbids: raise that first (limits.conf)"
    if peers is None:
        return warning(_AREA, "open_files", text, advice)
    text += f"; {counted(peers, 'other node')} may need {wanted}"
    return problem(_AREA, "open_files", text, advice)


def _locked_memory() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    text = "any amount of" if soft < 0 else f"up to {_size(soft)} of"
    return good(_AREA, "locked_memory", f"{text} memory may be locked, which RDMA alone needs")


def _numbers(path: pathlib.Path) -> List[int]:
    """Return the numbers in a file of /proc/sys; none where the system has no such file."""
    try:
        return [int(word) for word in path.read_text().split()]
    except (OSError, ValueError):
        return []


def _buffers(sysctl: pathlib.Path) -> Finding:
    receive = _numbers(sysctl / "net/ipv4/tcp_rmem")[-1:]
    send = _numbers(sysctl / "net/ipv4/tcp_wmem")[-1:]
    fixed = [_numbers(sysctl / "net/core" / name) for name in ("rmem_max", "wmem_max")]
    if not receive or not send or not all(fixed):
        return good(_AREA, "socket_buffers", "the system does not tell the sizes of its buffers")
    text = (
        f"TCP buffers grow to {_size(receive[0])} received, {_size(send[0])} sent "
        f"(net.core: rmem_max {_size(fixed[0][0])}, wmem_max {_size(fixed[1][0])})"
    )
    small = [
        name
        for name, (size,) in (("tcp_rmem", receive), ("tcp_wmem", send))
        if size < _SMALL_BUFFER_BYTES
    ]
    if not small:
        return good(_AREA, "socket_buffers", text)
    advice = "; ".join(f'sysctl -w net.ipv4.{name}="4096 131072 4194304"' for name in small)
    return warning(_AREA, "socket_buffers", text, advice)


def _backlog(sysctl: pathlib.Path, peers: Optional[int]) -> Finding:
    limits = _numbers(sysctl / "net/core/somaxconn")
    if not limits:
        return good(_AREA, "backlog", "the system does not tell how many connections may wait")
    text = f"{counted(limits[0], 'connection')} may wait to be accepted (net.core.somaxconn)"
    if peers is None or limits[0] >= peers:
        return good(_AREA, "backlog", text)
    text += f"; {counted(peers, 'other node')} may come at once"
    return warning(_AREA, "backlog", text, f"sysctl -w net.core.somaxconn={peers}")


def _retransmission() -> Finding:
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MAX_MS, 1000)
        except OSError:
            return warning(
                _AREA,
                "tcp_rto_max_ms",
                "the kernel has no TCP_RTO_MAX_MS: after an outage a connection may stay silent "
                "for as long again",
                "Linux 6.15 or newer has it; otherwise allow for it in "
                "BYTESCHEDULER_HEARTBEAT_TIMEOUT",
            )
    return good(_AREA, "tcp_rto_max_ms", "the kernel has TCP_RTO_MAX_MS: short waits after outages")


def _congestion(sysctl: pathlib.Path) -> Finding:
    try:
        name = (sysctl / "net/ipv4/tcp_congestion_control").read_text().strip()
    except OSError:
        return good(_AREA, "congestion", "the system does not tell TCP's congestion control")
    text = f"TCP's congestion control is {name} (net.ipv4.tcp_congestion_control)"
    if name != "bbr":
        return good(_AREA, "congestion", text)
    text += ": after an outage a connection may crawl for ten seconds and more"
    return warning(
        _AREA, "congestion", text, "sysctl -w net.ipv4.tcp_congestion_control=cubic in a cluster"
    )


def _space(name: str, path: pathlib.Path, what_for: str) -> Finding:
    try:
        free = shutil.disk_usage(path).free
    except OSError as error:
        return warning(_AREA, name, f"{path}: {error.strerror}", f"{what_for} need it")
    text = f"{_size(free)} free in {path}"
    if not os.access(path, os.W_OK | os.X_OK):
        return warning(
            _AREA, name, f"{path} is not writable", f"{what_for} need it: chmod 1777 {path}"
        )
    if free >= _LITTLE_SPACE_BYTES:
        return good(_AREA, name, text)
    return warning(_AREA, name, text, f"make room: {what_for} need it")


def check(
    facts: Sequence[HostFact],
    peers: Optional[int],
    *,
    sysctl: pathlib.Path = pathlib.Path("/proc/sys"),
    shm: pathlib.Path = pathlib.Path("/dev/shm"),
    tmp: pathlib.Path = pathlib.Path("/tmp"),
) -> List[Finding]:
    """Look at the host.

    Parameters
    ----------
    facts : sequence of HostFact
        What the engine finds.
    peers : int or None
        How many other nodes the job has, where that is known.
    sysctl, shm, tmp : pathlib.Path, optional
        Where the system has them.
    """
    return [
        *_processor(facts),
        _files(peers),
        _locked_memory(),
        _buffers(sysctl),
        _backlog(sysctl, peers),
        _retransmission(),
        _congestion(sysctl),
        _space("shm", shm, "workers of a data loader (in a container: --shm-size)"),
        _space("tmp", tmp, "jobs with DMLC_LOCAL=1, and temporary files,"),
    ]
