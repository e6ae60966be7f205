"""Every schedule and sampler against Algorithm 1 as printed, over real stamps."""

from __future__ import annotations

import numpy as np
import pytest

from neoteny import (
    AgeWeightedSampler,
    BucketedSampler,
    EmphasizeRecent,
    ExponentialDecay,
    GeometricDecay,
    InverseAge,
    LinearDecay,
    LinearGrowth,
    PolynomialDecay,
    ReferenceSampler,
    Sampler,
    Schedule,
    TruncatedGeometric,
    Uniform,
    Window,
)
from neoteny.replay.sampling import slots_of
from oracles import RINGS, SCHEDULES, STRICT, StampedRing, assert_million, p_value, weight_by_hand

every_ring = pytest.mark.parametrize("ring", RINGS.values(), ids=RINGS.keys())
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES, ids=str)


def law_over_slots(sampler: Sampler, ring: StampedRing) -> np.ndarray:
    n = ring.num_stored
    law = np.zeros(ring.capacity)
    law[slots_of(np.arange(n), ring.head, ring.capacity)] = sampler.probabilities(n, ring.num_envs)
    return law


def algorithm_1(schedule: Schedule, ring: StampedRing) -> np.ndarray:
    return ring.algorithm_1(lambda age: weight_by_hand(schedule, age, ring.num_stored))


@every_ring
@every_schedule
@pytest.mark.parametrize("kind", [AgeWeightedSampler, ReferenceSampler])
def test_exact_law_is_algorithm_1(kind: type, schedule: Schedule, ring: StampedRing) -> None:
    np.testing.assert_allclose(law_over_slots(kind(schedule), ring), algorithm_1(schedule, ring), rtol=1e-9, atol=1e-15)


@every_ring
@every_schedule
def test_draws_follow_algorithm_1(schedule: Schedule, ring: StampedRing) -> None:
    slots = AgeWeightedSampler(schedule).slots(np.random.default_rng(0), 100_000, **ring.numbers())
    assert slots.dtype == np.int64
    assert p_value(np.bincount(slots, minlength=ring.capacity), algorithm_1(schedule, ring)) > STRICT


@every_ring
@pytest.mark.parametrize(
    "kind", [ReferenceSampler, lambda s: BucketedSampler(s, 16), lambda s: BucketedSampler(s, 16, True)]
)
def test_the_papers_samplers_draw_their_own_laws(kind: type, ring: StampedRing) -> None:
    sampler = kind(LinearDecay(40, 0.1))
    slots = sampler.slots(np.random.default_rng(0), 100_000, **ring.numbers())
    assert p_value(np.bincount(slots, minlength=ring.capacity), law_over_slots(sampler, ring)) > STRICT


@every_ring
@pytest.mark.parametrize("buckets", [1, 7, 16, 2000])
def test_bucketed_law_by_hand(ring: StampedRing, buckets: int) -> None:
    """Median weight x length, cut by age, every transition in a bucket; exact when there are enough buckets."""
    schedule, n = LinearDecay(40, 0.1), ring.num_stored
    count = min(buckets, n)
    by_hand: list[float] = []
    for b in range(count):
        members = range(b * n // count, (b + 1) * n // count)
        median_age = 1 + (members[len(members) // 2] // ring.num_envs) * ring.num_envs
        by_hand += [weight_by_hand(schedule, median_age, n)] * len(members)
    law = BucketedSampler(schedule, buckets).probabilities(n, ring.num_envs)
    np.testing.assert_allclose(law, np.array(by_hand) / sum(by_hand), rtol=1e-12)
    if buckets >= n:
        np.testing.assert_allclose(law, ReferenceSampler(schedule).probabilities(n, ring.num_envs), rtol=1e-12)


@pytest.mark.parametrize(
    "schedule",
    [
        LinearDecay(),
        LinearDecay(337.7, 0),
        LinearDecay("auto"),
        LinearDecay(decay_fraction=0.7, min_weight=0),
        LinearGrowth(),
        ExponentialDecay(),
        PolynomialDecay(),
        GeometricDecay(),
        GeometricDecay(2e-6, 0),
        TruncatedGeometric(100_000),
        TruncatedGeometric(499_000),
        InverseAge(),
        EmphasizeRecent(),
        Window(),
        Uniform(),
    ],
    ids=str,
)
@pytest.mark.parametrize("num_envs", [1, 7])
def test_draws_of_a_million(schedule: Schedule, num_envs: int) -> None:
    n = 1_000_000
    positions = AgeWeightedSampler(schedule).positions(np.random.default_rng(1), 4_000_000, n, num_envs)
    assert_million(positions, ReferenceSampler(schedule).probabilities(n, num_envs))


@pytest.mark.parametrize(
    "schedule",
    [
        LinearDecay("auto"),
        ExponentialDecay(30_000),
        GeometricDecay(1e-4, 0.1),
        GeometricDecay(2e-6, 0),
        TruncatedGeometric(100_000),
    ],
    ids=str,
)
@pytest.mark.parametrize("num_envs", [1, 7])
@pytest.mark.parametrize(
    ("capacity", "head"), [(1_400_000, 1_000_006), (1_000_006, 123_459)], ids=["growing", "wrapped"]
)
def test_slots_of_a_million(schedule: Schedule, num_envs: int, capacity: int, head: int) -> None:
    """A million in a ring that still grows, and in one that has wrapped: slots, turned back into positions by hand."""
    n = 1_000_006
    ring = {"num_stored": n, "head": head, "capacity": capacity, "num_envs": num_envs}
    slots = AgeWeightedSampler(schedule).slots(np.random.default_rng(2), 2_000_000, **ring)
    newest = head - 1
    positions = np.where(slots <= newest, newest - slots, newest + capacity - slots)
    assert_million(positions, ReferenceSampler(schedule).probabilities(n, num_envs))


def test_the_chi_square_can_fail() -> None:
    """Off by one age, or with a floor of 0.11 instead of 0.1, the same number of draws is enough to see it."""
    ring, schedule = RINGS["wrapped"], LinearDecay(40, 0.1)
    rng = np.random.default_rng(0)
    late = (AgeWeightedSampler(schedule).slots(rng, 100_000, **ring.numbers()) - 1) % ring.capacity
    assert p_value(np.bincount(late, minlength=ring.capacity), algorithm_1(schedule, ring)) < STRICT
    other = AgeWeightedSampler(LinearDecay(40, 0.11)).slots(rng, 1_000_000, **ring.numbers())
    assert p_value(np.bincount(other, minlength=ring.capacity), algorithm_1(schedule, ring)) < STRICT
