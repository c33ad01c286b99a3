"""Tests of the Python side: an environment without any setting, unless a test makes one."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("DMLC_", "PS_", "BYTESCHEDULER_")):
            monkeypatch.delenv(name)
