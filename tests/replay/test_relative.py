"""Schedules that depend on what is stored: a relative T, a given mean age; and matching one schedule with another."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from neoteny import (
    AgeWeightedSampler,
    EmphasizeRecent,
    ExponentialDecay,
    GeometricDecay,
    LinearDecay,
    LinearGrowth,
    PolynomialDecay,
    TruncatedGeometric,
    Uniform,
    Window,
    match,
)
from neoteny.replay.ages.geometric import log_loss
from neoteny.settings.config import ReplayConfig


def test_auto_is_a_tenth_of_what_is_stored() -> None:
    auto = LinearDecay("auto", 0.1)
    assert auto == LinearDecay(decay_fraction=0.1, min_weight=0.1) == LinearDecay("auto", 0.1, 0.1)
    assert AgeWeightedSampler(decay_steps="auto").schedule == AgeWeightedSampler(decay_fraction=0.1).schedule
    for n in (1_000, 12_345, 1_000_000):
        law = AgeWeightedSampler(auto).probabilities(n)
        np.testing.assert_allclose(law, AgeWeightedSampler(LinearDecay(n / 10, 0.1)).probabilities(n), rtol=1e-12)
    assert eval(repr(auto)) == auto
    assert repr(LinearDecay(5, 0.5)) == "LinearDecay(decay_steps=5, min_weight=0.5)"


def test_a_small_buffer_still_has_something_to_draw() -> None:
    for n in range(1, 30):
        law = AgeWeightedSampler(LinearDecay("auto", 0)).probabilities(n)
        assert law[0] > 0
        assert math.isclose(law.sum(), 1.0)


def test_the_gain_of_the_newest_is_the_same_for_every_size() -> None:
    """1 / (rho (1 - w)^2 / 2 + w): 7.1 at a tenth with w_min 0.1."""
    for n in (10_000, 100_000, 1_000_000):
        newest = LinearDecay("auto", 0.1).describe(capacity=n).newest_share
        assert newest == pytest.approx(1 / (0.1 * 0.9**2 / 2 + 0.1), rel=2e-3)


def test_two_ways_to_say_t_are_refused() -> None:
    with pytest.raises(ValueError, match="give decay_steps or decay_fraction, got 500 and"):
        LinearDecay(500, decay_fraction=0.2)
    with pytest.raises(ValueError, match="decay_fraction must be from 1e-9"):
        LinearDecay(decay_fraction=0)
    with pytest.raises(TypeError, match="depends on what is stored"):
        LinearDecay("auto").weight(3)


def test_a_run_that_says_auto_in_two_ways_is_one() -> None:
    assert ReplayConfig("swd", decay_fraction=0.1) == ReplayConfig("swd", decay_steps="auto")


@pytest.mark.parametrize("n", [3, 10, 1_000, 1_000_000, 10**9])
@pytest.mark.parametrize("share", [1e-5, 0.01, 0.2, 0.45, 0.4999, 0.499999])
def test_the_mean_age_is_what_was_asked_for(n: int, share: float) -> None:
    """In closed form for large n, by summing for small."""
    asked = max(1.01, share * n)
    loss = log_loss(asked, n)
    if 2 * asked >= n + 1:
        assert loss == 0.0
        return
    if n <= 1_000_000:
        weights = np.exp(-loss * np.arange(n))
        mean = weights @ np.arange(1, n + 1) / weights.sum()
    else:
        x = loss * n
        mean = -1.0 / math.expm1(-loss) - (n / math.expm1(x) if x < 700 else 0.0)
        if x < 1e-2:
            mean = (n + 1) / 2 - loss * n**2 / 12
    assert mean == pytest.approx(asked, rel=1e-9 if n <= 1_000_000 else 1e-5)


SWD = LinearDecay(80_000, 0.1)


@pytest.mark.parametrize("by", ["mean_age", "newest_share", "effective_sample_size"])
@pytest.mark.parametrize(
    "schedule",
    [
        LinearDecay(10, 0.05),
        LinearDecay("auto", 0.05),
        ExponentialDecay(min_weight=0.05),
        PolynomialDecay(min_weight=0.05),
        GeometricDecay(min_weight=0.0),
        GeometricDecay(min_weight=0.05),
        TruncatedGeometric(),
        EmphasizeRecent(c_min=50),
    ],
    ids=str,
)
def test_matched_to_one_in_a_million(schedule: Any, by: Any) -> None:
    size = 5_000
    swd = LinearDecay(400, 0.1)
    matched = match(schedule, like=swd, by=by, capacity=size)
    assert type(matched) is type(schedule)
    aim, reached = (getattr(one.describe(capacity=size), by) for one in (swd, matched))
    assert reached == pytest.approx(aim, rel=1e-6)
    assert getattr(matched, "min_weight", None) == getattr(schedule, "min_weight", None)


def test_a_window_is_matched_to_the_nearest_step() -> None:
    window = match(Window(), like=LinearDecay(1_600, 0.1), by="mean_age", capacity=20_000)
    aim = LinearDecay(1_600, 0.1).describe(capacity=20_000).mean_age
    assert abs(window.describe(capacity=20_000).mean_age - aim) <= 0.5


def test_matched_over_a_buffer_that_grows() -> None:
    """A window and a truncated geometric law are as old as each other at every size, min(n + 1, steps + 1) / 2."""
    sizes, swd = [500, 1_500, 2_500, 3_500, 4_500], LinearDecay(400, 0.1)
    aim = 0.0
    for size in sizes:
        ages = np.arange(1, size + 1)
        weights = np.maximum(0.1, 1 - ages / 400)
        aim += ages @ weights / weights.sum() / len(sizes)
    geometric = match(TruncatedGeometric(), like=swd, capacity=sizes)
    assert np.mean([min((size + 1) / 2, geometric.mean_age) for size in sizes]) == pytest.approx(aim, rel=1e-6)
    assert match(Window(), like=swd, capacity=np.array(sizes)).steps == pytest.approx(2 * geometric.mean_age - 1, abs=1)
    with pytest.raises(ValueError, match="got an empty list"):
        match(Window(), like=swd, capacity=[])
    with pytest.raises(ValueError, match="LinearGrowth in a buffer of 500 to 4,500 has a mean_age from"):
        match(LinearGrowth(), like=swd, capacity=sizes)


def test_what_cannot_be_matched_says_how_far_it_goes() -> None:
    with pytest.raises(ValueError, match=r"LinearGrowth in a buffer of 1,000 has a mean_age from .* and LinearDecay"):
        match(LinearGrowth(), like=LinearDecay(80, 0.1), by="mean_age", capacity=1_000)
    with pytest.raises(ValueError, match="match searches the number of"):
        match(Uniform(), like=SWD, capacity=1_000)
    with pytest.raises(ValueError, match="by must be mean_age"):
        match(Window(), like=SWD, by="age", capacity=1_000)  # type: ignore[arg-type]


def test_the_same_parameters_come_back() -> None:
    for schedule in (LinearDecay(1_234, 0.1), GeometricDecay(1e-3, 0.1)):
        other = dataclasses.replace(
            schedule, **{"decay_steps": 50} if isinstance(schedule, LinearDecay) else {"rate": 0.5}
        )
        matched = match(other, like=schedule, by="mean_age", capacity=10_000)
        for field in dataclasses.fields(schedule):
            if getattr(schedule, field.name) is not None:
                assert getattr(matched, field.name) == pytest.approx(getattr(schedule, field.name), rel=1e-5)
