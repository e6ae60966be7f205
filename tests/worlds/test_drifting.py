"""Drifting control: beside the plain environments, with offsets and constants drawn again by hand."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import neoteny
from neoteny import envs
from neoteny.agents.configs import TD3Config
from neoteny.cli import main
from neoteny.errors import UsageError
from neoteny.settings.config import PlasticityConfig

OFFSETS = "CartPole Acrobot Pendulum".split()
CONSTANTS = {
    "CartPoleForce": ("CartPole", "force_mag", 10.0),
    "AcrobotMass": ("Acrobot", "LINK_MASS_2", 1.0),
    "PendulumGravity": ("Pendulum", "g", 10.0),
}
EVERY = 7


def make(name: str, **arguments: Any) -> Any:
    return gym.make(f"neoteny/Drifting{name}-v0", **arguments).unwrapped


def plain(name: str) -> Any:
    return gym.make({"Pendulum": "Pendulum-v1", "Acrobot": "Acrobot-v1", "CartPole": "CartPole-v1"}[name]).unwrapped


def actions(env: Any, count: int) -> list[Any]:
    env.action_space.seed(2)
    return [env.action_space.sample() for _ in range(count)]


@pytest.mark.parametrize("name", [*OFFSETS, *CONSTANTS])
def test_gymnasiums_own_check(name: str) -> None:
    env = make(name)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Box (observation|action) space")  # bounds, as of the plain ones
        check_env(env, skip_render_check=True)
    assert env.spec.max_episode_steps == plain(name if name in OFFSETS else CONSTANTS[name][0]).spec.max_episode_steps


@pytest.mark.parametrize("name", OFFSETS)
def test_the_offset_of_each_level_is_added_exactly(name: str) -> None:
    env, twin = make(name, every=EVERY), plain(name)
    size = env.observation_space.shape
    offsets = [np.random.default_rng([5, level]).normal(0, 2, size).astype(np.float32) for level in range(1, 9)]
    np.testing.assert_array_equal(env.reset(seed=5)[0], twin.reset(seed=5)[0] + offsets[0])
    for step, action in enumerate(actions(env, 5 * EVERY), start=1):
        obs, reward, terminated, *_ = env.step(action)
        expected, expected_reward, expected_end, *_ = twin.step(action)
        np.testing.assert_array_equal(obs, expected + offsets[step // EVERY])
        assert (reward, terminated) == (expected_reward, expected_end)
        if terminated or step == 2 * EVERY + 3:  # an episode that ends does not begin the levels again
            np.testing.assert_array_equal(env.reset()[0], twin.reset()[0] + offsets[step // EVERY])
    assert env.level == 6


@pytest.mark.parametrize("name", CONSTANTS)
def test_the_dynamics_are_those_of_the_plain_one_with_the_levels_constant(name: str) -> None:
    base, constant, usual = CONSTANTS[name]
    env, twin = make(name, every=EVERY), plain(base)
    np.testing.assert_array_equal(env.reset(seed=5)[0], twin.reset(seed=5)[0])
    seen = []
    for step, action in enumerate(actions(env, 4 * EVERY)):  # the first EVERY steps are in level 1
        level = 1 + step // EVERY
        seen.append(usual * 2.0 ** np.random.default_rng([5, level]).uniform(-1, 1))
        setattr(twin, constant, seen[-1])
        obs, reward, terminated, *_ = env.step(action)
        expected, expected_reward, expected_end, *_ = twin.step(action)
        np.testing.assert_array_equal(obs, expected)
        assert (reward, terminated) == (expected_reward, expected_end)
        if terminated:
            np.testing.assert_array_equal(env.reset()[0], twin.reset()[0])
    assert len(set(seen)) == 4
    assert all(usual / 2 <= value <= usual * 2 for value in seen)


def test_a_seed_begins_its_own_levels_again() -> None:
    env = make("Pendulum", every=3)
    first = {}
    for seed in (1, 2, 1):
        env.reset(seed=seed)
        levels = [env.offset]
        for _ in range(9):
            env.step(np.zeros(1))
            levels.append(env.offset)
        assert len(np.unique(levels, axis=0)) == 4
        np.testing.assert_array_equal(first.setdefault(seed, levels), levels)
    assert not np.array_equal(first[1], first[2])


def test_without_a_seed_the_levels_are_of_the_environments_own() -> None:
    env = make("Pendulum", every=3)
    env.reset()
    expected = np.random.default_rng([env.np_random_seed, 1]).normal(0, 2, 3).astype(np.float32)
    np.testing.assert_array_equal(env.offset, expected)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="every must be >= 1, the steps between two changes of the world, got 0"):
        make("CartPole", every=0)
    with pytest.raises(UsageError, match="change must be offset or dynamics, got 'mood'"):
        make("CartPole", change="mood")


def test_evaluations_stay_in_the_world_of_their_moment() -> None:
    def make_env() -> gym.Env:
        return gym.make("neoteny/DriftingPendulum-v0", every=5)

    training, evaluation = envs.make("", 2, make_env=make_env), envs.make("", 3, make_env=make_env)
    training.reset(seed=[1, 2])
    for _ in range(12):
        training.step(np.zeros((2, 1)))
    envs.stay_in_present_world(evaluation, training)
    evaluation.reset(seed=[7, 8, 9])
    for _ in range(20):
        evaluation.step(np.zeros((3, 1)))
    offsets = [env.unwrapped.offset for env in evaluation.envs]  # type: ignore[attr-defined]
    for seed, offset in zip((1, 2, 1), offsets, strict=True):
        np.testing.assert_array_equal(offset, np.random.default_rng([seed, 3]).normal(0, 2, 3).astype(np.float32))
    assert envs.changes(training)
    assert not envs.changes(envs.make("Pendulum-v1"))


@pytest.mark.slow
def test_a_run_that_is_resumed_goes_on_in_the_same_world(tmp_path: Path) -> None:
    def make_env() -> gym.Env:
        return gym.make("neoteny/DriftingPendulum-v0", every=50)

    def config(steps: int) -> neoteny.TrainConfig:
        return neoteny.TrainConfig(
            "neoteny/DriftingPendulum-v0",
            TD3Config(widths=(16,), learning_starts=20, batch_size=16),
            plasticity=PlasticityConfig(probe_every=0),
            total_timesteps=steps,
            eval_every=60,
            eval_episodes=1,
            log_every=20,
        )

    whole = neoteny.train(config(240), out=tmp_path / "whole", make_env=make_env, quiet=True)
    parts = neoteny.train(config(130), out=tmp_path / "parts", make_env=make_env, quiet=True)
    neoteny.resume(parts, steps=240, make_env=make_env, quiet=True)
    assert (whole / "metrics.jsonl").read_bytes() == (parts / "metrics.jsonl").read_bytes()


@pytest.mark.slow
def test_a_policy_alone_is_not_evaluated_in_a_world_that_changes(tmp_path: Path) -> None:
    config = neoteny.TrainConfig("neoteny/DriftingPendulum-v0", total_timesteps=10, eval_every=0)
    run = neoteny.train(config, out=tmp_path / "run", quiet=True)
    with pytest.raises(UsageError, match="a world that changes, and a policy does not say of which level it is"):
        neoteny.evaluate(run, episodes=1)


@pytest.mark.slow
@pytest.mark.parametrize(("env", "evaluated"), [("neoteny/DriftingPendulum-v0", False), ("Pendulum-v1", True)])
def test_what_is_said_at_the_end_of_a_run_can_be_done(
    env: str, evaluated: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--steps", "10", "--eval-every", "0", "--out", str(tmp_path / "run")]
    assert main(["train", "td3", "--env", env, *flags]) == 0
    said = capsys.readouterr().out.split("Done: ")[1]
    commands = [shlex.split(line)[1:] for line in said.splitlines() if line.startswith("  neoteny ")]
    assert [words[0] for words in commands] == ["inspect", "evaluate"][: 1 + evaluated]
    for words in commands:
        assert main([*words, *["--episodes", "1"] * (words[0] == "evaluate")]) == 0
