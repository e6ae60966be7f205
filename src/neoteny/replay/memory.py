"""Memory: how much is free, so that a buffer that cannot fit is refused before it is allocated."""

from __future__ import annotations

from pathlib import Path

_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)


def require(num_bytes: int, what: str) -> None:
    """Raise MemoryError if `num_bytes` for `what` are more than is free; pass where that is unknown."""
    free = available_bytes()
    if free is not None and num_bytes > free:
        raise MemoryError(
            f"{what} needs {num_bytes / 1e9:.2f} GB and {free / 1e9:.2f} GB are free: "
            "choose a smaller capacity, or free memory"
        )


def available_bytes() -> int | None:
    """What this process can still allocate: the machine's available memory or its cgroup's, the smaller."""
    known = [free for free in (_machine(), *(_cgroup(*paths) for paths in _CGROUPS)) if free is not None]
    return min(known, default=None)


def _machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _cgroup(limit: str, usage: str, stat: str) -> int | None:
    try:
        free = int(Path(limit).read_text()) - int(Path(usage).read_text())
        cached = dict(line.split() for line in Path(stat).read_text().splitlines())
    except (OSError, ValueError):  # no such cgroup, or the limit reads "max"
        return None
    return max(0, free) + int(cached.get("inactive_file", 0))  # the kernel gives file cache back
