"""`bytescheduler doctor`, by its public name; the body stands in `commands`."""

from bytescheduler.commands.doctor import command, examine

__all__ = ["command", "examine"]
