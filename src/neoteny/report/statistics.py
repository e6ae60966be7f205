"""rliable's statistics of scores, seeded, over tasks whose scores were brought to one scale."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from neoteny.report.scores import Scores
from neoteny.report.suites import Bounds

SEED = 0
REPS = 2_000
"""Resamples of each interval."""


class Estimate(NamedTuple):
    """A number and its 95% interval."""

    value: float
    low: float
    high: float


@contextlib.contextmanager
def seeded(seed: int = SEED) -> Iterator[None]:
    """NumPy's global generator, set for the moment: rliable 1.2.0 draws from it and ignores its random_state."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def matrices(scores: Scores, bounds: Mapping[str, Bounds]) -> dict[str, np.ndarray]:
    """For each method that has every task of `bounds`, its normalised scores, runs x tasks.

    Where tasks have different numbers of runs, the first of each are taken, as many as the task with the fewest has.
    """
    normalised = {}
    for method, by_task in scores.items():
        if set(bounds) <= set(by_task):
            runs = min(len(by_task[task]) for task in bounds)
            columns = [(by_task[task][:runs] - at.zero) / (at.one - at.zero) for task, at in bounds.items()]
            normalised[method] = np.stack(columns, axis=1)
    return normalised


def aggregates(normal: Mapping[str, np.ndarray], reps: int = REPS) -> dict[str, dict[str, Estimate]]:
    """IQM, median, mean and optimality gap of each method, with 95% stratified bootstrap intervals."""
    from rliable import library, metrics

    functions = {
        "IQM": metrics.aggregate_iqm,
        "median": metrics.aggregate_median,
        "mean": metrics.aggregate_mean,
        "optimality gap": metrics.aggregate_optimality_gap,
    }
    with seeded():
        points, intervals = library.get_interval_estimates(
            normal, lambda x: np.array([function(x) for function in functions.values()]), reps=reps
        )
    return {
        name: {method: Estimate(points[method][i], *intervals[method][:, i]) for method in normal}
        for i, name in enumerate(functions)
    }


def profiles(
    normal: Mapping[str, np.ndarray], thresholds: np.ndarray, reps: int = REPS
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each method the share of runs above each threshold, and the bounds of its 95% interval, 2 x thresholds."""
    from rliable import library

    with seeded():
        points, intervals = library.create_performance_profile(
            normal,
            thresholds,
            custom_profile_func=lambda x, taus: (x.reshape(-1, 1) > taus).mean(axis=0),  # the same in one call
            reps=reps,
        )
    return {method: (points[method], intervals[method]) for method in normal}


def improvement(
    normal: Mapping[str, np.ndarray], pairs: Sequence[tuple[str, str]], reps: int = REPS
) -> dict[tuple[str, str], Estimate]:
    """P(a run of the first > a run of the second), mean over tasks, for each pair."""
    from rliable import library

    known = {pair: [normal[name] for name in pair] for pair in pairs if all(name in normal for name in pair)}
    with seeded():
        points, intervals = library.get_interval_estimates(
            {f"{i}": both for i, both in enumerate(known.values())}, lambda x, y: np.array([chance(x, y)]), reps=reps
        )
    return {pair: Estimate(points[f"{i}"][0], *intervals[f"{i}"][:, 0]) for i, pair in enumerate(known)}


def chance(x: np.ndarray, y: np.ndarray) -> float:
    """P(X > Y) + P(X = Y) / 2, mean over tasks: rliable's probability_of_improvement, without a loop over tasks."""
    above = x[:, None] - y[None]
    return float(np.mean((above > 0) + 0.5 * (above == 0)))
