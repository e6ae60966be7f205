"""Priorities: a sum tree against plain sums, importance weights by hand, errors and state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neoteny as n
from neoteny.replay.priority_by_age import YOUNG, AgeWeights
from neoteny.replay.storage import Ring
from neoteny.replay.sumtree import BLOCK, SumTree


@given(st.integers(1, 3000), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_sums_are_those_of_the_leaves(size: int, rounds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree, leaves = SumTree(size), np.zeros(size)
    for _ in range(rounds):
        slots = rng.integers(0, size, int(rng.integers(1, 2 * size + 1)))
        weights = rng.random(len(slots))
        tree.set(slots, weights)
        for slot, weight in zip(slots, weights, strict=True):  # of duplicates the last counts
            leaves[slot] = weight
    np.testing.assert_array_equal(tree.leaves[:size], leaves)
    np.testing.assert_allclose(tree.node_sums, tree.leaves.reshape(-1, 16).sum(1), rtol=1e-14)
    np.testing.assert_allclose(tree.block_sums, tree.leaves.reshape(-1, 256).sum(1), rtol=1e-14)


def test_sums_do_not_drift_over_a_million_updates() -> None:
    """Weights across 12 orders of magnitude, where a tree corrected by differences would keep residues."""
    rng = np.random.default_rng(0)
    tree = SumTree(100_000)
    for _ in range(4_000):
        tree.set(rng.integers(0, 100_000, 256), 10 ** rng.uniform(-6, 6, 256))
    np.testing.assert_allclose(tree.block_sums, tree.leaves.reshape(-1, 256).sum(1), rtol=1e-13)
    for slots in np.arange(100_000).reshape(-1, 250):  # small again, a batch at a time: nothing large may remain
        tree.set(slots, np.full(250, 1e-6))
    np.testing.assert_allclose(tree.block_sums, tree.leaves.reshape(-1, 256).sum(1), rtol=1e-13)
    assert tree.block_sums.sum() == pytest.approx(0.1, rel=1e-12)


def buffer(capacity: int = 10, ticks: int = 13, sampler: Any = None, **options: Any) -> n.ReplayBuffer:
    made = n.ReplayBuffer(capacity, {"number": ()}, sampler or n.PrioritizedSampler(), seed=0, **options)
    for tick in range(ticks):
        made.add(number=np.full(made.num_envs, tick))
    return made


def test_importance_weights_by_hand() -> None:
    """p = (|delta| + 1e-6)^0.6, weight (N P)^-beta over the batch's largest, beta from 0.4 by 1e-6 a batch."""
    made = buffer(sampler=n.PrioritizedSampler(beta_step=0.1))
    batch = made.gather(np.arange(10))
    errors = np.linspace(-3, 2, 10)
    made.update_priorities(batch, errors)
    p = (np.abs(errors) + 1e-6) ** 0.6
    p /= p.sum()
    np.testing.assert_allclose(made.law(), p, rtol=1e-12)
    for beta in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0):
        drawn = made.sample(64)
        by_hand = (10 * p[drawn.ages - 1]) ** -beta
        assert drawn.weights is not None
        np.testing.assert_allclose(drawn.weights, by_hand / by_hand.max(), rtol=1e-9)


def test_several_batches_at_once_have_weights_of_their_own() -> None:
    """Each over its own largest, with a beta of its own: as if they had been drawn one after the other."""
    made = buffer(sampler=n.PrioritizedSampler(beta_step=0.1))
    errors = np.linspace(-3, 2, 10)
    made.update_priorities(made.gather(np.arange(10)), errors)
    p = (np.abs(errors) + 1e-6) ** 0.6
    drawn = made.sample(8, batches=3)
    assert drawn.weights is not None
    for index, beta in enumerate((0.4, 0.5, 0.6)):
        part = slice(8 * index, 8 * index + 8)
        by_hand = p[drawn.ages[part] - 1] ** -beta
        np.testing.assert_allclose(drawn.weights[part], by_hand / by_hand.max(), rtol=1e-9)


def test_with_age_weights_the_importance_weights_are_of_the_priority_alone() -> None:
    made = buffer(sampler=n.PrioritizedSampler(n.LinearDecay(9, 0.1)))
    errors = np.linspace(0.1, 2, 10)
    made.update_priorities(made.gather(np.arange(10)), errors)
    p = (errors + 1e-6) ** 0.6
    law = p * np.maximum(0.1, 1 - np.arange(1, 11) / 9)
    np.testing.assert_allclose(made.law(), law / law.sum(), rtol=1e-12)
    drawn = made.sample(200)
    by_hand = p[drawn.ages - 1] ** -0.4
    assert drawn.weights is not None
    np.testing.assert_allclose(drawn.weights, by_hand / by_hand.max(), rtol=1e-9)


def test_new_transitions_have_the_largest_raw_priority_seen() -> None:
    made = buffer()
    np.testing.assert_allclose(made.law(), 0.1)
    made.update_priorities(made.gather(np.arange(10)), np.array([8.0] + [0.5] * 9))
    made.add(number=99)
    made.update_priorities(made.gather(np.array([1])), [0.25])  # the 8 is gone, and still the largest seen
    made.add(number=99)
    raw = np.array([8, 8, 0.25] + [0.5] * 7) + np.array([1e-6, 1e-6] + [1e-6] * 8)
    np.testing.assert_allclose(made.law(), raw**0.6 / (raw**0.6).sum(), rtol=1e-9)


def test_what_was_overwritten_meanwhile_is_passed_over() -> None:
    made = buffer()
    batch = made.gather(np.arange(10))
    for _ in range(4):
        made.add(number=99)
    made.update_priorities(batch, np.full(10, 0.5))
    raw = np.array([1.0] * 4 + [0.5 + 1e-6] * 6)
    np.testing.assert_allclose(made.law(), raw**0.6 / (raw**0.6).sum(), rtol=1e-9)


def test_a_batch_overwritten_whole_is_passed_over() -> None:
    made = buffer()
    batch = made.gather(np.arange(4))
    for _ in range(10):
        made.add(number=99)
    made.update_priorities(batch, np.full(4, 50.0))
    np.testing.assert_allclose(made.law(), 0.1)


def test_a_batch_from_before_a_restore_to_an_earlier_state_is_refused() -> None:
    made = buffer()
    state = made.state()
    made.add(number=1)
    batch = made.sample(4)
    made.restore(state)
    with pytest.raises(ValueError, match="drawn before the buffer was restored"):
        made.update_priorities(batch, np.ones(4))


def test_a_view_follows_a_restore_of_the_other() -> None:
    made = n.ReplayBuffer(1_000, {"number": ()}, n.AgeWeightedSampler(n.Uniform()), seed=0)
    made.extend(number=np.arange(100))
    state, view = made.state(), made.with_sampler(n.PrioritizedSampler(), seed=1)
    made.extend(number=np.arange(500))
    view.update_priorities(view.sample(64), np.full(64, 9.0))
    made.restore(state)
    np.testing.assert_allclose(view.law(), 0.01)
    assert view.sample(500).positions.max() < 100


@pytest.mark.parametrize("sampler", [n.PrioritizedSampler(), n.PrioritizedSampler(n.LinearDecay(300, 0.05))], ids=str)
@pytest.mark.parametrize("ticks", [120, 1500])
def test_restored_it_samples_the_same_bits(ticks: int, sampler: Any) -> None:
    one, other = buffer(1000, ticks, sampler, num_envs=2), buffer(1000, 7, sampler, num_envs=2)
    rng = np.random.default_rng(0)
    for _ in range(30):
        one.update_priorities(one.sample(64), rng.normal(size=64))
    other.restore(one.state())
    for _ in range(5):
        a, b = one.sample(64), other.sample(64)
        np.testing.assert_array_equal(a.numbers, b.numbers)
        np.testing.assert_array_equal(a.weights, b.weights)  # type: ignore[arg-type]
        errors = rng.normal(size=64)
        for made, batch in ((one, a), (other, b)):
            made.update_priorities(batch, errors)
            made.add(number=[1, 2])
    assert one.statistics() == other.statistics()


def test_a_uniform_view_of_a_prioritised_buffer() -> None:
    made = buffer()
    uniform = made.with_sampler(n.AgeWeightedSampler(n.Uniform()), seed=1)
    with pytest.raises(TypeError, match="has no priorities to update"):
        uniform.update_priorities(uniform.sample(4), np.ones(4))
    later = made.with_sampler(n.PrioritizedSampler(), seed=1)
    made.add(number=50)
    assert 50 in later.sample(500)["number"]


@pytest.mark.parametrize(
    ("errors", "message"),
    [(np.ones(3), r"shape \(4,\), got \(3,\)"), (np.array([1, np.nan, 1, 1]), "errors must be finite, got nan")],
)
def test_bad_errors_are_refused_and_change_nothing(errors: np.ndarray, message: str) -> None:
    made = buffer()
    before = made.law()
    with pytest.raises(ValueError, match=message):
        made.update_priorities(made.sample(4), errors)
    np.testing.assert_array_equal(made.law(), before)


@pytest.mark.parametrize("field", ["alpha", "beta", "beta_step"])
def test_bad_numbers_are_refused(field: str) -> None:
    with pytest.raises(ValueError, match=rf"{field} must be in \[0, 1\], got 1.5"):
        n.PrioritizedSampler(**{field: 1.5})
    with pytest.raises(ValueError, match=r"eps must be from 1e-100 to 1e\+100, got 0"):
        n.PrioritizedSampler(eps=0)


def test_a_law_without_weight_is_refused() -> None:
    class Old:
        def weight(self, age: np.ndarray) -> np.ndarray:
            return (age > 400).astype(float)

    made = buffer(1000, 100, n.PrioritizedSampler(Old()))
    with pytest.raises(ValueError, match="every one of the 100 stored transitions weight 0"):
        made.sample(4)


@given(st.integers(1, 2500), st.integers(1, 6000), st.integers(1, 7), st.booleans())
def test_bounds_hold_for_every_slot(capacity: int, added: int, num_envs: int, monotone: bool) -> None:
    """A bound below one weight would silently cut that transition's probability."""

    class Wavy:
        def weight(self, age: np.ndarray) -> np.ndarray:
            return 1 / age if monotone else 1.1 + np.sin(age / 3)

    ring = Ring(max(capacity, num_envs), 1, num_envs)
    ring.clock = added * num_envs
    ring.forget_before(ring.clock - ring.capacity)
    ages = AgeWeights(Wavy(), ring, len(SumTree(ring.capacity).block_sums))
    positions = np.arange(YOUNG, ring.num_stored)
    slots = ring.slots_of(positions)
    assert (ages.over_blocks()[slots // BLOCK] >= ages.of(positions)).all()
    young = np.arange(min(YOUNG, ring.num_stored))
    np.testing.assert_array_equal(ages.of_young(), ages.of(young))
