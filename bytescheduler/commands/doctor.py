"""`bytescheduler doctor`: looks for what would keep a job from running well on this host."""

import json
import os
import re
import sys
from typing import Dict, List, Optional, Tuple

import click

from bytescheduler import config
from bytescheduler._doctor import host, network, rdma, software
from bytescheduler._doctor.findings import Finding, as_text, good, problem, split_cure, warning
from bytescheduler._doctor.link import Answerer, LinkError, Measurement, measure
from bytescheduler._doctor.reads import EXPERIMENT, OTHER_HOST, Reads, answer_with, measure_reads
from bytescheduler._native import RdmaProbe, about_host
from bytescheduler._process.numbers import Count, Seconds, shortened
from bytescheduler._process.say import counted, plain, say
from bytescheduler._process.where import at, bare
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError

__all__ = ["command", "examine"]

_LIMIT_S = 5.0  # for a name, and for another host to answer
_ELSEWHERE = "192.0.2.1"  # RFC 5737: stands for a scheduler node on some other host


def _settings() -> Tuple[List[Finding], Settings, Dict[str, str]]:
    """Return findings, the values that are right, and overrides that make the engine take them."""
    wrong, overrides = config.examine()
    advice = "correct it, or unset it; bytescheduler config shows all settings"
    findings = [problem("settings", row.name, row.message, advice) for row in wrong]
    if not findings:
        count = sum(row.origin == "environment" for row in config.values())
        text = f"{counted(count, 'setting')} in the environment, all well-formed"
        findings = [good("settings", "settings", text)]
    right = {row.name: "" if row.name in overrides else row.value for row in config.values()}
    return findings, Settings.of(right, frozenset()), overrides


def _num_peers(settings: Settings) -> Optional[int]:
    workers, servers = settings.num_workers, settings.num_servers
    return None if workers is None or servers is None else workers + servers


def examine() -> List[Finding]:
    """Look at this process's settings, software, host, network and RDMA devices.

    Blocks while MXNet is imported elsewhere, and while names and the scheduler node are asked for;
    each has a deadline.
    """
    findings, settings, overrides = _settings()
    # The engine's own look-up has no deadline, so it gets an address.
    root = settings.root_host
    try:
        address = network.resolve(root, _LIMIT_S) if root else _ELSEWHERE
    except OSError:
        address = _ELSEWHERE
    facts = about_host({**overrides, "DMLC_PS_ROOT_URI": address})
    return [
        *findings,
        *software.check(settings.role),
        *host.check(facts, _num_peers(settings)),
        *network.check(settings, facts, limit_s=_LIMIT_S),
        *rdma.check(facts, settings.rdma),
    ]


def _rate(bits_per_s: float) -> str:
    return (
        f"{bits_per_s / 1e9:.3g} Gbit/s" if bits_per_s >= 1e9 else f"{bits_per_s / 1e6:.3g} Mbit/s"
    )


def _link_findings(peer: str, link: Measurement) -> List[Finding]:
    there, back = link.to_peer_bits_per_s, link.from_peer_bits_per_s
    text = f"{_rate(there)} to {peer}, {_rate(back)} from it"
    goodput = good("link", "goodput", text)
    if max(there, back) > 2 * min(there, back):
        advice = "gradients and sums need the same rate: look at duplex, shaping, other traffic"
        goodput = warning("link", "goodput", text, advice)
    return [
        good("link", "round_trip", f"{link.round_trip_us / 1e3:.3g} ms to {peer} and back"),
        goodput,
    ]


def _unmeasured(shown: str, error: Exception, advice: str) -> Finding:
    reason = (isinstance(error, OSError) and error.strerror) or error
    return problem("link", "link", f"the link to {shown} was not measured: {reason}", advice)


def _ask(
    peer: Tuple[str, int], shown: str, time_s: float
) -> Tuple[List[Finding], Optional[Measurement]]:
    try:
        link = measure(peer, time_s=time_s)
    except (LinkError, OSError) as error:
        advice = "run bytescheduler doctor --listen PORT there; let the hosts reach each other"
        return [_unmeasured(shown, error, advice)], None
    return _link_findings(shown, link), link


def _open_probe(peer: str) -> RdmaProbe:
    """Open the device that has this host's address on the way to `peer`, unless settings say."""
    _, overrides = config.examine()
    return RdmaProbe.open({**overrides, "DMLC_PS_ROOT_URI": peer})


def _reads_findings(peer: str, reads: List[Reads]) -> List[Finding]:
    return [
        good(
            "link",
            f"rdma_read_{read.size_bytes}",
            f"a READ of {read.size_bytes} bytes from {peer} by RDMA: "
            f"{read.median_us / 1e3:.3g} ms, {_rate(read.bits_per_s)}",
        )
        for read in reads
    ]


def _ask_rdma(peer: Tuple[str, int], shown: str) -> Tuple[List[Finding], Optional[List[Reads]]]:
    try:
        reads = measure_reads(peer, _open_probe)
    except LinkError as error:
        message = str(error)
        begin = len(OTHER_HOST) if message.startswith(OTHER_HOST) else 0
        reason, advice = split_cure(message[begin:])
        reason = message[:begin] + reason
    except OSError as error:
        reason, advice = error.strerror or str(error), ""
    else:
        return _reads_findings(shown, reads), reads
    text = f"RDMA to {shown} was not measured: {reason}"
    advice = advice or "run bytescheduler doctor --listen PORT there, of the same version"
    return [problem("link", "rdma", text, advice)], None


def _measure(
    peer: Tuple[str, int], time_s: float, *, by_rdma: bool
) -> Tuple[List[Finding], Optional[Measurement], Optional[List[Reads]]]:
    shown = at(*peer)
    try:
        address = (network.resolve(peer[0], _LIMIT_S), peer[1])
    except OSError as error:
        advice = "correct the name of the host, or write its address"
        return [_unmeasured(shown, error, advice)], None, None
    # RDMA first: the measurement of TCP ends the other side.
    first, reads = _ask_rdma(address, shown) if by_rdma else ([], None)
    second, link = _ask(address, shown, time_s)
    return first + second, link, reads


def _listen(port: int, wait_s: float, as_json: bool) -> int:
    """Answer one measurement; return the exit code."""
    try:
        answerer = Answerer(port, {EXPERIMENT: answer_with(_open_probe)})
    except OSError as error:
        say(f"bytescheduler: cannot listen on port {port}: {os.strerror(error.errno or 0)}")
        return 1
    port = answerer.port
    try:
        say(
            f"listening on port {port} for {wait_s:g} s; on the other host: "
            f"bytescheduler doctor --peer THIS-HOST:{port}"
        )
        peer = answerer.serve(wait_s, lambda line: say(f"bytescheduler: refused {plain(line)}"))
    except OSError as error:
        say(f"bytescheduler: cannot accept a connection: {error.strerror}")
        return 1
    finally:
        answerer.close()
    if as_json:
        click.echo(json.dumps({"port": port, "peer": peer}))
    elif peer:
        click.echo(f"{peer} has measured the link and shows what it found")
    if not peer:
        say(f"bytescheduler: no host measured the link in {wait_s:g} s")
    return 0 if peer else 1


class _HostPort(click.ParamType):
    name = "HOST:PORT"

    def convert(
        self, value: object, param: Optional[click.Parameter], ctx: Optional[click.Context]
    ) -> Tuple[str, int]:
        """Return host and port."""
        host_name, _, port = str(value).rpartition(":")
        if not host_name or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
            self.fail(f"{shortened(str(value))}: want HOST:PORT, such as 10.0.0.2:9095", param, ctx)
        return bare(host_name), int(port)


@click.command("doctor", short_help="Look for what would keep a job from running well here.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--peer", type=_HostPort(), help="Also measure the link to a host that listens.")
@click.option(
    "--rdma", "by_rdma", is_flag=True, help="With --peer: also measure READs by RDMA from there."
)
@click.option(
    "--listen",
    type=Count(0, 65535),
    is_flag=False,
    flag_value=0,
    metavar="[PORT]",
    help="Only answer a measurement of another host, on any free port if none is given.",
)
@click.option(
    "--seconds",
    type=Seconds(0.1, 20),
    help="How long to send, with --peer (default 2; never more than 256 MiB).",
)
@click.option(
    "--wait",
    type=Seconds(0.1, 86400),
    metavar="S",
    help="How long to wait for the other host, with --listen (default 60).",
)
def command(
    as_json: bool,
    peer: Optional[Tuple[str, int]],
    by_rdma: bool,
    listen: Optional[int],
    seconds: Optional[float],
    wait: Optional[float],
) -> None:
    """Look for what would keep a job from running well here, and say what to do.

    Run it where a node of a job would run, with the same variables set.  Ends with exit code 1 if
    there is a problem; warnings alone are no failure.
    """
    if listen is not None:
        if peer is not None or seconds is not None or by_rdma:
            raise click.UsageError("--listen answers another host: no --peer, --seconds, --rdma")
        sys.exit(_listen(listen, 60.0 if wait is None else wait, as_json))
    if wait is not None:
        raise click.UsageError("--wait goes with --listen")
    if seconds is not None and peer is None:
        raise click.UsageError("--seconds goes with --peer")
    if by_rdma and peer is None:
        raise click.UsageError("--rdma goes with --peer")
    try:
        findings = examine()
    except ConfigError as error:  # a name that is no text cannot be hidden from the engine
        say(f"bytescheduler: {plain(str(error))}")
        sys.exit(2)
    link: Optional[Measurement] = None
    reads: Optional[List[Reads]] = None
    if peer is not None:
        more, link, reads = _measure(peer, 2.0 if seconds is None else seconds, by_rdma=by_rdma)
        findings += more
    levels = [finding.level for finding in findings]
    worst = next(level for level in ("problem", "warning", "ok") if level in levels)
    if as_json:
        report = {
            "worst": worst,
            "findings": [finding._asdict() for finding in findings],
            "link": link._asdict() if link else None,
            "rdma": [read._asdict() for read in reads] if reads else None,
        }
        click.echo(json.dumps(report, indent=2))
    else:
        click.echo(as_text(findings), nl=False)
        counts = [(levels.count(level), level) for level in ("problem", "warning")]
        click.echo(", ".join(counted(count, level) for count, level in counts))
    sys.exit(1 if worst == "problem" else 0)
