"""Formats a test whose snapshots were rewritten: ``format_snapshots.py FILE <SOURCE``.

It is ruff's format, with strings that are longer than a line split into several.
"""

import io
import subprocess
import sys
import tokenize
from typing import List

LIMIT = 100  # ruff's `line-length`


def ruff(source: str, path: str) -> str:
    """Return the source as ruff formats the file of that name."""
    command = ["ruff", "format", "--stdin-filename", path]
    return subprocess.run(
        command, input=source, stdout=subprocess.PIPE, check=True, text=True
    ).stdout


def pieces(literal: str, width: int) -> "List[str]":
    """Return a literal of one line as literals of at most `width` columns, cut behind spaces."""
    quote, rest = literal[0], literal[1:-1]
    parts = []
    while len(rest) + 2 > width:
        cut = rest.rfind(" ", 0, width - 2) + 1
        if cut == 0:
            break
        parts.append(rest[:cut])
        rest = rest[cut:]
    return [f"{quote}{part}{quote}" for part in (*parts, rest)]


def split(source: str) -> str:
    """Return the source with its overlong strings split."""
    lines = source.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token in reversed(tokens):
        (row, begin), (last, end) = token.start, token.end
        if token.type != tokenize.STRING or row != last or len(lines[row - 1].rstrip()) <= LIMIT:
            continue
        # A prefix, such as b or r, is no snapshot's; a quote for three lines is as long as it is.
        if token.string[0] not in "'\"" or token.string[:3] in ("'''", '"""'):
            continue
        line = lines[row - 1]
        parts = pieces(token.string, LIMIT - begin - 1)
        lines[row - 1] = line[:begin] + ("\n" + " " * begin).join(parts) + line[end:]
    return "".join(lines)


if __name__ == "__main__":
    name = sys.argv[1]
    sys.stdout.write(ruff(split(ruff(sys.stdin.read(), name)), name))
