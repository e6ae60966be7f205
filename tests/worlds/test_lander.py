"""LunarLander that drifts: beside the plain one, and saved by how its episode went; needs Box2D."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from neoteny import envs, snapshot
from neoteny.errors import UsageError


def make(name: str = "LunarLander", **arguments: Any) -> Any:
    pytest.importorskip("gymnasium.envs.box2d", exc_type=gym.error.DependencyNotInstalled)
    return gym.make(f"neoteny/Drifting{name}-v0", **arguments)


def test_without_box2d(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("gymnasium.envs.box2d", "neoteny.worlds.lander"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    message = r"LunarLander needs gymnasium\[box2d\], which is not installed: pip install '\.\[box2d\]'"
    with pytest.raises(UsageError, match=message):
        envs.make("neoteny/DriftingLunarLander-v0")


@pytest.mark.parametrize("name", ["LunarLander", "LunarLanderGravity"])
def test_gymnasiums_own_check(name: str) -> None:
    env = make(name)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Box (observation|action) space")
        check_env(env.unwrapped, skip_render_check=True)
    assert env.spec.max_episode_steps == gym.spec("LunarLander-v3").max_episode_steps


@pytest.mark.parametrize("name", ["LunarLander", "LunarLanderGravity"])
def test_each_level_beside_the_plain_one(name: str) -> None:
    env, twin = make(name, every=30).unwrapped, gym.make("LunarLander-v3").unwrapped
    draws = [np.random.default_rng([5, level]) for level in range(1, 12)]
    offsets, gravities = np.zeros((11, 8), np.float32), np.full(11, -10.0)
    if name == "LunarLander":
        offsets = np.array([rng.normal(0, 2, 8).astype(np.float32) for rng in draws])
    else:
        gravities = np.array([-10.0 * 2.0 ** rng.uniform(-1, 1) for rng in draws])
    twin.gravity = gravities[0]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(env.reset(seed=5)[0], twin.reset(seed=5)[0] + offsets[0])
    rng = np.random.default_rng(1)
    for step in range(1, 300):
        twin.world.gravity = (0, gravities[(step - 1) // 30])  # type: ignore[attr-defined]
        action = int(rng.integers(4))
        obs, reward, terminated, *_ = env.step(action)
        expected, expected_reward, expected_end, *_ = twin.step(action)
        np.testing.assert_array_equal(obs, expected + offsets[step // 30])
        assert (reward, terminated) == (expected_reward, expected_end)
        if terminated:
            twin.gravity = gravities[step // 30]  # type: ignore[attr-defined]
            np.testing.assert_array_equal(env.reset()[0], twin.reset()[0] + offsets[step // 30])
    assert env.level == 10


def test_restored_at_a_random_moment_it_goes_on_to_the_same_bits() -> None:
    """Fifty episodes; half of them are flown by Gymnasium's pilot until a leg touches the ground."""
    one, other = make("LunarLanderGravity", every=37), make("LunarLanderGravity", every=37)
    from gymnasium.envs.box2d.lunar_lander import heuristic

    rng, touching = np.random.default_rng(0), 0
    for episode in range(50):
        obs, _ = one.reset(seed=episode)
        other.reset(seed=1_000 + episode)
        for _ in range(int(rng.integers(20))):
            other.step(int(rng.integers(4)))
        for _ in range(400 if episode % 2 else int(rng.integers(400))):
            obs, _, ended, *_ = one.step(heuristic(one.unwrapped, obs) if episode % 2 else int(rng.integers(4)))
            if ended:
                obs, _ = one.reset()
            if episode % 2 and (obs[6] or obs[7]):
                touching += 1
                break
        snapshot.restore(other, snapshot.save(one))
        for _ in range(120):
            action = int(rng.integers(4))
            came, expected = other.step(action), one.step(action)
            assert came[0].tobytes() == expected[0].tobytes()
            assert came[1:4] == expected[1:4]
            if expected[2] or expected[3]:
                assert other.reset()[0].tobytes() == one.reset()[0].tobytes()
    assert touching >= 20
