"""Every world that changes: what is saved around a change of level goes on to the same bits through the next ones."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import neoteny.worlds  # noqa: F401 - registers them
from neoteny import snapshot
from neoteny.worlds.changing import Changing

WORLDS = sorted(name for name in gym.registry if name.startswith("neoteny/"))
EVERY = 13


def make(name: str) -> gym.Env:
    if "LunarLander" in name:
        pytest.importorskip("gymnasium.envs.box2d", exc_type=gym.error.DependencyNotInstalled)
    return gym.make(name, every=EVERY)


def walked(env: gym.Env, actions: list[Any]) -> list[Any]:
    """What these actions bring, episodes that end among it."""
    seen: list[Any] = []
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        seen.append((obs.tobytes(), float(reward), terminated, truncated))
        if terminated or truncated:
            seen.append(env.reset()[0].tobytes())
    return seen


def test_all_are_known() -> None:
    assert len(WORLDS) == 9


@pytest.mark.parametrize("steps", [EVERY - 1, EVERY, EVERY + 1, 3 * EVERY])
@pytest.mark.parametrize("name", WORLDS)
def test_restored_around_a_change_it_goes_on_through_the_next(name: str, steps: int) -> None:
    one, other = make(name), make(name)
    one.action_space.seed(4)
    actions = [one.action_space.sample() for _ in range(steps + 3 * EVERY)]
    one.reset(seed=8)
    walked(one, actions[:steps])
    other.reset(seed=9)
    walked(other, actions[:5])
    snapshot.restore(other, snapshot.save(one))
    base, restored = one.unwrapped, other.unwrapped
    assert isinstance(base, Changing)
    assert isinstance(restored, Changing)
    assert base.level == restored.level == 1 + steps // EVERY
    assert walked(one, actions[steps:]) == walked(other, actions[steps:])
    assert base.level == restored.level == 4 + steps // EVERY


@pytest.mark.parametrize("name", WORLDS)
def test_levels_differ_and_the_same_seed_gives_the_same(name: str) -> None:
    """The first observation of a reset in each level, of an environment that stays in it."""
    env, still = make(name), make(name)
    first = []
    for _ in range(2):
        env.reset(seed=3)
        seen = []
        for _ in range(4):
            base, other = env.unwrapped, still.unwrapped
            assert isinstance(base, Changing)
            assert isinstance(other, Changing)
            other.stay_where(base)
            still.reset(seed=1)
            still.action_space.seed(0)
            seen.append(repr(walked(still, [still.action_space.sample() for _ in range(EVERY)])))
            for _ in range(EVERY):
                _, _, terminated, truncated, _ = env.step(np.asarray(env.action_space.sample()))
                if terminated or truncated:
                    env.reset()
        first.append(seen)
    assert first[0] == first[1]
    turns = 3 if "InTurn" in name else 4  # the fourth level plays the first game again
    assert len(set(first[0])) == turns
