"""What holds of all tests: examples are not timed, memory is given back, and what was measured is said at the end, on
several cores too."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # by default an example that takes 0.2 s fails
settings.load_profile("untimed")


MUCH = 1_500
"""Megabytes above which a worker gives memory back before its file is over."""
GROWN = 400
"""Megabytes that it must have taken since it last did, so that programs in use are not compiled over and over."""
_left = 0


@pytest.fixture(scope="module", autouse=True)
def _memory_is_given_back() -> Iterator[None]:
    """JAX keeps every program that it has compiled: over all files that is several GB in each worker."""
    yield
    _give_back()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """After a test: one file alone may compile programs for gigabytes, for agents of every kind with every remedy."""
    if "jax" in sys.modules and _resident() > max(MUCH, _left + GROWN):
        _give_back()


def _give_back() -> None:
    global _left
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    _left = _resident()


def _resident() -> int:
    """The megabytes that this process has in memory; 0 where that cannot be read."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 2**20
    except OSError:
        return 0


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker of xdist, tell how much memory it took at most."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Say it where everybody sees it."""
    if peak := getattr(node, "workeroutput", {}).get("peak"):
        print(f"\n{node.gateway.id} took {peak:,} MB of memory at most")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Numbers that a test measured: record_property("measured", "...")."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "measured":
                terminalreporter.write_line(value)
