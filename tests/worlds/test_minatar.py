"""MinAtar: beside the package's own environments, and its games in turn beside the same games alone."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from minatar import Environment

from neoteny import envs
from neoteny.errors import UsageError

GAMES = "Asterix Breakout Freeway Seaquest SpaceInvaders".split()
IN_TURN = ("space_invaders", "asterix", "seaquest")


def game(env_id: str) -> Any:
    """One environment as a run has it, without the counting of episodes."""
    return envs.make(env_id, 1).envs[0].env  # type: ignore[attr-defined]


def make_in_turn(every: int) -> Any:
    return gym.make("neoteny/MinAtarInTurn-v0", every=every).unwrapped


@pytest.mark.parametrize("env_id", [*(f"MinAtar/{name}-v1" for name in GAMES), "neoteny/MinAtarInTurn-v0"])
def test_gymnasiums_own_check(env_id: str) -> None:
    env = game(env_id)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*environment .* is different from the unwrapped version")
        check_env(env if env_id.startswith("MinAtar/") else env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("version", [0, 1])
def test_a_game_is_the_packages_own_with_channels_first(name: str, version: int) -> None:
    """By MinAtar's own interface, without its Gymnasium environment."""
    env = game(f"MinAtar/{name}-v{version}")
    twin = Environment("space_invaders" if name == "SpaceInvaders" else name.lower())
    twin.seed(3)
    twin.reset()
    actions = list(range(6)) if version == 0 else twin.minimal_action_set()
    assert env.action_space.n == len(actions)
    obs, _ = env.reset(seed=3)
    rng = np.random.default_rng(0)
    for _ in range(400):
        state = twin.state()
        assert obs.dtype == np.uint8
        assert obs.shape == (1, state.shape[2], 10, 10)
        assert all((obs[0, channel] == state[:, :, channel]).all() for channel in range(state.shape[2]))
        action = int(rng.integers(len(actions)))
        obs, reward, terminated, truncated, _ = env.step(action)
        assert (reward, terminated) == twin.act(actions[action])
        assert not truncated
        if terminated:
            twin.reset()
            obs, _ = env.reset()


def test_an_episode_that_would_never_end_is_cut() -> None:
    """A submarine that stays at the surface is never hit."""
    env = game("MinAtar/Seaquest-v1")
    env.reset(seed=0)
    for step in range(1, 5_001):
        *_, terminated, truncated, _ = env.step(0)
        assert not terminated
        assert truncated == (step == 5_000)


def test_games_in_turn_by_hand() -> None:
    """Each for 40 steps, each with a generator of its own that goes on when it is played again."""
    env = make_in_turn(40)
    obs, _ = env.reset(seed=9)
    seeds = np.random.default_rng(9)
    twins = {}
    for name in IN_TURN:
        twins[name] = Environment(name)
        twins[name].seed(int(seeds.integers(2**32)))
    rng = np.random.default_rng(1)
    twins[IN_TURN[0]].reset()
    for step in range(1, 7 * 40 + 1):
        name = IN_TURN[(step - 1) // 40 % 3]
        action = int(rng.integers(6))
        obs, reward, terminated, truncated, _ = env.step(action)
        assert (reward, terminated) == twins[name].act(action)
        state = twins[name].state()
        assert (obs[0, : state.shape[2]] == state.transpose(2, 0, 1)).all()  # of the old game also at the change
        assert not obs[0, state.shape[2] :].any()
        assert truncated == (step % 40 == 0)
        if terminated or truncated:
            following = IN_TURN[step // 40 % 3]
            twins[following].reset()
            obs, _ = env.reset()
            assert (obs[0, : len(twins[following].state()[0, 0])] == twins[following].state().transpose(2, 0, 1)).all()


def test_evaluations_are_of_the_present_game_and_differ() -> None:
    training = envs.make("", 1, make_env=lambda: gym.make("neoteny/MinAtarInTurn-v0", every=10))
    training.reset(seed=[1])
    for _ in range(25):
        training.step(np.array([0]))
    evaluation = envs.make("neoteny/MinAtarInTurn-v0", 2)
    envs.stay_in_present_world(evaluation, training)
    evaluation.reset(seed=[5, 6])
    seen = [evaluation.step(np.array([4, 4]))[0].copy() for _ in range(60)]
    assert all(env.unwrapped.playing == "seaquest" for env in evaluation.envs)  # type: ignore[attr-defined]
    assert any((obs[0] != obs[1]).any() for obs in seen)


@pytest.mark.parametrize("env_id", ["MinAtar/Breakout-v1", "neoteny/MinAtarInTurn-v0"])
def test_a_picture(env_id: str) -> None:
    env = envs.make(env_id, 1, envs.EnvOptions(render=True))
    env.reset(seed=[0])
    picture = env.render()[0]
    assert (picture.shape, picture.dtype) == ((160, 160, 3), np.uint8)
    cells = picture[::16, ::16].any(axis=-1)
    state = env.reset(seed=[0])[0][0, 0].any(axis=0)
    np.testing.assert_array_equal(cells, state)


@pytest.mark.parametrize("env_id", ["MinAtar/Breakout-v1", "neoteny/MinAtarInTurn-v0"])
def test_without_minatar(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minatar", None)
    with pytest.raises(UsageError, match=r"MinAtar needs minatar, which is not installed: pip install '\.\[minatar\]'"):
        envs.make(env_id)
