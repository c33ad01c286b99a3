"""`bytescheduler top`, by its public name; the body stands in `commands`."""

from bytescheduler._process import stdout
from bytescheduler.commands.top import command, text

__all__ = ["command", "text"]

if __name__ == "__main__":
    stdout.run(command, None, "bytescheduler top")
