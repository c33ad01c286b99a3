"""The network: interfaces, the address that other nodes see, and that of the scheduler node."""

import contextlib
import errno
import ipaddress
import socket
from typing import List, Sequence

from bytescheduler._doctor.findings import Finding, good, problem, warning, within
from bytescheduler._doctor.link import read_whole
from bytescheduler._native import HostFact
from bytescheduler._process.where import at
from bytescheduler._settings import Settings

__all__ = ["check", "resolve"]

_AREA = "network"
# The first and the tenth byte of every ZMTP greeting.
_GREETING_BYTES = 10


def resolve(host: str, limit_s: float) -> str:
    """Return the first address of `host`, IPv4 if it has such an address, as the engine does.

    Raises
    ------
    OSError
        There is no address, or no answer in `limit_s`.
    """
    try:
        address_rows = within(
            limit_s, lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        )
    except UnicodeError:  # a label that is empty or too long
        raise OSError(errno.EINVAL, "this is no host name") from None
    return str(sorted(address_rows, key=lambda row: row[0] != socket.AF_INET)[0][4][0])


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _is_loopback(address: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    return False


def _names_this_host(host: str) -> bool:
    """Return whether `host` means this host everywhere, so that other hosts are not expected."""
    return _is_loopback(host) or host.partition(".")[0] in ("localhost", "ip6-localhost")


def _is_own(address: str) -> bool:
    """Ask the system, which counts all of 127.0.0.0/8 as this host."""
    with socket.socket(_family(address)) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True


def _own_address(settings: Settings, facts: Sequence[HostFact], limit_s: float) -> Finding:
    address = next(fact for fact in facts if fact.what == "address")
    if not address.name:
        advice = "set DMLC_NODE_HOST or DMLC_INTERFACE to what the others can reach"
        return problem(_AREA, "own_address", address.value, advice)
    source = ""
    if settings.node_host:
        source = f" (DMLC_NODE_HOST={settings.node_host})"
    elif settings.interface:
        source = f" (DMLC_INTERFACE={settings.interface})"
    text = f"a worker or server here shows the others {address.name}{source}"
    interfaces = [fact for fact in facts if fact.what == "interface"]
    if address.name in [fact.name for fact in interfaces]:
        return good(_AREA, "own_address", text)
    there_are = ", ".join(fact.value for fact in interfaces)
    try:
        resolved = resolve(address.name, limit_s)
    except OSError as error:
        text = f"DMLC_NODE_HOST={address.name}: {error.strerror or error}"
        return problem(_AREA, "own_address", text, f"use one of this host's: {there_are}")
    if not _is_own(resolved):
        text = f"DMLC_NODE_HOST={address.name}: no address of this host"
        return problem(_AREA, "own_address", text, f"use one of this host's: {there_are}")
    return good(_AREA, "own_address", text)


def _reach(settings: Settings, facts: Sequence[HostFact], limit_s: float) -> List[Finding]:
    """Return whether other nodes reach the address that this node shows, as far as it can tell."""
    route = next((fact.name for fact in facts if fact.what == "route"), "")
    shown = next(fact.name for fact in facts if fact.what == "address")
    if not shown or not route or not settings.root_host or settings.role == "scheduler":
        return []
    by_name = {fact.name: fact.value for fact in facts if fact.what == "interface"}
    try:
        address = by_name.get(shown) or resolve(shown, limit_s)
    except OSError:
        return []  # own_address says so
    setting = "DMLC_NODE_HOST" if settings.node_host else "DMLC_INTERFACE"
    if address in ("0.0.0.0", "::") or (_is_loopback(address) and not _is_loopback(route)):
        text = (
            f"{address} is no address that other hosts reach, and the scheduler node is elsewhere"
        )
        return [problem(_AREA, "reach", text, f"unset {setting}, or set it to {route}")]
    if address != route and not _is_loopback(route):
        text = (
            f"packets to the scheduler node leave from {route}, and the others are shown {address}"
        )
        advice = f"if they do not reach that one, unset {setting}, or set DMLC_NODE_HOST={route}"
        return [warning(_AREA, "reach", text, advice)]
    return []


def _port(name: str, setting: str, address: str, port: int) -> Finding:
    """Return whether this node could listen there, as the engine would."""
    with socket.socket(_family(address)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            # Several sockets may bind it so, but a single socket may listen.
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                text = f"{setting}: port {port} is in use (fine if this job's own node has it)"
                advice = (
                    f"else take another {setting}; ss -ltnp shows the process that has this one"
                )
                return problem(_AREA, name, text, advice)
            text = f"{setting}: this node cannot listen at {at(address, port)}: {error.strerror}"
            return problem(_AREA, name, text, f"take a {setting} above 1023")
    return good(_AREA, name, f"{setting}: port {port} is free")


def _own_port(settings: Settings) -> List[Finding]:
    """Return whether the port that a server or worker is told to take is free."""
    if settings.role not in ("server", "worker") or settings.port == 0 or settings.uses_files:
        return []
    return [_port("own_port", "DMLC_PORT", "0.0.0.0", settings.port)]


def _greeting(connection: socket.socket, limit_s: float) -> bytes:
    """Return the peer's greeting; empty if it was not whole in time."""
    with contextlib.suppress(OSError):
        return read_whole(connection, _GREETING_BYTES, limit_s)
    return b""


def _connect(address: str, port: int, limit_s: float) -> Finding:
    """Return whether the scheduler node answers."""
    shown_address = at(address, port)
    try:
        with socket.create_connection((address, port), limit_s) as connection:
            greeting = _greeting(connection, limit_s)
    except ConnectionRefusedError:
        text = f"{shown_address} can be reached, but no process listens there"
        advice = "normal before the scheduler node is started; else check DMLC_PS_ROOT_PORT"
        return warning(_AREA, "root_port", text, advice)
    except OSError as error:
        text = f"{shown_address} cannot be reached: {error.strerror or error}"
        advice = "correct DMLC_PS_ROOT_URI, or let the hosts reach each other (routes, firewall)"
        return problem(_AREA, "root_port", text, advice)
    if greeting[:1] + greeting[9:] == b"\xff\x7f":
        return good(_AREA, "root_port", f"the scheduler node answers at {shown_address}")
    text = f"something answers at {shown_address} that is no scheduler node"
    return problem(_AREA, "root_port", text, "choose another DMLC_PS_ROOT_PORT, on every node")


def _only_ours(settings: Settings) -> Finding:
    """Return whether this node needs a node of MXNet's own in a job that meets by IPv6."""
    text = (
        "MXNet's own stores, servers and scheduler node know only IPv4, and the job meets by IPv6"
    )
    needs = settings.role == "worker" and settings.backend in ("kvstore", "passthrough")
    if not needs:
        return good(_AREA, "only_ours", f"{text}: all of its nodes must be ours")
    advice = "unset BYTESCHEDULER_BACKEND, or let the nodes meet at an IPv4 address"
    conflict = f"{text}, but BYTESCHEDULER_BACKEND={settings.backend} needs them"
    return problem(_AREA, "only_ours", conflict, advice)


def _root(settings: Settings, limit_s: float) -> List[Finding]:
    host, port = settings.root_host, settings.root_port
    if not host:
        return [good(_AREA, "root", "DMLC_PS_ROOT_URI is not set: no scheduler node to look for")]
    if settings.uses_files:
        return [good(_AREA, "root", "DMLC_LOCAL: the nodes meet through files in /tmp")]
    listens = settings.role == "scheduler"
    everywhere = settings.uses_kubernetes
    try:
        address = resolve(host, limit_s)
    except OSError as error:
        text = f"DMLC_PS_ROOT_URI={host} cannot be resolved: {error.strerror or error}"
        advice = "correct it, or give the address in numbers; a new pod's name is known late"
        return [problem(_AREA, "root", text, advice)]
    is_here = _is_own(address)
    shown = host if host == address else f"{host} ({address})"
    text = f"DMLC_PS_ROOT_URI={shown}: {'this host' if is_here else 'another host'}"
    if listens and not is_here and not everywhere:
        advice = "start the scheduler node there; in a pod or behind NAT set DMLC_USE_KUBERNETES=1"
        return [problem(_AREA, "root", text, advice)]
    findings = [good(_AREA, "root", text)]
    if _is_loopback(address) and not _names_this_host(host) and not (listens and everywhere):
        text += ", a loopback address, which no other host reaches"
        advice = "give the address of the network, or correct /etc/hosts"
        findings = [warning(_AREA, "root", text, advice)]
    if ":" in address:
        findings.append(_only_ours(settings))
    if port == 0:
        return findings
    if listens:
        every = "::" if ":" in address else "0.0.0.0"
        listened_address = every if everywhere else address
        findings.append(_port("root_port", "DMLC_PS_ROOT_PORT", listened_address, port))
    else:
        findings.append(_connect(address, port, limit_s))
    return findings


def check(settings: Settings, facts: Sequence[HostFact], *, limit_s: float = 5.0) -> List[Finding]:
    """Look at the network.

    Parameters
    ----------
    settings : Settings
        A wrong setting counts as not set.
    facts : sequence of HostFact
        The engine's view of this host.
    limit_s : float, optional
        How long a name may take to be looked up, and another host to answer.
    """
    interface_texts = [f"{fact.name} {fact.value}" for fact in facts if fact.what == "interface"]
    interfaces = good(_AREA, "interfaces", f"interfaces: {', '.join(interface_texts)}")
    if not interface_texts:
        text = "no network interface has an address"
        interfaces = problem(_AREA, "interfaces", text, "ip address shows them; bring one up")
    return [
        interfaces,
        _own_address(settings, facts, limit_s),
        *_reach(settings, facts, limit_s),
        *_own_port(settings),
        *_root(settings, limit_s),
    ]
