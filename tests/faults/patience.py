"""How long tests wait for other processes: until it has happened. No test asserts that anything is fast."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

HANG = 1_200
"""Seconds after which what is waited for is taken to hang: generous, since a busy machine is no defect."""


def wait_until(happened: Callable[[], bool], otherwise: str) -> None:
    """Return once it has happened; after `HANG` seconds the test fails and says `otherwise`."""
    until = time.monotonic() + HANG
    while not happened():
        if time.monotonic() > until:
            pytest.fail(otherwise)
        time.sleep(0.05)
