"""Keras 3 on PyTorch: fit with the sums of bytescheduler.torch."""

import importlib.util
from typing import Callable

import pytest
from job import Job

tf = pytest.importorskip("tensorflow")
if tf.__version__ < "2.16":
    pytest.skip("Keras 2 has no other backend", allow_module_level=True)
if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)


@pytest.mark.nightly
def test_a_wrapped_model_has_the_weights_of_one_process(make_job: Callable[..., Job]) -> None:
    for output in make_job().run("tensorflow/keras_on_torch.py"):
        assert "kept = bytescheduler.torch.DistributedDataParallel(model)" in output
