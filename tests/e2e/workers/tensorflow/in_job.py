"""Runs all cases in one job, as an import of TensorFlow takes seconds; prints those that hold."""

import sys

import same_weights
import uses

import bytescheduler.tensorflow as bps

bps.init()
chosen = sys.argv[1:]
if "identity" in chosen:
    for name in same_weights.cases():
        print(f"{name} is the same", flush=True)
if "uses" in chosen:
    for case in uses.CASES:
        case()
        print(f"{case.__name__} holds", flush=True)
bps.shutdown()
try:
    bps.rank()
except ValueError as error:
    print(error)
