"""`bytescheduler advise`: the gain by scheduling, before anything is installed on a cluster.

Workers and servers of the engine replay a model's profile on simulated time (docs/user/advise.md).
"""

import contextlib
import json
import signal
import sys
from typing import Iterator, Optional, Tuple

import click

from bytescheduler._advise import models, profile
from bytescheduler._advise.advice import FEW, Cluster, advise, table
from bytescheduler._advise.shape import Shape, factors_of
from bytescheduler._process.numbers import Count, Seconds, bits_per_s, seconds_of, shortened
from bytescheduler._process.progress import progress
from bytescheduler._process.say import plain, say
from bytescheduler._settings import Settings
from bytescheduler.config import examine
from bytescheduler.errors import ConfigError, Error

__all__ = ["command"]


_EXAMPLE = """\
bytescheduler: advise predicts a training step on hosts that need not be there. Record your script
on this host, then say the rate of the links and how many hosts there will be:

  bytescheduler launch --local --record model.json --record-steps 20 -- python train.py
  bytescheduler advise model.json --rate 10gbit --workers 8 --servers 8

or take a known model, and the time that a worker computes in a step:

  bytescheduler advise --model resnet50 --compute 0.25 --rate 10gbit

`bytescheduler advise --help` has all options."""


def _rate(
    context: click.Context, parameter: click.Parameter, text: Optional[str]
) -> Optional[float]:
    try:
        if text is None:
            return None
        return bits_per_s(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _latency(context: click.Context, parameter: click.Parameter, text: str) -> float:
    seconds = seconds_of(text)
    if not 0 <= seconds <= 1:
        raise click.BadParameter(f"{shortened(text)}: want a time of up to 1s, such as 0.05ms")
    return seconds


def _factors(
    context: click.Context, parameter: click.Parameter, text: str
) -> Tuple[Tuple[int, float], ...]:
    try:
        return factors_of(text) if text else ()
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _sizes() -> Tuple[Optional[int], Optional[int]]:
    """Return partition and credit as set here; None if a job chooses them for its links."""
    for problem in examine()[0]:
        raise ConfigError(problem.message, 1)
    settings = Settings.read()
    if not settings.partitions_are_given:
        return None, None
    return settings.sizes


def _profile(
    path: Optional[str], model: Optional[str], compute: Optional[float]
) -> profile.Profile:
    if model is not None:
        assert compute is not None
        return profile.Profile(models.scaled(model, 1, compute), "torch")
    assert path is not None
    recorded = profile.read(path)
    if compute is None:
        return recorded
    factor = compute / sum(layer.forward_s + layer.backward_s for layer in recorded.layers)
    layers = [
        layer._replace(forward_s=factor * layer.forward_s, backward_s=factor * layer.backward_s)
        for layer in recorded.layers
    ]
    return recorded._replace(layers=layers)


@contextlib.contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """Let Ctrl-C end the process: the engine looks at nothing else while it simulates."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@click.command("advise", short_help="Predict what scheduling will gain on a cluster.")
@click.argument("path", metavar="[PROFILE]", required=False, type=click.Path())
@click.option("--model", type=click.Choice(sorted(models.MODELS)), help="Instead of a profile.")
@click.option(
    "--compute",
    type=Seconds(1e-6, 1e5),
    metavar="S",
    help="Compute of a worker in a step, such as 0.25 or 250ms; instead of a profile's own.",
)
@click.option("--rate", callback=_rate, help="Of each host's link, each way: 10G, 300mbit.")
@click.option(
    "--framework",
    type=click.Choice(profile.FRAMEWORKS),
    help="Compare with its own training: torch's DDP, tensorflow's MultiWorkerMirroredStrategy, "
    "or mxnet's dist_sync.  [the profile's]",
)
@click.option("-w", "--workers", type=Count(1, 65536), default=2, show_default=True)
@click.option("-s", "--servers", type=Count(1, 4096), default=2, show_default=True)
@click.option(
    "--together",
    type=Count(0, 4096),
    default=0,
    metavar="N",
    help="Servers that are on workers' hosts; the others are on hosts of their own.",
)
@click.option(
    "--per-host",
    type=Count(1, 4096),
    default=1,
    show_default=True,
    metavar="N",
    help="Workers on each of the hosts that have any.",
)
@click.option(
    "--factors",
    callback=_factors,
    default="",
    metavar="HOST=FACTOR,...",
    help="Single hosts' part of --rate, such as 3=0.5; hosts count from 1, workers' first.",
)
@click.option(
    "--latency", callback=_latency, default="0.05ms", show_default=True, help="One way, idle."
)
@click.option(
    "--simulate",
    type=Count(1, 65536),
    default=FEW,
    show_default=True,
    metavar="N",
    help="Workers that are simulated; of more, these stand for all.",
)
@click.option(
    "--compression",
    metavar="METHOD",
    help="Predict it with compressed gradients too: bf16, int8, onebit, topk=0.01 and so on.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    path: Optional[str],
    model: Optional[str],
    compute: Optional[float],
    rate: Optional[float],
    framework: Optional[str],
    workers: int,
    servers: int,
    together: int,
    per_host: int,
    factors: Tuple[Tuple[int, float], ...],
    latency: float,
    simulate: int,
    compression: Optional[str],
    as_json: bool,
) -> None:
    """Predict how long a training step will take on a cluster, and whether scheduling helps.

    PROFILE is what `bytescheduler launch --record` wrote; or --model names a known model, and
    --compute how long a worker computes. Partition and credit are those that are set here, or
    those that a job takes for such links.
    """
    if path is None and model is None and rate is None:
        say(_EXAMPLE)
        sys.exit(2)
    if (path is None) == (model is None):
        raise click.UsageError("want either a PROFILE or --model")
    if rate is None:
        raise click.UsageError("Missing option '--rate': the rate of each host's link, such as 10G")
    if model is not None and compute is None:
        raise click.UsageError("--model needs --compute S: how long a worker computes in a step")
    if problem := Shape(workers, servers, together, factors, per_host).problem:
        raise click.UsageError(problem)
    try:
        cluster = Cluster(workers, servers, rate, latency, *_sizes(), simulate, together, factors)
        cluster = cluster._replace(per_host=per_host)
        of_model = _profile(path, model, compute)
        framework = framework or of_model.framework or "mxnet"
        with progress(not as_json) as tell, _ended_by_interrupts():
            advice = advise(of_model.layers, cluster, tell, framework, compression)
    except Error as error:
        say(plain(f"bytescheduler: {error}"))
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    click.echo(json.dumps(advice, indent=2) if as_json else table(advice))
