"""Samplers: a user's own schedule, the numbers of a ring, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neoteny as n
from neoteny.replay.ages.ageing import ages_of
from neoteny.replay.sampling import slots_of
from neoteny.testing import check_schedule
from oracles import RINGS, StampedRing, p_value


class Half:
    """A user's schedule: one class, one method, nothing of ours."""

    def weight(self, age: np.ndarray) -> np.ndarray:
        return 0.5 ** (age / 20)


class TopTenth:
    """A user's schedule that depends on the size: only the newest tenth."""

    uses = ("num_stored",)

    def weight(self, age: np.ndarray, num_stored: int) -> np.ndarray:
        return (age <= max(1, num_stored / 10)).astype(float)


class Sharpening:
    """A user's schedule that depends on the clock."""

    uses = ("clock",)

    def weight(self, age: np.ndarray, clock: int) -> np.ndarray:
        return np.exp(-age * clock / 10_000)


@given(st.integers(1, 9), st.integers(1, 60), st.integers(1, 90))
def test_position_is_age_whatever_the_wrap(num_envs: int, capacity: int, ticks: int) -> None:
    ring = StampedRing(max(capacity, num_envs), num_envs, ticks)
    positions = np.arange(ring.num_stored)
    slots = slots_of(positions, ring.head, ring.capacity)
    assert len(set(slots.tolist())) == ring.num_stored
    stamps = [ring.stamps[slot] for slot in slots]
    assert [ring.now - stamp for stamp in stamps if stamp is not None] == ages_of(positions, num_envs).tolist()


@pytest.mark.parametrize("name", n.SAMPLERS)
def test_a_users_schedule_works_in_every_sampler(name: str) -> None:
    ring = RINGS["wrapped, 7 envs"]
    slots = n.SAMPLERS[name](Half()).slots(np.random.default_rng(0), 100_000, **ring.numbers())
    expected = ring.algorithm_1(lambda age: 0.5 ** (age / 20))
    assert p_value(np.bincount(slots, minlength=ring.capacity), expected) > 1e-6


def test_a_schedule_of_size_or_clock_follows_them() -> None:
    sampler, rng = n.AgeWeightedSampler(TopTenth()), np.random.default_rng(0)
    for size in (40, 100, 40):
        assert set(sampler.positions(rng, 5_000, size).tolist()) == set(range(size // 10))
    sampler = n.AgeWeightedSampler(Sharpening())
    early, late = (sampler.positions(rng, 5_000, 100, clock=clock).mean() for clock in (100, 10_000))
    assert early > 10 * late
    cached = n.BucketedSampler(Sharpening(), buckets=10, cached=True)
    assert cached.probabilities(100, clock=100)[0] < cached.probabilities(100, clock=10_000)[0]


def test_a_schedule_of_the_clock_needs_it() -> None:
    for name in n.SAMPLERS:
        with pytest.raises(ValueError, match="uses the clock: pass clock="):
            n.SAMPLERS[name](Sharpening()).slots(
                np.random.default_rng(0), 4, num_stored=10, head=0, capacity=10, num_envs=1
            )


def test_one_table_serves_every_size() -> None:
    calls = []

    class Counted(Half):
        def weight(self, age: np.ndarray) -> np.ndarray:
            calls.append(len(age))
            return super().weight(age)

    sampler, rng = n.AgeWeightedSampler(Counted()), np.random.default_rng(0)
    for size in range(1, 5_000):
        sampler.positions(rng, 4, size)
    assert sum(calls) < 2 * 5_000
    assert len(calls) < 10


def test_the_same_generator_gives_the_same_slots() -> None:
    sampler = n.AgeWeightedSampler(n.LinearDecay())
    ring = {"num_stored": 1000, "head": 5, "capacity": 1000, "num_envs": 1}
    first, second = (sampler.slots(np.random.default_rng(3), 64, **ring) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_stored": 0}, "nothing is stored yet"),
        ({"num_stored": 11}, r"num_stored must be in 1..capacity=10, got 11"),
        ({"head": 10}, r"must be in 0..9, got 10"),
        ({"head": -1}, r"must be in 0..9, got -1"),
        ({"num_envs": 0}, "num_envs must be >= 1, got 0"),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
    ],
)
def test_numbers_that_are_no_ring_are_refused(change: dict[str, int], message: str) -> None:
    numbers = {"num_stored": 5, "head": 5, "capacity": 10, "num_envs": 1, "batch_size": 4, **change}
    with pytest.raises(ValueError, match=message):
        n.AgeWeightedSampler(n.Uniform()).slots(np.random.default_rng(0), **numbers)


@pytest.mark.parametrize("wrong", [n.LinearDecay, "swd", None])
def test_what_is_no_schedule_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"an object with weight\(age\)"):
        n.AgeWeightedSampler(wrong)  # type: ignore[arg-type]


class Broken:
    def __init__(self, weight: object) -> None:
        self.weight = weight

    def __repr__(self) -> str:
        return "Broken"


@pytest.mark.parametrize("name", n.SAMPLERS)
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (lambda age: -1.0 * age, "finite and >= 0, got -1.0 at age 1"),
        (lambda age: np.where(age > 3, np.nan, 1.0), "finite and >= 0, got nan at age 4"),
        (lambda age: 1.0, r"one weight for each age: shape \(\d+,\), got \(\)"),
        (lambda age: 0.0 * age, "every one of the 10 stored transitions weight 0"),
    ],
)
def test_bad_weights_are_refused(name: str, weight: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        n.SAMPLERS[name](Broken(weight)).positions(np.random.default_rng(0), 4, 10)


def test_check_schedule_passes_ours_and_theirs() -> None:
    for schedule in (n.LinearDecay(50), n.EmphasizeRecent(0.999, 10), Half(), TopTenth(), Sharpening()):
        check_schedule(schedule)


def test_check_schedule_catches_what_it_should() -> None:
    class Forgetful:
        """Its weights depend on how many ages are asked for at once, so no table can serve every size."""

        def weight(self, age: np.ndarray) -> np.ndarray:
            return age / len(np.atleast_1d(age))

    class Misspelt:
        uses = ("size",)

        def weight(self, age: np.ndarray, size: int) -> np.ndarray:
            return age / size

    with pytest.raises(AssertionError, match="depend on the age alone"):
        check_schedule(Forgetful())
    with pytest.raises(AssertionError, match="'num_stored' and 'clock', got \\['size'\\]"):
        check_schedule(Misspelt())
    with pytest.raises(AssertionError, match="finite and >= 0"):
        check_schedule(Broken(lambda age: -1.0 * age))


def test_a_head_that_cannot_be_is_refused_while_the_ring_fills() -> None:
    sampler, rng = n.AgeWeightedSampler(n.LinearDecay(50)), np.random.default_rng(0)
    for head in (0, 36, 38, 99):
        with pytest.raises(ValueError, match=f"holds 37 of 100 transitions writes slot 37 next, got head={head}"):
            sampler.slots(rng, 4, num_stored=37, head=head, capacity=100)
    assert sampler.slots(rng, 5_000, num_stored=37, head=37, capacity=100).max() == 36
    assert sampler.slots(rng, 5_000, num_stored=100, head=99, capacity=100).max() == 99  # full: any head


def test_a_ring_that_drops_early_may_have_its_head_anywhere() -> None:
    sampler, rng = n.AgeWeightedSampler(n.LinearDecay(50)), np.random.default_rng(0)
    slots = sampler.slots(rng, 5_000, num_stored=37, head=5, capacity=100, drops_early=True)
    assert set(slots.tolist()) == {*range(5), *range(68, 100)}


@pytest.mark.parametrize("name", n.SAMPLERS)
@pytest.mark.parametrize(("length", "num_envs", "ticks"), [(25, 4, 9), (25, 4, 25), (25, 4, 61), (14, 7, 40)])
def test_pairs_of_a_two_dimensional_ring_follow_algorithm_1(name: str, length: int, num_envs: int, ticks: int) -> None:
    """Rows are vector steps: written as arrays [row, env], and read by its pairs."""
    ring = StampedRing(length * num_envs, num_envs, ticks)
    pos, full = ticks % length, ticks >= length
    rows, envs = n.SAMPLERS[name](Half()).pairs(
        np.random.default_rng(0), 100_000, pos=pos, full=full, length=length, num_envs=num_envs
    )
    counts = np.zeros((length, num_envs))
    np.add.at(counts, (rows, envs), 1)
    assert p_value(counts.ravel(), ring.algorithm_1(lambda age: 0.5 ** (age / 20))) > 1e-6


def test_pairs_of_what_is_no_ring_are_refused() -> None:
    def attempt(**change: Any) -> None:
        ring = {"pos": 3, "full": False, "length": 10, "num_envs": 2, **change}
        n.AgeWeightedSampler(n.Uniform()).pairs(np.random.default_rng(0), 4, **ring)

    attempt()
    for change, message in (
        ({"pos": 10, "full": True}, "pos, the next row to be written, must be in 0..9, got 10"),
        ({"pos": 0}, "nothing is stored yet"),
        ({"num_envs": 0}, "num_envs must be >= 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            attempt(**change)
