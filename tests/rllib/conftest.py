"""A real Ray cluster on this machine, once for all tests that train."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

# Not pytest's own folder, whose name is too long for Ray's sockets; and results would go to the person's home.
PLACE = tempfile.mkdtemp(prefix="neoteny-", dir="/tmp")
os.environ |= {"HOME": PLACE, "RAY_TMPDIR": PLACE, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}

import ray  # noqa: E402


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def pytest_sessionfinish() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
