"""`bytescheduler advise`, by its public name; the body stands in `commands`."""

from bytescheduler.commands.advise import command

__all__ = ["command"]
