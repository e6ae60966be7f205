"""Schedules: weights by hand, validation, and what they say of themselves."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import neoteny as n
from neoteny.replay.ages.ageing import evaluate
from oracles import SCHEDULES, weight_by_hand


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("num_stored", [5, 100])
def test_weights_by_hand(schedule: n.Schedule, num_stored: int) -> None:
    ages = np.arange(1, num_stored + 1)
    by_hand = [weight_by_hand(schedule, int(age), num_stored) for age in ages]
    weights = evaluate(schedule, ages, num_stored=num_stored, clock=num_stored)
    np.testing.assert_allclose(weights, by_hand, rtol=1e-12, atol=1e-15)


def test_the_newest_weighs_one_minus_one_over_t() -> None:
    assert n.LinearDecay(80_000, 0.1).weight(1) == 1 - 1 / 80_000


def test_the_papers_defaults() -> None:
    assert (n.LinearDecay().decay_steps, n.LinearDecay().min_weight) == (80_000, 0.1)


def test_unclipped_polynomial_prefers_old_data() -> None:
    """Why Table 13's polynomial row is an artefact: the specification has 132 at age 1M."""
    assert n.PolynomialDecay(clip=False).weight(1_000_000) == pytest.approx(132.25)
    assert n.PolynomialDecay().weight(1_000_000) == 0.1


@pytest.mark.parametrize(
    ("make", "field", "allowed"),
    [
        (lambda: n.LinearDecay(decay_steps=-5), "decay_steps", "a finite number > 0, got -5"),
        (lambda: n.LinearDecay(decay_steps=math.nan), "decay_steps", "a finite number > 0, got nan"),
        (lambda: n.LinearDecay(decay_steps=math.inf), "decay_steps", "a finite number > 0, got inf"),
        (lambda: n.LinearDecay(decay_steps="80k"), "decay_steps", "a finite number > 0, got '80k'"),  # type: ignore[arg-type]
        (lambda: n.LinearDecay(decay_steps=True), "decay_steps", "a finite number > 0, got True"),
        (lambda: n.LinearDecay(min_weight=1.5), "min_weight", r"a number in \[0, 1\], got 1.5"),
        (lambda: n.LinearDecay(min_weight=-0.1), "min_weight", r"a number in \[0, 1\], got -0.1"),
        (lambda: n.LinearDecay(1, 0), "decay_steps", "> 1 when min_weight is 0, got 1"),
        (lambda: n.LinearGrowth(min_weight=math.nan), "min_weight", r"a number in \[0, 1\], got nan"),
        (lambda: n.LinearGrowth(decay_steps=0), "decay_steps", "a finite number > 0, got 0"),
        (lambda: n.ExponentialDecay(tau=0), "tau", "a finite number > 0, got 0"),
        (lambda: n.PolynomialDecay(power=-1), "power", "a finite number > 0, got -1"),
        (lambda: n.PolynomialDecay(power=2.5, clip=False), "power", "a whole number when clip is False, got 2.5"),
        (lambda: n.PolynomialDecay(0.5, min_weight=0), "decay_steps", "> 1 when min_weight is 0, got 0.5"),
        (lambda: n.GeometricDecay(rate=1), "rate", "between 0 and 1, both excluded, got 1"),
        (lambda: n.EmphasizeRecent(eta=1.0), "eta", "between 0 and 1, both excluded, got 1.0"),
        (lambda: n.EmphasizeRecent(c_min=0), "c_min", "a finite number >= 1, got 0"),
        (lambda: n.Window(0.5), "steps", "a finite number >= 1, got 0.5"),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_range(make: object, field: str, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be {allowed}"):
        make()  # type: ignore[operator]


def test_schedules_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        n.LinearDecay().decay_steps = 3  # type: ignore[misc]


# ERE's reach is a size of buffer, not an age.
REACHING = [s for s in SCHEDULES if 1 < getattr(s, "reach", math.inf) < 2000 and not isinstance(s, n.EmphasizeRecent)]


@pytest.mark.parametrize("schedule", REACHING, ids=str)
def test_reach_is_where_the_weight_stops_changing(schedule: n.Schedule) -> None:
    reach = schedule.reach  # type: ignore[attr-defined]
    beyond = schedule.weight(np.linspace(reach + 1e-6, 3 * reach, 50))
    assert np.ptp(beyond) < 1e-6
    assert schedule.weight(reach * 0.9) != beyond[0]


def test_describe_agrees_with_the_closed_form() -> None:
    """1 / (0.405 T + 0.1 N) against 1 / N, from section 1 of the specification."""
    description = n.LinearDecay(80_000, 0.1).describe(capacity=1_000_000)
    assert description.newest_share == pytest.approx(1_000_000 / (0.405 * 80_000 + 0.1 * 1_000_000), rel=1e-3)
    assert description.floor_mass == pytest.approx(0.1 * (1_000_000 - 72_000) / 132_400, rel=1e-3)
    assert "7.55 x as often" in str(description)


def test_describe_uniform_and_several_environments() -> None:
    uniform = n.Uniform().describe(capacity=100)
    assert (uniform.newest_share, uniform.mean_age, uniform.floor_mass) == (pytest.approx(1), pytest.approx(50.5), 0)
    assert uniform.effective_sample_size == pytest.approx(100)
    assert uniform.entropy == pytest.approx(math.log(100))
    one, many = (n.LinearDecay().describe(capacity=200_000, num_envs=e) for e in (1, 16))
    assert many.newest_share == pytest.approx(one.newest_share, rel=1e-3)
    with pytest.raises(ValueError, match="capacity must be at least num_envs >= 1, got 3 and 5"):
        n.Uniform().describe(capacity=3, num_envs=5)
