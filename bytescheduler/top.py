"""`bytescheduler top`, by its public name; the body stands in `commands`."""

from bytescheduler.commands.top import command, text

__all__ = ["command", "text"]
