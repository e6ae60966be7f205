"""The cores that this process may use: its affinity, and its cgroup's share of time; not the machine's."""

from __future__ import annotations

import os
from pathlib import Path

_QUOTAS = ("/sys/fs/cgroup/cpu.max",)


def usable_cores() -> list[int]:
    """The numbers of the cores to run on, as many as a cgroup's quota allows."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[: max(1, min(len(allowed), cgroup_quota(_QUOTAS) or len(allowed)))]


def cgroup_quota(paths: tuple[str, ...]) -> int | None:
    """Whole cores' worth of time that a cgroup allows; None where there is no limit."""
    for path in paths:
        try:
            quota, period = Path(path).read_text().split()
            return int(quota) // int(period)
        except (OSError, ValueError):  # no such cgroup, or "max"
            continue
    return None
