"""Continuous integration has the frameworks, whose tests are left out without them."""

import importlib.util
import os
import sys

import pytest

HAS_TENSORFLOW = (3, 9) <= sys.version_info[:2] <= (3, 11)


@pytest.mark.skipif(not os.environ.get("CI"), reason="a clone may lack TensorFlow")
@pytest.mark.skipif(not HAS_TENSORFLOW, reason="no TensorFlow 2.15 for this Python")
def test_tensorflow_is_installed() -> None:
    assert importlib.util.find_spec("tensorflow") is not None, "make setup installs it"
