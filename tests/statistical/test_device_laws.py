"""The device's draws against Algorithm 1, small and at millions."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neoteny import (
    EmphasizeRecent,
    GeometricDecay,
    InverseAge,
    LinearDecay,
    LinearGrowth,
    ReferenceSampler,
    Schedule,
    TruncatedGeometric,
    Uniform,
)
from neoteny.replay import device
from oracles import RINGS, SCHEDULES, STRICT, assert_million, p_value, weight_by_hand

ON_DEVICE = [schedule for schedule in SCHEDULES if not isinstance(schedule, EmphasizeRecent)]
DRAWS = 200_000


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ON_DEVICE, ids=str)
@pytest.mark.parametrize("num_envs", [1, 7])
def test_draws_follow_algorithm_1(schedule: Schedule, num_envs: int) -> None:
    law = device.law_of(schedule, 105, num_envs)

    @partial(jax.jit, static_argnames="capacity")
    def slots(key: jax.Array, num_stored: int, head: int, capacity: int) -> jax.Array:
        return device.draw_slots(law, key, DRAWS, num_stored, head, capacity, num_envs)

    for seed, ring in enumerate(ring for ring in RINGS.values() if ring.num_envs == num_envs):
        drawn = slots(jax.random.key(seed), ring.num_stored, ring.head, ring.capacity)
        expected = ring.algorithm_1(lambda age, ring=ring: weight_by_hand(schedule, age, ring.num_stored))
        assert p_value(np.bincount(drawn, minlength=ring.capacity), expected) > STRICT


@pytest.mark.parametrize(
    "schedule",
    [
        LinearDecay(),
        LinearDecay("auto"),
        LinearGrowth(),
        GeometricDecay(),
        GeometricDecay(2e-6, 0),
        TruncatedGeometric(100_000),
        TruncatedGeometric(499_000),
        Uniform(),
    ],
    ids=str,
)
@pytest.mark.parametrize("num_envs", [1, 7])
def test_draws_of_a_million(schedule: Schedule, num_envs: int) -> None:
    n = 1_000_000
    law = device.law_of(schedule, n, num_envs)
    positions = jax.jit(lambda key: law(key, 4_000_000, n, num_envs))(jax.random.key(0))
    assert_million(np.asarray(positions), ReferenceSampler(schedule).probabilities(n, num_envs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "schedule",
    [LinearDecay("auto"), GeometricDecay(1e-4, 0.1), GeometricDecay(2e-6, 0), TruncatedGeometric(100_000)],
    ids=str,
)
@pytest.mark.parametrize("num_envs", [1, 7])
@pytest.mark.parametrize(
    ("capacity", "head"), [(1_400_000, 1_000_006), (1_000_006, 123_459)], ids=["growing", "wrapped"]
)
def test_slots_of_a_million(schedule: Schedule, num_envs: int, capacity: int, head: int) -> None:
    """A million in a ring that still grows, and in one that has wrapped: slots, turned back into positions by hand."""
    n = 1_000_006
    law = device.law_of(schedule, capacity, num_envs)
    draw = jax.jit(lambda key, n, head: device.draw_slots(law, key, 1_000_000, n, head, capacity, num_envs))
    slots = np.asarray(draw(jax.random.key(2), n, head), np.int64)
    newest = head - 1
    positions = np.where(slots <= newest, newest - slots, newest + capacity - slots)
    assert_million(positions, ReferenceSampler(schedule).probabilities(n, num_envs))


def test_ten_million_entries_in_float32() -> None:
    """Every position can come up: float32 alone would skip odd ones past 2^24 and thin the tail before it."""
    n, schedule = 10_000_000, LinearDecay(4_000_000, 0.1)
    law = device.law_of(schedule, n)
    positions = np.asarray(jax.jit(lambda key: law(key, 8_000_000, n, 1))(jax.random.key(0)))
    assert_million(positions, ReferenceSampler(schedule).probabilities(n))


def test_a_grid_over_t_and_w_min_and_seeds_is_one_program() -> None:
    ring = RINGS["wrapped"]
    compiled = 0

    @jax.jit
    @jax.vmap
    def grid(key: jax.Array, decay_steps: jax.Array, min_weight: jax.Array) -> jax.Array:
        nonlocal compiled
        compiled += 1
        law = device.linear_decay(decay_steps, min_weight)
        return device.draw_slots(law, key, DRAWS, ring.num_stored, ring.head, ring.capacity)

    cells = [(T, w) for T in (5.0, 40.0, 337.7) for w in (0.0, 0.1, 1.0)]
    drawn = grid(jax.random.split(jax.random.key(0), 9), *jnp.array(cells).T)
    for slots, (T, w) in zip(drawn, cells, strict=True):
        expected = ring.algorithm_1(lambda age, T=T, w=w: max(w, 1 - age / T))
        assert p_value(np.bincount(slots, minlength=ring.capacity), expected) > STRICT
    assert compiled == 1


def test_a_schedule_of_the_size_is_refused() -> None:
    with pytest.raises(ValueError, match="may use the age alone"):
        device.law_of(EmphasizeRecent(), 100)


def test_ring_holds_what_was_added() -> None:
    ring = device.init(6, {"stamp": jnp.int32(0), "obs": jnp.zeros(2)}, num_envs=2)
    add = jax.jit(device.add)
    for tick in range(5):
        stamps = jnp.array([2 * tick, 2 * tick + 1])
        ring = add(ring, {"stamp": stamps, "obs": jnp.stack([stamps, -stamps], axis=1).astype(jnp.float32)})
    assert (int(ring.head), int(ring.num_stored), ring.capacity) == (4, 6, 6)
    batch = device.sample(ring, jax.random.key(0), 500, device.uniform())
    assert set(batch["stamp"].tolist()) == {4, 5, 6, 7, 8, 9}
    assert (batch["obs"][:, 0] == batch["stamp"]).all()
    newest = device.sample(ring, jax.random.key(0), 500, device.window(1))
    assert set(newest["stamp"].tolist()) == {8, 9}


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of num_envs >= 1, got 0 and 1"):
        device.init(0, jnp.zeros(()))
    with pytest.raises(ValueError, match="multiple of num_envs >= 1, got 5 and 2"):
        device.init(5, jnp.zeros(()), num_envs=2)
    with pytest.raises(ValueError, match=r"an add brings 2 transitions, environments first, got \(3,\)"):
        device.add(device.init(6, jnp.zeros(()), num_envs=2), jnp.zeros(3))
    with pytest.raises(ValueError, match="table is for 100 transitions, the ring holds 200"):
        device.draw_slots(device.law_of(InverseAge(), 100), jax.random.key(0), 4, 200, 0, 200)


@pytest.mark.parametrize("make", [device.linear_decay, device.linear_growth])
def test_numbers_that_the_host_refuses_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="decay_steps must be a finite number > 0, got -5"):
        make(-5, 0.1)
    with pytest.raises(ValueError, match="decay_steps must be > 1 when min_weight is 0, got 1"):
        device.linear_decay(1.0, 0.0)
    with pytest.raises(ValueError, match="steps must be a finite number >= 1, got 0"):
        device.window(0)


def test_a_window_longer_than_int32_is_uniform() -> None:
    drawn = device.window(2.2e9)(jax.random.key(0), 10_000, 70, 7)
    assert set(drawn.tolist()) == set(range(70))


def test_positions_stay_below_what_is_held_past_2_to_the_24() -> None:
    held = 2**24 + 3
    drawn = device.linear_decay(1e9, 0.0)(jax.random.key(0), 2_000_000, held, 1)
    assert int(drawn.max()) < held
