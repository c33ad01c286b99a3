"""Runs all cases in one job, as an import of TensorFlow takes seconds; prints those that hold."""

import sys

import agreement
import killed
import same_weights
import uses

import bytescheduler.tensorflow as bps

bps.init()
chosen = sys.argv[1:]
if "weights" in chosen or "sgd" in chosen:
    for name in same_weights.cases(["SGD"] if "sgd" in chosen else ["SGD", "Adam"]):
        print(f"{name} is the same", flush=True)
if "uses" in chosen:
    cases = [*agreement.CASES, *uses.CASES]
    only = [case for case in cases if case.__name__ in chosen]
    for case in only or cases:
        case()
        print(f"{case.__name__} holds", flush=True)
if "killed" in chosen:
    killed.fit()
bps.shutdown()
try:
    bps.rank()
except ValueError as error:
    print(error)
