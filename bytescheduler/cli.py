"""`bytescheduler`: the package's command for a shell.

A subcommand is a click command in `commands`, or in a module for users, and is listed here.  Each
with a result has `--json`.  The exit code is 0 if all is well, and 1 if something was found or
failed.  It is 2 if the call or a setting is wrong; `launch` passes on the code of its command.  A
subcommand that cannot print ends as `_process.stdout` says.
"""

import difflib
from typing import List, Optional, Tuple

import click

from bytescheduler import __version__, config, launch, timeline
from bytescheduler._process import stdout
from bytescheduler._process.say import plain
from bytescheduler.commands import advise, bench, doctor, pages, top

__all__ = ["main"]


class _Commands(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: List[str]
    ) -> Tuple[Optional[str], Optional[click.Command], List[str]]:
        """Refuse a word that is no command; click prints help for `.` or `_x`, and ends well."""
        is_command = self.get_command(ctx, args[0]) is not None
        if not is_command and not ctx.resilient_parsing:  # a shell that completes wants no words
            likely = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f" Did you mean {likely[0]}?" if likely else ""
            ctx.fail(f"No such command '{plain(args[0])}'.{hint}")
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
_cli.add_command(pages.docs)
_cli.add_command(pages.examples)
_cli.add_command(timeline.timeline)
_cli.add_command(top.command)


def main(argv: Optional[List[str]] = None) -> None:
    """Run `bytescheduler`."""
    stdout.run(_cli, argv, "bytescheduler")


if __name__ == "__main__":
    main()
