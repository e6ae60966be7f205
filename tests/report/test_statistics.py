"""The statistics are rliable's, called by hand on the same scores; the scale of each task is the one that is stated."""

from __future__ import annotations

import numpy as np
import pytest
from rliable import library, metrics

from neoteny.report.statistics import aggregates, chance, improvement, matrices, profiles, seeded
from neoteny.report.suites import bounds_of, by_suite


@pytest.fixture
def normal() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {"uniform": rng.random((5, 3)), "swd": rng.random((4, 3)).round(1) + 0.1}


def by_hand(scores: dict, function: object, reps: int) -> tuple[dict, dict]:
    np.random.seed(0)  # noqa: NPY002
    return library.get_interval_estimates(scores, function, reps=reps)


def test_aggregates(normal: dict[str, np.ndarray]) -> None:
    points, intervals = by_hand(
        normal,
        lambda x: np.array(
            [
                metrics.aggregate_iqm(x),
                metrics.aggregate_median(x),
                metrics.aggregate_mean(x),
                metrics.aggregate_optimality_gap(x),
            ]
        ),
        300,
    )
    ours = aggregates(normal, reps=300)
    for i, name in enumerate(("IQM", "median", "mean", "optimality gap")):
        for method in normal:
            assert ours[name][method] == (points[method][i], *intervals[method][:, i])


def test_profiles(normal: dict[str, np.ndarray]) -> None:
    taus = np.linspace(0, 1, 11)
    np.random.seed(0)  # noqa: NPY002
    points, intervals = library.create_performance_profile(normal, taus, reps=100)
    for method, (share, bounds) in profiles(normal, taus, reps=100).items():
        np.testing.assert_allclose(share, points[method], rtol=1e-12)
        np.testing.assert_allclose(bounds, intervals[method], rtol=1e-12)


def test_probability_of_improvement(normal: dict[str, np.ndarray]) -> None:
    pair = ("swd", "uniform")
    tied = {"a": normal["swd"].round(), "b": normal["uniform"].round()}
    assert chance(tied["a"], tied["b"]) == pytest.approx(metrics.probability_of_improvement(tied["a"], tied["b"]))
    points, intervals = by_hand(
        {"both": [normal[name] for name in pair]},
        lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
        100,
    )
    ours = improvement(normal, [pair], reps=100)[pair]
    assert ours == pytest.approx((points["both"][0], *intervals["both"][:, 0]))


def test_seeded_and_leaves_the_generator_as_it_was(normal: dict[str, np.ndarray]) -> None:
    np.random.seed(7)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002
    first = aggregates(normal, reps=50)
    assert np.random.random() == expected  # noqa: NPY002
    assert aggregates(normal, reps=50) == first
    with seeded(1):
        assert aggregates(normal, reps=50) == first


def test_the_scale_of_each_task() -> None:
    scores = {
        "uniform": {
            "Hopper-v5": np.array([18.8, 3226.0, 30.0]),
            "dm_control/dog-run-v0": np.array([100.0, 200.0]),
            "ALE/Breakout-v5": np.array([1.7, 30.5]),
            "Swimmer-v5": np.array([10.0, 20.0]),
        },
        "swd": {"Swimmer-v5": np.array([50.0])},
    }
    bounds = bounds_of(scores)
    assert {task: bound.fixed for task, bound in bounds.items() if not bound.fixed} == {"Swimmer-v5": False}
    assert bounds["Swimmer-v5"][:2] == (10, 50)
    normal = matrices(scores, bounds)
    assert list(normal) == ["uniform"]  # swd lacks three tasks
    np.testing.assert_allclose(normal["uniform"], [[0, 0.1, 0, 0], [1, 0.2, 1, 0.25]])  # the first 2 seeds of each
    assert list(matrices(scores, {"Swimmer-v5": bounds["Swimmer-v5"]})) == ["uniform", "swd"]
    equal = {"a": {"t": np.array([3.0, 3.0])}}
    assert np.isfinite(matrices(equal, bounds_of(equal))["a"]).all()


def test_a_small_gain_on_hopper_is_a_small_gain_in_iqm() -> None:
    """Between the lowest and the highest run, +4.8% was an IQM of +150%."""
    uniform = np.array([2950.0, 2980.0, 3000.0, 3020.0, 3050.0])
    scores = {"uniform": {"Hopper-v5": uniform}, "swd": {"Hopper-v5": 1.048 * uniform}}
    iqm = aggregates(matrices(scores, bounds_of(scores)), reps=10)["IQM"]
    assert iqm["swd"].value / iqm["uniform"].value - 1 == pytest.approx(0.048, abs=0.001)


def test_the_suite_of_a_task() -> None:
    names = {
        "MuJoCo": ["Ant-v5", "HumanoidStandup-v4", "Walker2d-v5"],
        "Atari": ["ALE/Pong-v5"],
        "DeepMind Control": ["dm_control/dog-run-v0"],
        "other tasks": ["Pendulum-v1", "AntMaze-v5", "Hopper", "mine/ALE-v0"],
    }
    assert by_suite([task for tasks in names.values() for task in tasks]) == names
