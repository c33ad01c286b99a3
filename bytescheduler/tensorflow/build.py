"""Compiles the operations for TensorFlow ahead of the first import.

``python -m bytescheduler.tensorflow.build [--out FILE]`` prints the file.  Without ``--out`` it is
the one that an import looks for.  An image without a compiler gets FILE, and BYTESCHEDULER_TF_OP.
"""

import argparse
import os
import pathlib
import sys
from typing import Optional, Sequence

from bytescheduler.tensorflow._library.compiling import CannotCompile, cached, compile_to
from bytescheduler.tensorflow._library.loading import installed

__all__ = ["main"]


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Compile, print the file's name, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bytescheduler.tensorflow.build",
        description="Compile the operations for the installed TensorFlow.",
    )
    parser.add_argument("--out", type=pathlib.Path, help="the file to write  [in the user's cache]")
    out = parser.parse_args(arguments).out
    try:
        if out is None:
            out = cached(installed(), os.environ)
        else:
            compile_to(out.resolve(), installed(), os.environ)
    except (CannotCompile, OSError) as error:
        print(f"bytescheduler: {error}", file=sys.stderr)
        return 1
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
