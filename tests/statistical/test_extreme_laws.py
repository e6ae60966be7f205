"""Weights and priorities at the ends of float64: the law is exact or refused in a sentence, and draws are bounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest

import neoteny as n
from neoteny.replay import device, priority_by_age
from neoteny.replay.ageing import describe
from neoteny.replay.stamps import StampedRows
from neoteny.replay.sums import weight_sums
from oracles import STRICT, p_value


@dataclass(frozen=True)
class Times:
    """A user's schedule: the same law at any scale, 2 for odd ages and 1 for even ones."""

    scale: float
    uses: tuple[str, ...] = ()

    def weight(self, age: np.ndarray, **_: int) -> np.ndarray:
        return self.scale * (1.0 + age % 2)


def buffer_of(schedule: Any, capacity: int = 40) -> n.ReplayBuffer:
    made = n.ReplayBuffer(capacity, {"x": ()}, n.PrioritizedSampler(schedule), seed=0)
    made.extend(x=np.zeros((capacity, 1)))
    return made


def stamped(schedule: Any) -> Any:
    rows = StampedRows(schedule)
    rows.add(np.arange(40), np.zeros(40, np.int64))
    return rows.draw(np.random.default_rng(0), 50_000, 40)


DRAWS = {
    "exact": lambda s: n.AgeWeightedSampler(s).positions(np.random.default_rng(0), 50_000, 40, 1, 40),
    "reference": lambda s: n.ReferenceSampler(s).positions(np.random.default_rng(0), 50_000, 40, 1, 40),
    "bucketed": lambda s: n.BucketedSampler(s, 40).positions(np.random.default_rng(0), 50_000, 40, 1, 40),
    "priority": lambda s: buffer_of(s).sample(50_000).ages - 1,
    "stamps": lambda s: 39 - stamped(s),
    "describe": lambda s: describe(s, capacity=40),
    "sums": lambda s: weight_sums(s, 40, 40),
}


@pytest.mark.parametrize("uses", [(), ("num_stored",)], ids=["age", "size"])
@pytest.mark.parametrize("scale", [8e307, 1e150])
@pytest.mark.parametrize("how", DRAWS)
def test_weights_whose_sum_could_overflow_are_refused(how: str, scale: float, uses: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"weight must be at most 1e\+100, so that sums of weights are finite, got"):
        DRAWS[how](Times(scale, uses))


@pytest.mark.parametrize("scale", [8e307, 1e150])
def test_the_device_refuses_them_too(scale: float) -> None:
    with pytest.raises(ValueError, match=r"weight must be at most 1e\+100, so that sums of weights are finite, got"):
        device.law_of(Times(scale), 40)


@pytest.mark.parametrize("how", ["exact", "reference", "bucketed", "priority", "stamps"])
def test_weights_too_small_to_draw_from_are_refused(how: str) -> None:
    """In denormal numbers u x total may round up to total: the position after the last."""
    with pytest.raises(ValueError, match=r"add up to .*e-32[0-9], which is too little"):
        DRAWS[how](Times(5e-324, ("num_stored",) if how == "stamps" else ()))


@pytest.mark.parametrize("scale", [4e99, 1e-280])
@pytest.mark.parametrize("how", ["exact", "reference", "bucketed", "priority", "stamps"])
def test_any_scale_that_is_allowed_gives_the_same_law(how: str, scale: float) -> None:
    counts = np.bincount(DRAWS[how](Times(scale)), minlength=40)
    law = 1.0 + np.arange(1, 41) % 2
    assert p_value(counts, law / law.sum()) > STRICT


@pytest.mark.parametrize("scale", [4e99, 1e-280])
def test_and_on_the_device(scale: float) -> None:
    drawn = device.law_of(Times(scale), 40)(jax.random.key(0), 50_000, 40, 1)
    law = 1.0 + np.arange(1, 41) % 2
    assert p_value(np.bincount(np.asarray(drawn), minlength=40), law / law.sum()) > STRICT


@pytest.mark.parametrize("make", [n.LinearDecay, n.LinearGrowth, n.ExponentialDecay, n.PolynomialDecay])
def test_a_length_that_float32_cannot_hold_is_refused(make: Any) -> None:
    for length in (5e-324, 1e-31, 1e31, 1e308):
        with pytest.raises(ValueError, match="decay_steps must be from 1e-30 to 1e30, got"):
            make(length)


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("w", [0.0, 0.1])
@pytest.mark.parametrize("length", [1e-30, 1e30])
@pytest.mark.parametrize("make", [n.LinearDecay, n.LinearGrowth])
def test_the_ends_of_what_a_length_may_be(make: Any, length: float, w: float, num_envs: int) -> None:
    if make is n.LinearDecay and w == 0 and length < 1:
        return  # refused: nothing has any weight
    schedule = make(length, w)
    law = n.ReferenceSampler(schedule).probabilities(40, num_envs)
    on_host = n.AgeWeightedSampler(schedule).positions(np.random.default_rng(0), 50_000, 40, num_envs)
    on_device = device.law_of(schedule, 40, num_envs)(jax.random.key(0), 50_000, 40, num_envs)
    for drawn in (on_host, np.asarray(on_device)):
        assert p_value(np.bincount(drawn, minlength=40), law) > STRICT
    if num_envs == 1:
        assert schedule.effective_sample_size(40) == pytest.approx(1 / (law**2).sum())


@pytest.mark.parametrize("schedule", [None, n.Uniform(), n.LinearDecay(30, 0.1)], ids=str)
def test_errors_are_refused_where_their_sum_could_overflow_and_nothing_changes(schedule: Any) -> None:
    made = buffer_of(schedule)
    before = made.law()
    with pytest.raises(ValueError, match=r"errors must be at most 1e\+100, got -1e\+308"):
        made.update_priorities(made.gather(np.arange(40)), np.where(np.arange(40) == 3, -1e308, 1.0))
    np.testing.assert_array_equal(made.law(), before)
    sharp = n.ReplayBuffer(40, {"x": ()}, n.PrioritizedSampler(schedule, alpha=1.0, beta=1.0), seed=0)
    sharp.extend(x=np.zeros((40, 1)))
    sharp.update_priorities(sharp.gather(np.arange(40)), np.full(40, 9e99))
    drawn = sharp.sample(50_000)
    assert drawn.weights is not None
    assert (drawn.weights == 1).all()
    law = np.ones(40) if schedule is None else schedule.weight(np.arange(1, 41))
    assert p_value(np.bincount(drawn.ages - 1, minlength=40), law / law.sum()) > STRICT


@pytest.mark.parametrize("eps", [5e-324, 1e-200, 1e308])
def test_eps_is_a_priority_too(eps: float) -> None:
    with pytest.raises(ValueError, match=r"eps must be from 1e-100 to 1e\+100, got"):
        n.PrioritizedSampler(eps=eps)


class Counting:
    """A generator that counts what is asked of it."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self.calls: list[int] = []

    def random(self, size: Any) -> np.ndarray:
        made = self._rng.random(size)
        self.calls.append(made.size)
        return made


@dataclass(frozen=True)
class Spikes:
    """1 at every 97th age, next to nothing elsewhere: no block's largest weight says much of the others."""

    low: float

    def weight(self, age: np.ndarray) -> np.ndarray:
        return np.where(age % 97 == 0, 1.0, self.low)


def errors_outside(schedule: Any, size: int, large: float) -> np.ndarray:
    """Large where the weight is small, and of any size where it is not."""
    errors = np.random.default_rng(1).exponential(size=size)
    return np.where(schedule.weight(np.arange(1, size + 1)) < 1, large, errors)


HARD = {
    "window, 1e8 outside": (n.Window(600), 1e8),
    "window, 1e12 outside": (n.Window(600), 1e12),
    "window, 1e90 outside": (n.Window(600), 1e90),
    "window of the youngest": (n.Window(priority_by_age.YOUNG), 1e12),
    "spikes over nothing": (Spikes(0.0), 1e12),
    "spikes over little": (Spikes(1e-12), 1e12),
}


@pytest.mark.parametrize("capacity", [700, 5_000])
@pytest.mark.parametrize(("schedule", "large"), HARD.values(), ids=HARD)
def test_large_priorities_of_small_weight_cost_few_draws(schedule: Any, large: float, capacity: int) -> None:
    made = n.ReplayBuffer(capacity, {"x": ()}, n.PrioritizedSampler(schedule), seed=0)
    made.extend(x=np.zeros((capacity + 123, 1)))  # wrapped
    errors = errors_outside(schedule, capacity, large)
    made.update_priorities(made.gather(np.arange(capacity)), errors)
    law = (errors + 1e-6) ** 0.6 * schedule.weight(np.arange(1, capacity + 1))
    law /= law.sum()
    np.testing.assert_allclose(made.law(), law, rtol=1e-9)

    rng = Counting()
    drawn = [made._drawer.draw(rng, 256).positions for _ in range(400)]  # type: ignore[arg-type]
    assert max(rng.calls) <= 5 * 4.4 * (256 + 20)
    assert len(rng.calls) <= 400 * 2 * (priority_by_age._ROUNDS + 1)
    assert sum(rng.calls) <= 400 * 5 * 6 * 256, "a batch costs a few times as many draws as it returns"

    counts = np.bincount(np.concatenate(drawn), minlength=capacity)
    assert not counts[law == 0].any()
    rare = law * counts.sum() < 5
    pooled = np.append(counts[~rare], counts[rare].sum())
    assert p_value(pooled, np.append(law[~rare], law[rare].sum())) > STRICT


def test_no_batch_takes_more_rounds_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if nothing is ever kept while there are blocks, and only one of them is known to be to blame."""
    rounds: list[int] = []
    once = priority_by_age._draw_once

    def unlucky(rng: Any, size: int, ring: Any, tree: Any, ages: Any, proposal: Any) -> Any:
        rounds.append(size)
        slots, keep = once(rng, size, ring, tree, ages, proposal)
        return (slots, keep) if not proposal.bounds.any() else (np.zeros_like(slots), np.zeros_like(keep))

    monkeypatch.setattr(priority_by_age, "_draw_once", unlucky)
    made = n.ReplayBuffer(5_000, {"x": ()}, n.PrioritizedSampler(n.LinearDecay(5_000, 0)), seed=0)
    made.extend(x=np.zeros((5_000, 1)))
    counts = np.bincount(made.sample(50_000).ages - 1, minlength=5_000)
    assert len(rounds) == priority_by_age._ROUNDS + 1
    assert max(rounds) <= 4.4 * 50_000 + 16
    law = n.LinearDecay(5_000, 0).weight(np.arange(1, 5_001)).reshape(50, 100).sum(1)
    assert p_value(counts.reshape(50, 100).sum(1), law / law.sum()) > STRICT


def test_nothing_to_draw_is_said_at_once() -> None:
    """A weight that is 0 wherever something is held, in blocks whose bound is above 0."""
    made = n.ReplayBuffer(5_000, {"x": ()}, n.PrioritizedSampler(Spikes(0.0)), seed=0)
    made.extend(x=np.zeros((90, 1)))
    with pytest.raises(ValueError, match="every one of the 90 stored transitions weight 0"):
        made.sample(32)
