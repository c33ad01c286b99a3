"""`bytescheduler top`: what a running job does, read from the metrics of its processes."""

import json
import socket
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import click

from bytescheduler._metrics import reader
from bytescheduler._metrics.addresses import MOST_PORTS, parse_address
from bytescheduler._process.numbers import Seconds, shortened
from bytescheduler._process.say import plain, say
from bytescheduler._settings import Settings

__all__ = ["command", "text"]

_QUICK_S = 0.5  # a look at all ports that takes no longer is made each time
_HOME = "\x1b[H\x1b[J"  # where a terminal begins to draw, on an empty screen
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}

Report = Dict[str, List[Dict[str, Any]]]


class _Address(click.ParamType):
    name = "[HOST:]PORT"

    def convert(
        self, value: object, param: Optional[click.Parameter], ctx: Optional[click.Context]
    ) -> reader.Place:
        """Return host and port."""
        try:
            host, port = parse_address(str(value))
        except ValueError:
            host, port = "", 0
        if str(value).startswith(":") or not 0 < port < 65536:
            self.fail(f"{shortened(str(value))}: want PORT or HOST:PORT, such as 18600", param, ctx)
        return _ANYWHERE.get(host, host), port


def _bytes(number: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} B"


def _rate(number: float) -> str:
    return f"{_bytes(number)}/s"


def _seconds(number: float) -> str:
    return f"{number:.3g} s" if number >= 1 else f"{number * 1e3:.3g} ms"


def _state(row: Dict[str, Any]) -> str:
    if row["failed"]:
        return "failed"
    if not row["answers"]:
        return "busy"
    return "joining" if row["rank"] is None else ""


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    lines = ("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _name(row: Dict[str, Any]) -> str:
    return "?" if row["rank"] is None else str(row["rank"])


def _workers(rows: List[Dict[str, Any]]) -> str:
    head = ("worker", "steps/s", "step", "pushed", "pulled", "queued", "in flight", "credit", "")
    return _columns(
        [
            head,
            *(
                (
                    _name(row),
                    f"{row['steps_per_s']:.3g}",
                    _seconds(row["step_s"]) if row["step_s"] > 0 else "-",
                    _rate(row["pushed_bytes_per_s"]),
                    _rate(row["pulled_bytes_per_s"]),
                    _bytes(row["queued_bytes"]),
                    _bytes(row["in_flight_bytes"]),
                    _bytes(row["credit_bytes"]),
                    _state(row),
                )
                for row in rows
            ),
        ]
    )


def _servers(rows: List[Dict[str, Any]]) -> str:
    head = ("server", "sums/s", "received", "sent", "open", "partitions", "memory", "")
    return _columns(
        [
            head,
            *(
                (
                    _name(row),
                    f"{row['rounds_per_s']:.3g}",
                    _rate(row["pushed_bytes_per_s"]),
                    _rate(row["pulled_bytes_per_s"]),
                    str(row["open_rounds"]),
                    str(row["partitions"]),
                    _bytes(row["value_bytes"] + row["held_bytes"]),
                    _state(row),
                )
                for row in rows
            ),
        ]
    )


def _stragglers(rows: List[Dict[str, Any]]) -> str:
    late = [row for row in rows if row["waited_share"] > 0 or row["awaited_rounds"] > 0][:5]
    if len(rows) < 2 or not late:
        return ""
    head = ("waits for", "share", "each", "now")
    cells = (
        (
            f"worker {row['worker']}",
            f"{row['waited_share']:.0%}",
            _seconds(row["wait_s"]),
            str(row["awaited_rounds"]),
        )
        for row in late
    )
    return _columns([head, *cells])


def _schedulers(rows: List[Dict[str, Any]]) -> str:
    head = ("scheduler", "workers", "servers", "longest silent", "")
    cells = []
    for row in rows:
        longest = row["silent"][0] if row["silent"] else None
        silent = f"{longest['node']}, {_seconds(longest['silent_s'])}" if longest else "-"
        state = "busy" if not row["answers"] else "" if row["workers"] else "joining"
        cells.append(("", str(row["workers"]), str(row["servers"]), silent, state))
    return _columns([head, *cells])


def text(report: Report) -> str:
    """Return a report for people."""
    tables = [
        _workers(report["workers"]) if report["workers"] else "",
        _servers(report["servers"]) if report["servers"] else "",
        _stragglers(report["stragglers"]),
        _schedulers(report["schedulers"]) if report["schedulers"] else "",
    ]
    return "\n".join(table for table in tables if table)


def _places(arguments: Sequence[reader.Place]) -> List[reader.Place]:
    if arguments:
        return list(arguments)
    setting = Settings.read().metrics
    if not setting:
        raise click.UsageError(
            "say where the job shows its metrics: bytescheduler top PORT, where the job was "
            "started with BYTESCHEDULER_METRICS=PORT"
        )
    try:
        return [_Address()(setting)]
    except click.BadParameter:
        raise click.UsageError(
            f"BYTESCHEDULER_METRICS={shortened(setting)} names no port to look at: say which, "
            "such as bytescheduler top 18600"
        ) from None


def _nothing(places: Sequence[reader.Place]) -> str:
    ranges = ", ".join(f"{host}:{port} to {port + MOST_PORTS - 1}" for host, port in places)
    return (
        f"bytescheduler: no process of a job shows metrics at {plain(ranges)}: is it running, and "
        "was it started with BYTESCHEDULER_METRICS?"
    )


def _unknown(places: Sequence[reader.Place]) -> Optional[str]:
    """Return which host has no address, and why; None if all have one."""
    for host, _ in places:
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError) as error:  # a label that is empty or too long
            return f"bytescheduler: {plain(host)}: {getattr(error, 'strerror', None) or error}"
    return None


class _Job:
    """The processes of a job that show metrics."""

    def __init__(self, places: Sequence[reader.Place]) -> None:
        self._all = [port for place in places for port in reader.ports(place)]
        self._quick = True
        self.nodes: Dict[reader.Place, reader.Node] = {}

    def look(self) -> Tuple[Dict[reader.Place, reader.Node], Dict[reader.Place, reader.Node]]:
        """Return what was there the last time, and what is there now."""
        before = self.nodes
        begin = time.monotonic()
        everywhere = self._quick or not before
        self.nodes = reader.scan(self._all if everywhere else before, before)
        self._quick = not everywhere or time.monotonic() - begin < _QUICK_S
        return before, self.nodes


def _show(report: Report, as_json: bool, draws: bool) -> None:
    if as_json:
        click.echo(json.dumps({"time": time.time(), **report}))
        return
    shown = text(report) or "the job is coming together\n"
    click.echo(f"{_HOME if draws else ''}{shown}", nl=draws)
    if not draws:
        click.echo()


def _failed(report: Report) -> bool:
    return any(row["failed"] for rows in (report["workers"], report["servers"]) for row in rows)


def _watch(job: _Job, interval_s: float, once: bool, as_json: bool) -> int:
    """Show reports until the job is over; return the exit code."""
    draws = sys.stdout.isatty() and not once and not as_json
    somebody = True  # was there at the last look
    while True:
        time.sleep(interval_s)
        before, now = job.look()
        if not now:
            if once or not somebody:
                say("bytescheduler: the job has ended, or shows no metrics any more")
                return 1 if once else 0
            somebody = False
            continue
        somebody = True
        report = reader.report(before, now)
        _show(report, as_json, draws)
        if once:
            return 1 if _failed(report) else 0


@click.command("top", short_help="Show what a running job does.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line for each look.")
@click.option("--once", is_flag=True, help="Look once, for one interval, and end.")
@click.option(
    "--interval",
    type=Seconds(0.2, 3600),
    default=2.0,
    metavar="S",
    help="Seconds from one look to the next (default 2).",
)
@click.argument("addresses", nargs=-1, type=_Address(), metavar="[[HOST:]PORT]...")
def command(
    as_json: bool, once: bool, interval: float, addresses: Tuple[reader.Place, ...]
) -> None:
    """Show the work of a running job: rates, queues, credit, and the workers that others wait for.

    Reads the metrics of jobs started with BYTESCHEDULER_METRICS=PORT, at PORT and the ports behind
    it, on each host named.  Ends with 0 when the job has ended, with 1 if there is none (or, with
    --once, if a node of it has failed).
    """
    try:
        import prometheus_client.parser  # noqa: F401
    except ImportError as error:
        say(f"bytescheduler: {error}: pip install prometheus-client")
        sys.exit(1)
    places = _places(addresses)
    unknown = _unknown(places)
    if unknown is not None:
        say(unknown)
        sys.exit(1)
    job = _Job(places)
    job.look()
    if not job.nodes:
        say(_nothing(places))
        sys.exit(1)
    try:
        sys.exit(_watch(job, interval, once, as_json))
    except KeyboardInterrupt:  # the usual way to end it
        sys.exit(0)
