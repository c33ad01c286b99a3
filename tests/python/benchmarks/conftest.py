"""Lets tests import the benchmarks, which no package installs."""

import pathlib
import sys

# Behind all that is installed: the package lies beside them unbuilt.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[3]))
