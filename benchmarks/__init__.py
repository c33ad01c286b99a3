"""Benchmarks: each prints JSON, such as `python -m benchmarks.jobs.replay`.

`jobs` runs whole jobs, `engine` its parts in C++, `pytorch` what trains with it; all use `lab`.
"""

import os

# `python -m benchmarks.replay` works too.  Code imports from the rooms.
__path__ += [os.path.join(__path__[0], room) for room in ("jobs", "engine", "pytorch")]
