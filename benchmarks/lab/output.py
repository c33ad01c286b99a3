"""The output of benchmarks in Python, and the file that gets it too."""

import argparse
import json
import pathlib


def add_out_option(parser: argparse.ArgumentParser) -> None:
    """Let the caller say where else the JSON goes."""
    parser.add_argument("--out", help="write the JSON here too")


def _text(result: object) -> str:
    return json.dumps(result, indent=1) + "\n"


def keep(result: object, args: argparse.Namespace) -> None:
    """Write `result` as JSON where `args.out` says, if anywhere."""
    if args.out:
        pathlib.Path(args.out).write_text(_text(result))


def give(result: object, args: argparse.Namespace) -> None:
    """Print `result` as JSON, and write it where `args.out` says, if anywhere."""
    print(_text(result), end="")
    keep(result, args)
