"""Runs all cases in one job, as an import of TensorFlow takes seconds; prints those that hold."""

import sys

import agreement
import killed
import mirrored
import next_steps
import same_weights
import trains_on
import uneven
import uses

import bytescheduler.tensorflow as bps

chosen = sys.argv[1:]
if "mirrored" in chosen:
    mirrored.split_processor()
bps.init()
if "weights" in chosen or "sgd" in chosen:
    for name in same_weights.cases(["SGD"] if "sgd" in chosen else ["SGD", "Adam"]):
        print(f"{name} is the same", flush=True)
cases = {
    "uses": [*agreement.CASES, *uses.CASES],
    "steps": next_steps.STEPS,
    "looks": next_steps.LOOKS,
    "mirrored": mirrored.CASES,
}
asked = [case for kind in cases if kind in chosen for case in cases[kind]]
for case in [case for case in asked if case.__name__ in chosen] or asked:
    case()
    print(f"{case.__name__} holds", flush=True)
if "watched" in chosen:
    trains_on.train()
if "killed" in chosen:
    killed.fit()
if "late" in chosen:
    uneven.one_step_late()
if "uneven" in chosen:
    uneven.one_step_more()
bps.shutdown()
if "uses" in chosen:
    print(uses.run_after_shutdown())
try:
    bps.rank()
except ValueError as error:
    print(error)
