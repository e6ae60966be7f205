"""Timing: cases measured in turn, over and over, so that what the machine does besides falls on all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def alternate(cases: Mapping[str, Callable[[], object]], rounds: int, seconds: float = 0.02) -> dict[str, float]:
    """The median microseconds of one call of each case, over `rounds` rounds of about `seconds` each."""
    return {name: statistics.median(taken) for name, taken in each_round(cases, rounds, seconds).items()}


def each_round(cases: Mapping[str, Callable[[], object]], rounds: int, seconds: float = 0.02) -> dict[str, list[float]]:
    """The microseconds of one call of each case in each round: in a round every case is measured once."""
    calls = {name: max(1, round(seconds / _once(case))) for name, case in cases.items()}
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            start = time.perf_counter()
            for _ in range(calls[name]):
                case()
            taken[name].append((time.perf_counter() - start) / calls[name] * 1e6)
    return taken


def _once(case: Callable[[], object]) -> float:
    case()
    start = time.perf_counter()
    for _ in range(3):
        case()
    return (time.perf_counter() - start) / 3
