"""Environments: wrappers in their order, true final observations, what is refused."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from neoteny import envs
from neoteny.errors import UsageError


def test_deepmind_control_against_dm_control_itself() -> None:
    """Rewards summed over two control steps, observations flattened by sorted name, truncated and never terminated."""
    from dm_control import suite

    vector_env = envs.make("dm_control/cartpole-balance-v0", 1)
    assert envs.observation_keys(vector_env) == ["position", "velocity"]
    vector_env.reset(seed=3)
    inner: Any = vector_env.envs[0].unwrapped
    plain = suite.load("cartpole", "balance")
    plain.reset()
    with plain.physics.reset_context():
        plain.physics.set_state(inner._env.physics.get_state())
    for action in np.linspace(-1, 1, 20):
        obs, reward, terminated, truncated, _ = vector_env.step(np.array([[action]]))
        steps = [plain.step([action]) for _ in range(2)]
        expected = np.concatenate([np.ravel(steps[-1].observation[name]) for name in sorted(steps[-1].observation)])
        np.testing.assert_allclose(obs[0], expected, atol=1e-6)
        assert reward[0] == pytest.approx(sum(step.reward for step in steps), abs=1e-6)
        assert not terminated[0]
        assert not truncated[0]
    for _ in range(480):
        *_, terminated, truncated, info = vector_env.step(np.zeros((1, 1)))
    assert truncated[0]
    assert not terminated[0]
    assert info["final_info"]["episode"]["l"][0] == 500


def test_the_final_observation_is_the_true_one() -> None:
    vector_env = envs.make("Pendulum-v1", 2)
    vector_env.reset(seed=[1, 2])
    twin = gym.make("Pendulum-v1")
    twin.reset(seed=1)
    for _ in range(200):
        after, _, _, truncated, info = vector_env.step(np.zeros((2, 1)))
        last = twin.step(np.zeros(1))[0]
    assert truncated.all()
    np.testing.assert_allclose(info["final_obs"][0], last, rtol=1e-6)
    assert not np.allclose(after[0], last)


def test_atari_lives_signs_and_stacks() -> None:
    vector_env = envs.make("ALE/Breakout-v5", 1)
    obs, _ = vector_env.reset(seed=[0])
    assert obs.shape == (1, 4, 84, 84)
    assert obs.dtype == np.uint8
    assert (obs[0] == obs[0, :1]).all()
    lives, ends, games, rewards = 5, 0, 0, set()
    inner: Any = vector_env.envs[0].unwrapped
    rng = np.random.default_rng(0)
    for _ in range(1_500):
        after, reward, terminated, truncated, info = vector_env.step(rng.integers(0, 4, 1))
        rewards.add(float(reward[0]))
        if terminated[0] or truncated[0]:
            ends += 1
            assert (after[0] == after[0, :1]).all()  # a new episode's stack repeats its first frame
            assert info["final_obs"][0].shape == (4, 84, 84)
            assert inner.ale.lives() == (lives - 1 or 5)
            lives = inner.ale.lives()
            games += "episode" in info["final_info"]
    assert rewards <= {0.0, 1.0}
    assert games >= 1
    assert ends >= 5 * games
    assert inner.ale.getFloat("repeat_action_probability") == 0.0


def test_atari_evaluation_plays_whole_games() -> None:
    vector_env = envs.make("ALE/Breakout-v5", 1, envs.EnvOptions(evaluation=True, sticky=True))
    vector_env.reset(seed=[0])
    rng = np.random.default_rng(0)
    steps, ended = 0, False
    while not ended:  # a policy that never presses FIRE must not stand still after a lost life
        steps += 1
        assert steps < 2_000
        _, _, terminated, truncated, info = vector_env.step(rng.choice([0, 2, 3], 1))
        ended = bool(terminated[0] or truncated[0])
    assert "episode" in info["final_info"]
    preprocessing = vector_env.envs[0]
    while not isinstance(preprocessing, gym.wrappers.AtariPreprocessing):
        preprocessing = preprocessing.env  # type: ignore[attr-defined]
    sticky = preprocessing.env  # below the skipping of frames: each frame's action may stick, as ALE's own do
    assert isinstance(sticky, gym.wrappers.StickyAction)
    assert sticky.repeat_action_probability == 0.25


class Odd(gym.Env):
    action_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space) -> None:
        self.observation_space = space


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Dict(image=spaces.Box(0, 255, (8, 8, 3), np.uint8)), "the observation 'image' is Box"),
        (spaces.Dict(words=spaces.Text(5)), "the observation 'words' is Text"),
        (spaces.Discrete(3), "observations must be a Box"),
    ],
)
def test_observations_that_no_agent_takes_are_refused(space: spaces.Space, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        envs.make("odd", 1, make_env=lambda: Odd(space))


def test_an_environment_that_counts_its_episodes_already() -> None:
    vector_env = envs.make("own", 1, make_env=lambda: gym.wrappers.RecordEpisodeStatistics(gym.make("Pendulum-v1")))
    vector_env.reset(seed=[0])
    for _ in range(200):
        *_, info = vector_env.step(np.zeros((1, 1)))
    assert info["final_info"]["episode"]["l"][0] == 200


def test_frames_per_step() -> None:
    assert envs.frames_per_step("dm_control/dog-run-v0", None) == 2
    assert envs.frames_per_step("ALE/Pong-v5", None) == 4
    assert envs.frames_per_step("Hopper-v5", None) == 1
    assert envs.frames_per_step("Hopper-v5", 3) == 3


def test_a_package_that_an_environment_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(**arguments: Any) -> gym.Env:
        raise gym.error.DependencyNotInstalled("Box2D is not installed, run `pip install swig`")

    monkeypatch.setitem(gym.registry, "Lander-v0", gym.envs.registration.EnvSpec("Lander-v0", make))
    with pytest.raises(UsageError, match="Lander-v0 needs a package that is not installed: Box2D is not installed"):
        envs.make("Lander-v0")
