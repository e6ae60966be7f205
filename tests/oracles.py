"""Naive twins, written from the paper and the specification in plain Python, to judge the library by."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from neoteny import (
    EmphasizeRecent,
    ExponentialDecay,
    GeometricDecay,
    InverseAge,
    LinearDecay,
    LinearGrowth,
    PolynomialDecay,
    TruncatedGeometric,
    Uniform,
    Window,
)

STRICT = 1e-6
"""The p below which a law is held to be broken; seeds are fixed, so a pass stays a pass."""

SCHEDULES = [
    *[LinearDecay(T, w) for T in (2.5, 9, 337.7, 1e6) for w in (0, 0.1, 1)],
    *[LinearGrowth(T, w) for T in (0.5, 2.5, 9, 337.7, 1e6) for w in (0, 0.1, 1)],
    *[LinearDecay(decay_fraction=f, min_weight=w) for f in (0.02, 0.1, 0.9, 3) for w in (0, 0.1)],
    ExponentialDecay(30),
    ExponentialDecay(1),
    ExponentialDecay(12.5, tau=0.5, min_weight=0),
    PolynomialDecay(30),
    PolynomialDecay(30.5, power=3.5, min_weight=0),
    PolynomialDecay(30, clip=False),
    GeometricDecay(0.01),
    GeometricDecay(0.2, 0),
    GeometricDecay(1e-9, 0),
    GeometricDecay(0.05, 0.5),
    TruncatedGeometric(3.5),
    TruncatedGeometric(20),
    TruncatedGeometric(1e6),
    InverseAge(),
    EmphasizeRecent(0.999, 10),
    EmphasizeRecent(0.9975, 7.5),
    EmphasizeRecent(0.99, 20),
    Window(9),
    Window(10.5),
    Uniform(),
]


def weight_by_hand(schedule: object, a: int, n: int) -> float:
    """The weight of age a with n stored, from the table in section 1 of the specification."""
    match schedule:
        case LinearDecay("auto", w, fraction):
            return max(w, 1 - a / max(2, fraction * n))
        case LinearDecay(T, w):
            return max(w, 1 - a / T)
        case LinearGrowth(T, w):
            return min(1, w + a / T)
        case ExponentialDecay(T, tau, w):
            return max(w, math.exp(-(a / T) / tau))
        case PolynomialDecay(T, p, w, True):
            return max(w, max(0, 1 - a / T) ** p)
        case PolynomialDecay(T, p, w, False):
            return max(w, (1 - a / T) ** p)
        case GeometricDecay(eps, w):
            return max(w, (1 - eps) ** a)
        case TruncatedGeometric(mean_age):
            return truncated_by_hand(mean_age, n) ** (a - 1)
        case InverseAge():
            return 1 / a
        case EmphasizeRecent(eta, c_min):
            if n <= c_min:
                return 1.0
            e = eta**1000
            extra = max(0.0, math.log(c_min / (n * e)) / c_min) if a <= c_min else 0.0
            return 1 / max(c_min, n * e, a) - 1 / n + extra
        case Window(T):
            return 1.0 if a <= T else 0.0
        case Uniform():
            return 1.0
    raise TypeError(schedule)


@functools.cache
def truncated_by_hand(mean_age: float, n: int) -> float:
    """The q for which ages 1 .. n have the mean `mean_age` under q^a, by bisection; 1 if uniform is younger."""
    ages = np.arange(1, n + 1)
    low, high = 1e-12, 1.0
    if (n + 1) / 2 <= mean_age:
        return 1.0
    for _ in range(200):
        q = (low + high) / 2
        weights = np.exp(np.log(q) * (ages - 1.0))
        low, high = (q, high) if weights @ ages < mean_age * weights.sum() else (low, q)
    return q


class StampedRing:
    """A ring written one slot at a time, which remembers when each slot was written."""

    def __init__(self, capacity: int, num_envs: int, ticks: int) -> None:
        self.capacity, self.num_envs, self.ticks = capacity, num_envs, ticks
        self.stamps: list[int | None] = [None] * capacity
        self.head = 0
        for tick in range(ticks):
            for _ in range(num_envs):
                self.stamps[self.head] = tick * num_envs
                self.head = (self.head + 1) % capacity

    @property
    def num_stored(self) -> int:
        return sum(stamp is not None for stamp in self.stamps)

    @property
    def now(self) -> int:
        """The clock moves after the add: the newest age is 1, and a vector step shares its age."""
        return (self.ticks - 1) * self.num_envs + 1

    def algorithm_1(self, weight: Callable[[int], float]) -> np.ndarray:
        """SWD (ICLR 2026), Algorithm 1, lines 1 to 5: the probability of each slot."""
        weights = [0.0 if stamp is None else weight(self.now - stamp) for stamp in self.stamps]
        total = math.fsum(weights)
        return np.array([w / total for w in weights])

    def numbers(self) -> dict[str, int]:
        return {"num_stored": self.num_stored, "head": self.head, "capacity": self.capacity, "num_envs": self.num_envs}


RINGS = {
    "one row": StampedRing(100, 1, 1),
    "part full": StampedRing(100, 1, 37),
    "just full": StampedRing(100, 1, 100),
    "wrapped": StampedRing(100, 1, 263),
    "part full, 7 envs": StampedRing(105, 7, 6),
    "wrapped, 7 envs": StampedRing(105, 7, 43),
    "wrapped, 7 envs that do not divide": StampedRing(100, 7, 43),
    "less than one step of 7 envs": StampedRing(5, 7, 3),
}


def p_value(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """Chi-square of counts against their law; 0 if anything impossible was drawn."""
    possible = probabilities > 0
    if counts[~possible].any():
        return 0.0
    if possible.sum() == 1:
        return 1.0
    expected = probabilities[possible] * counts.sum()
    return float(stats.chisquare(counts[possible], expected * (counts.sum() / expected.sum())).pvalue)


def assert_million(positions: np.ndarray, law: np.ndarray) -> None:
    """Chi-square in bins of growing age, and of the lowest bits within the ages."""
    n = len(law)
    edges = np.unique(np.geomspace(1, n + 1, 400).astype(int)) - 1
    edges[-1] = n
    sums = np.concatenate([[0.0], np.cumsum(law)])
    expected = np.diff(sums[edges])
    counts = np.histogram(positions, edges)[0]
    enough = expected * len(positions) >= 20
    pooled = np.append(counts[enough], counts[~enough].sum())
    assert p_value(pooled, np.append(expected[enough], expected[~enough].sum())) > STRICT
    low_bits = np.bincount(np.arange(n) % 256, weights=law, minlength=256)
    assert p_value(np.bincount(positions % 256, minlength=256), low_bits) > STRICT
