"""T from drift against a search over T by summing, and draws by a T that moves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from neoteny import AgeWeightedSampler, LinearDecay, ReplayBuffer
from neoteny.errors import UsageError
from neoteny.replay.ages.horizon import decay_steps_from_drift, moved, shares_of_ranges
from neoteny.replay.moving import MovingDecaySampler
from neoteny.replay.registry import make_sampler
from oracles import STRICT, p_value

BOUNDS = np.array([0, 32, 100, 260, 700, 2_000])


def drawn_far(decay_steps: float, far_of_age: np.ndarray, min_weight: float) -> float:
    """The share of what is drawn beyond w_min's part that is far off, one age after the other."""
    ages = np.arange(1, len(far_of_age) + 1)
    beyond = np.maximum(min_weight, 1 - ages / decay_steps) - min_weight
    return float((beyond * far_of_age).sum() / beyond.sum())


def test_shares_are_those_of_linear_decay() -> None:
    for reach in (2.0, 31.0, 32.0, 33.7, 640.0, 5_000.0):
        law = AgeWeightedSampler(LinearDecay(reach, 0)).probabilities(2_000)
        by_hand = [law[low:high].sum() for low, high in itertools.pairwise(BOUNDS)]
        np.testing.assert_allclose(shares_of_ranges(BOUNDS, [reach])[0], by_hand, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("min_weight", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("seed", range(6))
def test_the_largest_t_is_that_of_a_search(min_weight: float, seed: int) -> None:
    far = np.random.default_rng(seed).uniform(0, 0.7, 5)
    far = np.sort(far) if seed % 2 else far
    of_age = np.repeat(far, np.diff(BOUNDS))
    allowed = [t for t in range(2_000, 19, -1) if drawn_far(t, of_age, min_weight) <= far[0] + 0.1]
    largest = allowed[0] if allowed else 20
    assert decay_steps_from_drift(BOUNDS, far, min_weight) == pytest.approx(largest, rel=0.013)


def test_t_stays_within_a_hundredth_and_all_of_what_is_stored() -> None:
    assert decay_steps_from_drift(BOUNDS, np.full(5, 0.05), 0.1) == 2_000
    # (1 - 32 / R)^2 = 0.1 for the share beyond age 32 of weights that end at R = 0.9 T: R is 46.8.
    assert decay_steps_from_drift(BOUNDS, [0, 1, 1, 1, 1], 0.1) == pytest.approx(46.8 / 0.9, rel=0.02)
    assert decay_steps_from_drift(np.array([0, 1, 10, 100_000]), [0, 1, 1], 0.0) == 1_000


def test_the_next_t_is_a_tenth_of_the_way() -> None:
    assert moved(None, 500.0, 2_000) == 500.0
    assert moved(1_000.0, 500.0, 2_000) == pytest.approx(950.0)
    assert moved(1_000.0, 500.0, 200) == 200.0
    assert moved(10.0, 10.0, 5_000) == 50.0
    assert moved(None, 0.8, 80) == 2.0


def buffer_of(stored: int, seed: int = 0, capacity: int = 400) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, {"x": ()}, MovingDecaySampler(0.1), seed=seed)
    buffer.extend(x=np.arange(stored, dtype=np.float32))
    return buffer


@pytest.mark.parametrize("stored", [250, 400, 777])
def test_every_draw_after_a_change_is_by_the_new_t(stored: int) -> None:
    """Also in a full buffer, which has drawn all of these ahead by the T before."""
    buffer = buffer_of(stored)
    for decay_steps in (None, 40.0, 300.0):
        if decay_steps is not None:
            buffer.set_decay_steps(decay_steps)
        n = buffer.num_stored
        by_hand = np.maximum(0.1, 1 - np.arange(1, n + 1) / (decay_steps or n / 10))
        law = by_hand / by_hand.sum()
        np.testing.assert_allclose(buffer.law(), law, rtol=1e-9)
        drawn = np.concatenate([buffer.sample(50).positions for _ in range(100)])
        assert p_value(np.bincount(drawn, minlength=n), law) > STRICT
        second = buffer.sample_by_age(np.random.default_rng(3), 20_000).positions
        assert p_value(np.bincount(second, minlength=n), law) > STRICT
        assert buffer.statistics()["effective_sample_size"] == pytest.approx(1 / (law**2).sum())


def test_a_restored_buffer_has_its_t_and_draws_the_same() -> None:
    buffer, other = buffer_of(500), buffer_of(500, seed=9)
    buffer.set_decay_steps(55.5)
    buffer.sample(100)
    other.restore(buffer.state())
    assert other.decay_steps == 55.5
    for _ in range(200):
        np.testing.assert_array_equal(other.sample(64).positions, buffer.sample(64).positions)
    fresh = buffer_of(500)
    other.restore(fresh.state())
    assert other.decay_steps is None


@pytest.mark.parametrize("wrong", [1.0, 401.0, float("nan"), "auto", 7])
def test_a_saved_t_that_cannot_be_is_refused_and_nothing_changes(wrong: object) -> None:
    buffer = buffer_of(500)
    buffer.set_decay_steps(55.5)
    state = buffer.state()
    state["drawer"]["decay_steps"] = wrong
    with pytest.raises(ValueError, match="the saved 'decay_steps' must be a number from 2 to 400"):
        buffer.restore(state)
    assert buffer.decay_steps == 55.5
    del state["drawer"]["decay_steps"]
    with pytest.raises(ValueError, match="has no 'decay_steps'"):
        buffer.restore(state)


def test_drift_is_for_swd_drawn_exactly() -> None:
    assert make_sampler("swd", "exact", 80_000, {"decay_steps": "drift"}) == MovingDecaySampler(0.1)
    assert make_sampler("swd", "exact", 80_000, {"decay_steps": "drift", "min_weight": 0.2}) == MovingDecaySampler(0.2)
    for name, sampler in (("swa", "exact"), ("swd-per", "exact"), ("swd", "bucketed")):
        with pytest.raises(UsageError, match=f"is for --replay swd with --replay-sampler exact, got {name} with"):
            make_sampler(name, sampler, 80_000, {"decay_steps": "drift"})
    with pytest.raises(UsageError, match=r"give --decay-steps or --decay-fraction, got drift and 0\.2"):
        make_sampler("swd", "exact", 80_000, {"decay_steps": "drift", "decay_fraction": 0.2})
    with pytest.raises(UsageError, match="min_weight must be a number in"):
        make_sampler("swd", "exact", 80_000, {"decay_steps": "drift", "min_weight": 3})
    with pytest.raises(TypeError, match="has no T that can be set"):
        ReplayBuffer(4, {"x": ()}, AgeWeightedSampler(LinearDecay(2))).set_decay_steps(3)
