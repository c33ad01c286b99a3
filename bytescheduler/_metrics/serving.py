"""Shows metrics at the address of a setting; a failure is a line, and the job goes on."""

from typing import TYPE_CHECKING, Optional

from bytescheduler._metrics.addresses import Measure, parse_address
from bytescheduler._process.say import say
from bytescheduler._settings import Settings

if TYPE_CHECKING:
    from bytescheduler._metrics.exporter import Exporter

__all__ = ["serve"]


def serve(measure: Measure, role: str, rank: Optional[int] = None) -> "Optional[Exporter]":
    """Show metrics at the address of BYTESCHEDULER_METRICS, if set; a failure is a warning."""
    settings = Settings.read()
    address = settings.metrics
    if not address:
        return None
    who = f"{role} {rank}" if rank is not None else {"server": "a server"}.get(role, f"the {role}")
    try:
        from bytescheduler._metrics.exporter import Exporter  # takes a tenth of a second
    except Exception as error:  # whatever is wrong with the library
        say(
            f"bytescheduler: BYTESCHEDULER_METRICS={address}: {error}; the job goes on, "
            f"{who} shows no metrics: pip install prometheus-client"
        )
        return None
    try:
        exporter = Exporter(measure, role, rank, *parse_address(address))
    except Exception as error:  # nothing here is worth the job; bind has a TypeError for bad names
        reason = getattr(error, "strerror", None) or error
        say(
            f"bytescheduler: BYTESCHEDULER_METRICS={address}: cannot listen: {reason}; "
            f"the job goes on, {who} shows no metrics"
        )
        return None
    if settings.is_talkative:
        say(f"bytescheduler: {who} shows metrics at {exporter.url}")
    return exporter
