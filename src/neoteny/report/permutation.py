"""The permutation test within tasks, the interval that it leaves, and the effect that it could have detected."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from neoteny.errors import UsageError

LEVEL = 0.05
POWER = 0.8
"""The probability with which the detectable effect is detected."""
PERMUTATIONS = 10_000
"""All are looked at where there are no more than this; else so many are drawn."""
EXPERIMENTS, AMONG = 1_000, 1_000
"""Simulated to find the detectable effect, each among so many of the permutations."""
LARGEST_GAIN = 1e100
"""How far a task's scale and the unit of its gain may be apart, so that gains are finite numbers."""


@dataclass(frozen=True)
class Test:
    """What a permutation test says of a gain."""

    gain: float
    low: float
    high: float
    """Gains that the test does not reject at 5%."""
    p: float
    detectable: float
    """The gain that this test finds significant with probability 80%, at the spread that was seen; infinite if none."""
    smallest_p: float
    """That the test can give with so many runs, however large the effect."""


@functools.cache
def splits(sizes: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, ...]:
    """Ways of calling n + m runs of each task the first method's n: for each task a matrix, permutations x runs.

    Its rows give mean of the first - mean of the second; row 0 is as it was.
    """
    rng = np.random.default_rng(0)
    if math.prod(math.comb(n + m, n) for n, m in sizes) <= PERMUTATIONS:
        ways = [[list(way) for way in itertools.combinations(range(n + m), n)] for n, m in sizes]
        rows = np.array(list(itertools.product(*(range(len(way)) for way in ways))))
        picks = [np.array(way)[rows[:, i]] for i, way in enumerate(ways)]
    else:
        picks = []
        for n, m in sizes:
            drawn = rng.random((PERMUTATIONS, n + m)).argsort(axis=1)[:, :n]
            drawn[0] = np.arange(n)
            picks.append(drawn)
    found = []
    for (n, m), pick in zip(sizes, picks, strict=True):
        matrix = np.full((len(pick), n + m), -1 / m)
        np.put_along_axis(matrix, pick, 1 / n, axis=1)
        found.append(matrix)
    return tuple(found)


def permutation_test(method: Sequence[np.ndarray], baseline: Sequence[np.ndarray]) -> Test:
    """Whether `method` differs from `baseline`, given an array of scores for each task.

    The statistic is the difference of means, mean over tasks, each task divided by the absolute mean (or the standard
    deviation, if larger) of all its runs, which no permutation changes: the test is exact. The gain g is a share of the
    baseline's absolute mean u (or the standard deviation, if larger): g is in the interval if the method's scores less
    g u are not significantly different from the baseline's. Both are linear in the scores, so the statistic of every
    permutation is x - g y.

    Raises a UsageError if a score is NaN or infinite: comparisons with NaN are false, which would count as p = 0.
    """
    if bad := [float(value) for scores in (*method, *baseline) for value in scores if not math.isfinite(value)]:
        raise UsageError(f"a permutation test needs finite scores, and one of these is {bad[0]}: leave that run out")
    ways = splits(_sizes(method, baseline))
    rng = np.random.default_rng(0)
    some = np.r_[0, 1 + rng.permutation(len(ways[0]) - 1)[: AMONG - 1]]
    x = y = noise = np.zeros(1)
    error = 0.0
    for split, a, b in zip(ways, method, baseline, strict=True):
        exponent = np.frexp(np.abs(np.concatenate([a, b])).max())[1]
        a, b = np.ldexp(a, -exponent), np.ldexp(b, -exponent)  # exact, and no square of these overflows
        both = np.concatenate([a, b])
        scale = max(abs(both.mean()), both.std()) or 1.0
        within = math.sqrt((a.var() * len(a) + b.var() * len(b)) / max(1, len(both) - 2))
        unit = max(abs(b.mean()), within) or np.ldexp(1.0, -exponent)
        unit = min(max(unit, scale / LARGEST_GAIN), scale * LARGEST_GAIN)
        spreads = [one.std(ddof=1) if len(one) > 1 else within for one in (a, b)]
        drawn = np.repeat(spreads, [len(a), len(b)])[:, None] * rng.standard_normal((len(both), EXPERIMENTS))
        x = x + split @ (both / scale)
        y = y + split @ (np.repeat([unit, 0.0], [len(a), len(b)]) / scale)
        noise = noise + split[some] @ (drawn / scale)
        error += sum((spread / scale) ** 2 / len(one) for spread, one in zip(spreads, (a, b), strict=True))

    def p_value(gain: float) -> float:
        moved = np.abs(x - gain * y)
        return float(np.mean(moved >= moved[0] - 1e-9 * (1 + abs(gain) * y[0])))

    gain = float(x[0] / y[0])
    step = max(math.sqrt(error) / y[0], 1e-6 * max(1.0, abs(gain)))
    low, high = (_edge(p_value, gain, side, step) for side in (-1, 1))
    smallest = float(np.mean(np.abs(y) >= (1 - 1e-9) * y[0]))  # nothing but what separates the methods fully
    return Test(gain, low, high, p_value(0.0), math.inf if smallest > LEVEL else _detectable(noise, y[some]), smallest)


def _sizes(method: Sequence[np.ndarray], baseline: Sequence[np.ndarray]) -> tuple[tuple[int, int], ...]:
    return tuple((len(a), len(b)) for a, b in zip(method, baseline, strict=True))


def _edge(p_value: Callable[[float], float], gain: float, side: int, step: float) -> float:
    """The last gain on one side of the estimate that the test does not reject; infinite if it rejects none."""
    inside, width = gain, step
    while p_value(gain + side * width) > LEVEL:
        inside, width = gain + side * width, 2 * width
        if width > 1e6 * step:
            return side * math.inf
    outside = gain + side * width
    for _ in range(30):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if p_value(middle) > LEVEL else (inside, middle)
    return inside


def _detectable(noise: np.ndarray, y: np.ndarray) -> float:
    """The effect that the test detects with probability 80%.

    noise: the statistic of each permutation (rows) in simulated experiments without an effect (columns). A gain g adds
    g y to it. Permutation i then is as extreme as the data, row 0, exactly if g is at most the larger of
    (noise_i - noise_0) / (y_0 - y_i) and -(noise_i + noise_0) / (y_0 + y_i). So each experiment has a least gain from
    which on the test finds it, where no more permutations are left than 5% allows; in 80% of the experiments it is at
    most the detectable effect.
    """
    extreme = np.maximum(_quotient(noise - noise[0], y[0] - y), _quotient(-noise - noise[0], y[0] + y))
    allowed = math.floor(LEVEL * len(y) + 1e-9)
    least = np.partition(extreme, len(y) - 1 - allowed, axis=0)[len(y) - 1 - allowed]
    least = np.maximum(least, -noise[0] / y[0])  # and the sign is right
    return float(np.sort(least)[math.ceil(POWER * len(least)) - 1])


def _quotient(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """above / below; infinite where below is 0: the permutation that changes nothing, or exchanges the methods."""
    same = below <= 1e-12 * below.max()
    return np.where(same[:, None], np.inf, above / np.where(same, 1.0, below)[:, None])
