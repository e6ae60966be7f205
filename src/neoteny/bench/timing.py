"""Timing: cases measured in turn, over and over, so that what the machine does besides falls on all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def alternate(cases: Mapping[str, Callable[[], object]], rounds: int, seconds: float = 0.02) -> dict[str, float]:
    """The median microseconds of one call of each case, over `rounds` rounds of about `seconds` each."""
    calls = {name: max(1, round(seconds / _once(case))) for name, case in cases.items()}
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            start = time.perf_counter()
            for _ in range(calls[name]):
                case()
            taken[name].append((time.perf_counter() - start) / calls[name])
    return {name: statistics.median(times) * 1e6 for name, times in taken.items()}


def _once(case: Callable[[], object]) -> float:
    case()
    start = time.perf_counter()
    for _ in range(3):
        case()
    return (time.perf_counter() - start) / 3
