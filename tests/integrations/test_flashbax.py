"""flashbax's item buffer with our ``sample``: the law of what it returns, by the stamps that items carry."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import flashbax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neoteny
from neoteny.integrations.flashbax import make_age_weighted_item_buffer
from oracles import STRICT, p_value

T, W_MIN, DRAWS, BATCH = 40.0, 0.1, 100_000, 100
ITEM = {"stamp": jnp.int32(0), "id": jnp.int32(0)}
HERE = Path(__file__).parent


def swd(age: int) -> float:
    """Algorithm 1, line 3."""
    return max(W_MIN, 1 - age / T)


def steps(start: int, count: int, num_envs: int) -> dict[str, np.ndarray]:
    """`count` vector steps, (envs, time); each item knows when it was added."""
    number = np.arange(start, start + count, dtype=np.int32)[None]
    ids = number * num_envs + np.arange(num_envs, dtype=np.int32)[:, None]
    return {"stamp": np.broadcast_to(number * num_envs, ids.shape), "id": ids}


WAYS: dict[str, tuple[dict[str, Any], int, Callable[[Any], Any]]] = {
    "items": ({}, 1, lambda leaf: leaf[0, 0]),
    "sequences": ({"add_sequences": True}, 5, lambda leaf: leaf[0]),
    "batches of 4": ({"add_batches": True, "num_envs": 4}, 1, lambda leaf: leaf[:, 0]),
    "sequences of batches of 4": (
        {"add_batches": True, "add_sequences": True, "num_envs": 4},
        5,
        lambda leaf: leaf,
    ),
}
"""Each way to add: arguments, how many steps an add brings, and what it takes."""


def make(way: str, capacity: int, **arguments: Any) -> Any:
    if not arguments:
        arguments = {"decay_steps": T, "min_weight": W_MIN}
    return make_age_weighted_item_buffer(capacity, 1, BATCH if capacity >= BATCH else 1, **WAYS[way][0], **arguments)


def fill(way: str, capacity: int, ticks: int, buffer: Any) -> tuple[Any, int]:
    """The state after `ticks` vector steps, and the age clock: the newest is of age 1."""
    arguments, per_add, shape = WAYS[way]
    num_envs = arguments.get("num_envs", 1)
    state, add = buffer.init(ITEM), jax.jit(buffer.add)
    for start in range(0, ticks, per_add):
        state = add(state, jax.tree.map(shape, steps(start, per_add, num_envs)))
    return state, (ticks - 1) * num_envs + 1


def fit(buffer: Any, state: Any, now: int, weight: Callable[[int], float] = swd, seed: int = 0) -> float:
    """The p-value of what ``buffer.sample`` returns under Algorithm 1, by the stamps of all that is stored."""
    held = len(state.experience["id"][0]) if state.is_full else int(state.current_index)
    ids, stamps = (np.asarray(state.experience[name][0, :held]) for name in ("id", "stamp"))
    assert len(np.unique(ids)) == held
    weights = np.array([weight(now - stamp) for stamp in stamps.tolist()])
    keys = jax.random.split(jax.random.key(seed), DRAWS // BATCH)
    drawn = jax.jit(jax.vmap(lambda key: buffer.sample(state, key).experience["id"]))(keys)
    assert set(np.unique(drawn)) <= set(ids.tolist())
    return p_value(np.bincount(drawn.ravel(), minlength=ids.max() + 1)[ids], weights / weights.sum())


@pytest.mark.parametrize(("capacity", "ticks"), [(400, 5), (400, 35), (100, 25), (100, 235)])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_buffer_returns_follows_algorithm_1(way: str, capacity: int, ticks: int) -> None:
    buffer = make(way, capacity)
    assert fit(buffer, *fill(way, capacity, ticks, buffer)) > STRICT


@pytest.mark.parametrize("way", ["batches of 4", "sequences of batches of 4"])
def test_environments_need_not_divide_the_capacity(way: str) -> None:
    buffer = make(way, 102)
    assert fit(buffer, *fill(way, 102, 235, buffer)) > STRICT


@pytest.mark.parametrize("way", WAYS)
def test_the_oracle_sees_uniform_draws_and_ages_off_by_one(way: str) -> None:
    arguments = {name: value for name, value in WAYS[way][0].items() if name != "num_envs"}
    buffer = make(way, 100)
    state, now = fill(way, 100, 235, buffer)
    assert fit(flashbax.make_item_buffer(100, 1, BATCH, **arguments), state, now) < STRICT
    assert fit(buffer, state, now + WAYS[way][0].get("num_envs", 1)) < STRICT


def test_flashbaxs_own_order_of_sequences_of_batches_is_not_age() -> None:
    """What `add` is replaced for: environment after environment, position is not age."""
    way = "sequences of batches of 4"
    theirs = flashbax.make_item_buffer(100, 1, BATCH, add_sequences=True, add_batches=True)
    state, now = fill(way, 100, 235, theirs)
    assert fit(make(way, 100), state, now) < STRICT


class HalfLife:
    def weight(self, age: Any) -> Any:
        return 0.5 ** (age / 15)


@pytest.mark.parametrize("way", ["items", "batches of 4"])
def test_any_schedule(way: str) -> None:
    for schedule, weight in [
        (HalfLife(), lambda age: 0.5 ** (age / 15)),
        (neoteny.Window(20), lambda age: 1.0 if age <= 20 else 0.0),
    ]:
        buffer = make(way, 100, age_weight=schedule)
        assert fit(buffer, *fill(way, 100, 235, buffer), weight) > STRICT


def test_the_key_fixes_the_draws() -> None:
    buffer = make("items", 100)
    state, _ = fill("items", 100, 235, buffer)
    first, same, other = (buffer.sample(state, jax.random.key(seed)).experience["id"] for seed in (0, 0, 1))
    assert (first == same).all()
    assert (first != other).any()
    old_style = buffer.sample(state, jax.random.PRNGKey(0)).experience["id"]
    assert (old_style == first).all()


def test_adding_and_sampling_inside_scan_and_vmap() -> None:
    """Four buffers at once, each filled and sampled in one program; each draw only what its own buffer holds."""
    buffer = make_age_weighted_item_buffer(100, 1, 8, decay_steps=T, min_weight=W_MIN)

    def run(key: Any, first: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            number = first + state.current_index + 100 * state.is_full
            state = buffer.add(state, {"stamp": number, "id": number})
            return state, buffer.sample(state, key).experience["id"]

        return jax.lax.scan(step, buffer.init(ITEM), jax.random.split(key, 150))[1]

    drawn = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 4), jnp.arange(4) * 1000)
    assert drawn.shape == (4, 150, 8)
    for which, ids in enumerate(np.asarray(drawn)):
        back = 1000 * which + np.arange(150)[:, None] - ids
        assert (back >= 0).all()
        assert (back <= np.minimum(np.arange(150), 99)[:, None]).all()


def test_samples_have_the_shapes_and_types_of_flashbaxs_own() -> None:
    item = {"obs": jnp.zeros((3,), jnp.float32), "action": jnp.int32(0), "reward": jnp.zeros((), jnp.float16)}
    ours = make_age_weighted_item_buffer(50, 1, 7, decay_steps=T)
    theirs = flashbax.make_item_buffer(50, 1, 7)
    state = ours.add(ours.init(item), item)
    expected, batch = (jax.eval_shape(b.sample, state, jax.random.key(0)) for b in (theirs, ours))
    assert batch == expected
    assert type(ours) is type(theirs)
    assert bool(ours.can_sample(state))


def test_what_it_does_not_know_is_refused() -> None:
    sizes = (100, 1, 8)
    with pytest.raises(ValueError, match="add_batches=True adds one item of each environment: say num_envs="):
        make_age_weighted_item_buffer(*sizes, add_batches=True)
    with pytest.raises(ValueError, match="num_envs=4 environments are added in batches: say add_batches=True"):
        make_age_weighted_item_buffer(*sizes, num_envs=4)
    with pytest.raises(ValueError, match="num_envs must be >= 1, got 0"):
        make_age_weighted_item_buffer(*sizes, num_envs=0, add_batches=True)
    with pytest.raises(ValueError, match="may use the age alone"):
        make_age_weighted_item_buffer(*sizes, age_weight=neoteny.EmphasizeRecent())
    with pytest.raises(ValueError, match="has its own numbers: leave out min_weight"):
        make_age_weighted_item_buffer(*sizes, age_weight=neoteny.Window(5), min_weight=0.5)
    with pytest.raises(ValueError, match="sample_batch_size must be less than or equal to max_length"):
        make_age_weighted_item_buffer(4, 1, 8)
    buffer = make_age_weighted_item_buffer(*sizes, num_envs=4, add_batches=True)
    with pytest.raises(ValueError, match="must bring num_envs=4 items, one of each environment, got 3"):
        buffer.add(buffer.init(ITEM), jax.tree.map(lambda _: jnp.zeros(3, jnp.int32), ITEM))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("flashbax.buffers.item_buffer_test") is None, reason="flashbax came without its tests")
def test_flashbaxs_own_tests_hold_for_ours(tmp_path: Path) -> None:
    """In a process of its own: they want two devices, which is settled when JAX starts."""
    spec = find_spec("flashbax.buffers.item_buffer_test")
    assert spec is not None
    assert spec.origin is not None
    command = [sys.executable, "-m", "pytest", "-q", "-p", "flashbax_ours", "-p", "no:cacheprovider", spec.origin]
    path = os.pathsep.join([str(HERE), *sys.path])
    run = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert re.search(r"^6 passed", run.stdout, re.MULTILINE), run.stdout[-2000:] + run.stderr[-2000:]
    assert "ours was sampled" in run.stdout
