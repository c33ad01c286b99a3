"""`bytescheduler bench`, by its public name; the body stands in `commands`."""

from bytescheduler.commands.bench import bench

__all__ = ["bench"]
