"""A verdict on a claim: a permutation test within tasks, the interval that it leaves, and what it could have seen."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from neoteny.report.scores import Scores

LEVEL = 0.05
FEWEST = 5
"""Seeds on every task, below which nothing is decided."""
POWER = 0.8
"""Of the effect that is called detectable."""
PERMUTATIONS = 10_000
"""All are looked at where there are no more than this; else so many are drawn."""


@dataclass(frozen=True)
class Claim:
    """That one method does better than another."""

    method: str
    baseline: str
    effect: float | None = None
    """The paper's gain, as a share of the baseline's mean; None where it gives none."""
    measure: str = "score"
    """What is compared: a run's score, or another of its metrics late in training, as network/measure."""
    lower: bool = False
    """Whether less of it is better."""
    paper: str = ""
    """What the paper says; empty where it says nothing of this."""


@dataclass(frozen=True)
class Test:
    """What a permutation test says of a gain."""

    gain: float
    low: float
    high: float
    """Gains that the test does not reject at 5%."""
    p: float
    detectable: float
    """The gain that would be found significant with probability 80%, at the spread that was seen."""


@dataclass(frozen=True)
class Finding:
    """A claim, what was found, and the verdict."""

    claim: Claim
    outcome: str
    """reproduced, refuted or undecided; better, worse or undecided if the paper makes no such claim; or no verdict."""
    why: str
    test: Test | None
    runs: tuple[int, int] = (0, 0)
    tasks: tuple[str, ...] = ()
    seeds: tuple[int, int] = (0, 0)
    """The fewest and the most of either method on any task."""


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
    """
    x = y = np.zeros(1)
    variance = freedom = 0.0
    for split, a, b in zip(splits(_sizes(method, baseline)), method, baseline, strict=True):
        both = np.concatenate([a, b])
        scale = max(abs(both.mean()), both.std()) or 1.0
        within = math.sqrt((a.var() * len(a) + b.var() * len(b)) / max(1, len(both) - 2))
        unit = max(abs(b.mean()), within) or 1.0
        x = x + split @ (both / scale)
        y = y + split @ (np.repeat([unit, 0.0], [len(a), len(b)]) / scale)
        variance += (_variance(a) / len(a) + _variance(b) / len(b)) / scale**2
        freedom += len(both) - 2

    def p_value(gain: float) -> float:
        moved = np.abs(x - gain * y)
        return float(np.mean(moved >= moved[0] - 1e-9 * (1 + abs(gain))))

    gain = float(x[0] / y[0])
    low, high = (_edge(p_value, gain, side, math.sqrt(variance) / y[0]) for side in (-1, 1))
    return Test(gain, low, high, p_value(0.0), _detectable(math.sqrt(variance) / y[0], freedom))


def _sizes(method: Sequence[np.ndarray], baseline: Sequence[np.ndarray]) -> tuple[tuple[int, int], ...]:
    return tuple((len(a), len(b)) for a, b in zip(method, baseline, strict=True))


def _variance(values: np.ndarray) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0


def _edge(p_value: object, gain: float, side: int, step: float) -> float:
    """The last gain on one side of the estimate that the test does not reject; infinite if it rejects none."""
    assert callable(p_value)
    inside, width = gain, max(step, 1e-6)
    while p_value(gain + side * width) > LEVEL:
        inside, width = gain + side * width, 2 * width
        if width > 1e6 * max(step, 1e-6):
            return side * math.inf
    outside = gain + side * width
    for _ in range(30):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if p_value(middle) > LEVEL else (inside, middle)
    return inside


def _detectable(error: float, freedom: float) -> float:
    from scipy.stats import t

    return float(error * (t.ppf(1 - LEVEL / 2, freedom) + t.ppf(POWER, freedom))) if freedom >= 1 else math.inf


def judge(claim: Claim, scores: Scores, speaks: bool = True, planned: Mapping[str, int] | None = None) -> Finding:
    """The verdict on a claim, from the scores of finished runs.

    speaks: whether these runs can say anything of the paper at all. planned: how many runs each method should have.
    """
    a, b = (scores.get(name, {}) for name in (claim.method, claim.baseline))
    tasks = tuple(task for task in a if task in b)
    undecided = "undecided" if speaks or not claim.paper else "no verdict"
    if not tasks:
        return Finding(claim, undecided, "No task has finished runs of both yet.", None)
    counts = [len(by_task[task]) for task in tasks for by_task in (a, b)]
    runs = sum(counts[::2]), sum(counts[1::2])
    sign = -1 if claim.lower else 1
    test = permutation_test([sign * a[task] for task in tasks], [sign * b[task] for task in tasks])
    wanted = sum((planned or {}).get(name, 0) for name in (claim.method, claim.baseline))
    if undecided == "no verdict":
        outcome, why = undecided, "At this scale the runs say nothing of the paper."
    elif sum(runs) < wanted:
        outcome, why = "undecided", f"Only {sum(runs)} of the {wanted} planned runs are done."
    elif min(counts) < FEWEST:
        outcome, why = "undecided", f"Fewer than {FEWEST} seeds decide nothing."
    else:
        outcome, why = _decide(claim, test)
    return Finding(claim, outcome, why, test, runs, tasks, (min(counts), max(counts)))


def _decide(claim: Claim, test: Test) -> tuple[str, str]:
    for_it, against = ("reproduced", "refuted") if claim.paper else ("better", "worse")
    half = None if claim.effect is None else claim.effect / 2
    if test.p <= LEVEL and test.gain > 0:
        small = half is not None and test.high < half
        return for_it, "The direction holds; the size is less than half of the paper's." if small else ""
    if test.p <= LEVEL:
        return against, "The difference is significant in the other direction."
    if half is not None and test.high < half:
        return against, f"Half of the paper's effect, {half:+.1%}, is outside the interval."
    return (
        "undecided",
        "The interval holds both no effect and the paper's." if half else "The interval holds no effect.",
    )
