"""Runs scripts one after the other in this worker; its arguments: each script with its options."""

import runpy
import shlex
import sys

commands = sys.argv[1:]
for command in commands:
    sys.argv = shlex.split(command)
    print(f"script {command}", flush=True)
    runpy.run_path(sys.argv[0], run_name="__main__")
