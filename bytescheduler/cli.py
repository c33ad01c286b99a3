"""`bytescheduler`: one command for what people do with the package from a shell.

A subcommand is a click command in `commands`, or in a module for users, and is listed here.  Each
has `--json` where it has anything to say, and ends with 0 (all is well), 1 (something was found, or
failed) or 2 (it was called wrongly, or a setting is wrong); `launch` passes on what it ran.  One
that cannot print ends as `_process.stdout` says.
"""

from typing import List, Optional, Tuple

import click

from bytescheduler import __version__, config, launch, timeline
from bytescheduler._process import stdout
from bytescheduler._process.say import plain
from bytescheduler.commands import advise, bench, doctor, top

__all__ = ["main"]


class _Commands(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: List[str]
    ) -> Tuple[Optional[str], Optional[click.Command], List[str]]:
        """Refuse what is no command; click prints the help for `.` or `_x`, and ends well."""
        known = self.get_command(ctx, args[0]) is not None
        if not known and not ctx.resilient_parsing:  # a shell that completes wants no words
            ctx.fail(f"No such command '{plain(args[0])}'.")
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bytescheduler")
def _cli() -> None:
    """Start jobs, see what is set, find out what is wrong with a host or where the time goes."""


_cli.add_command(advise.command)
_cli.add_command(bench.bench)
_cli.add_command(launch.cli, "launch")
_cli.add_command(config.command)
_cli.add_command(doctor.command)
_cli.add_command(timeline.timeline)
_cli.add_command(top.command)


def main(argv: Optional[List[str]] = None) -> None:
    """Run `bytescheduler`."""
    stdout.run(_cli, argv, "bytescheduler")


if __name__ == "__main__":
    main()
