"""Benchmarks: each is run as `python -m benchmarks.NAME` and prints JSON.

NAME is a module of `jobs` (whole jobs) or `engine` (its parts in C++); `lab` is what both use.
"""

import os

# A command has no room in its name.  Code imports from the rooms.
__path__ += [os.path.join(__path__[0], room) for room in ("jobs", "engine")]
