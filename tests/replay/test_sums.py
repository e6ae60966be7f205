"""The newest data's share and the effective sample size: closed forms against sums over every age."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neoteny as n
from neoteny.replay.ages.ageing import Describing, evaluate
from neoteny.replay.ages.sums import harmonic, harmonic_squares, weight_sums
from oracles import SCHEDULES

LARGE = [
    n.LinearDecay(),
    n.LinearDecay(100_000, 0),
    n.LinearGrowth(),
    n.ExponentialDecay(),
    n.ExponentialDecay(min_weight=0),
    n.GeometricDecay(),
    n.PolynomialDecay(),
    n.PolynomialDecay(power=4, min_weight=0),
    n.PolynomialDecay(power=2.5),
    n.EmphasizeRecent(),
    n.InverseAge(),
    n.Window(),
    n.Uniform(),
]


def check(schedule: Describing, size: int, newest: int) -> None:
    weights = evaluate(schedule, np.arange(1, size + 1), num_stored=size, clock=size)
    p = weights / weights.sum()
    assert schedule.fresh_share(size) == pytest.approx(p[0], rel=1e-9, abs=1e-15)
    assert schedule.fresh_share(size, newest) == pytest.approx(p[:newest].sum(), rel=1e-9, abs=1e-15)
    assert schedule.effective_sample_size(size) == pytest.approx(1 / (p * p).sum(), rel=1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("size", [1, 2, 5, 49, 50, 51, 300, 2_000])
def test_small_buffers(schedule: Describing, size: int) -> None:
    check(schedule, size, (size + 1) // 2)


@pytest.mark.parametrize("schedule", LARGE, ids=str)
@pytest.mark.parametrize("size", [5_001, 71_999, 72_001, 1_000_000])
def test_large_buffers(schedule: Describing, size: int) -> None:
    check(schedule, size, 1_000)


@given(st.floats(1.01, 500), st.floats(0, 1), st.integers(1, 600))
def test_linear_schedules_of_any_size(decay_steps: float, min_weight: float, size: int) -> None:
    check(n.LinearDecay(decay_steps, min_weight), size, (size + 1) // 2)
    check(n.LinearGrowth(decay_steps, min_weight), size, (size + 1) // 2)


def test_the_share_says_what_the_specification_says() -> None:
    """1 / (0.405 T + 0.1 N) against 1 / N, and never more than 1 / w_min times uniform."""
    swd = n.LinearDecay(80_000, 0.1)
    assert swd.fresh_share(1_000_000) == pytest.approx(1 / (0.405 * 80_000 + 0.1 * 1_000_000), rel=1e-3)
    assert swd.fresh_share(10**12) * 10**12 == pytest.approx(10, rel=1e-3)
    assert all(swd.fresh_share(10**e) * 10**e < 10 for e in range(13))
    assert n.Uniform().fresh_share(10**12) == 1e-12


def test_few_ages_of_a_long_decay_lose_no_digits() -> None:
    for power in (1, 2, 4):
        schedule = n.PolynomialDecay(1e9, power=power)
        assert weight_sums(schedule, 1, 1).weights == pytest.approx(1, rel=1e-8)
        weights = schedule.weight(np.arange(1, 2_001))
        assert weight_sums(schedule, 2_000, 2_000).weights == pytest.approx(weights.sum(), rel=1e-8)


def test_harmonic_numbers_meet_where_the_series_takes_over() -> None:
    for size in (50, 80, 1000):
        assert harmonic(size) == pytest.approx(math.fsum(1 / a for a in range(1, size + 1)), rel=1e-15)
        assert harmonic_squares(size) == pytest.approx(math.fsum(1 / a**2 for a in range(1, size + 1)), rel=1e-15)


def test_a_schedule_of_ones_own_is_summed() -> None:
    @dataclass(frozen=True)
    class Root(Describing):
        def weight(self, age: np.ndarray) -> np.ndarray:  # type: ignore[override]
            return 1 / np.sqrt(age)

    check(Root(), 500, 20)
    assert weight_sums(Root(), 4, 500).weights == pytest.approx(1 + 2**-0.5 + 3**-0.5 + 0.5)


@pytest.mark.parametrize("ours", LARGE, ids=str)
def test_a_subclass_with_its_own_weight_is_summed_as_it_is_drawn(ours: Describing) -> None:
    """Closed forms know our classes alone: a subclass has the law of its own weight, in the sums as in the sampler."""

    class Steeper(type(ours)):  # type: ignore[misc]
        def weight(self, age: np.ndarray, **more: float) -> np.ndarray:
            return super().weight(age, **more) / (1 + np.asarray(age) / 7)

    theirs = Steeper(**vars(ours))
    check(theirs, 400, 30)
    law = n.AgeWeightedSampler(theirs).probabilities(400)
    assert theirs.fresh_share(400, 30) == pytest.approx(law[:30].sum(), rel=1e-9)
    assert theirs.effective_sample_size(400) == pytest.approx(1 / (law * law).sum(), rel=1e-9)
    assert theirs.fresh_share(400, 30) > 1.5 * ours.fresh_share(400, 30)


def test_what_is_asked_for_wrongly_is_said() -> None:
    with pytest.raises(ValueError, match="newest must be from 1 to size, 5, got 6"):
        n.LinearDecay().fresh_share(5, newest=6)
    with pytest.raises(ValueError, match="size must be >= 1, got 0"):
        n.LinearDecay().effective_sample_size(0)
