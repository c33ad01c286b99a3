"""`bytescheduler advise`, by its public name; the body stands in `commands`."""

from bytescheduler._process import stdout
from bytescheduler.commands.advise import command

__all__ = ["command"]

if __name__ == "__main__":
    stdout.run(command, None, "bytescheduler advise")
