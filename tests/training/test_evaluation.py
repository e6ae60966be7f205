"""`neoteny.evaluate` and ``neoteny evaluate``: what they return, against Gymnasium played by hand; bad input."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flax.linen as nn
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import PendulumEnv
from scipy import stats

import neoteny
from neoteny.cli import main
from neoteny.errors import RunStopped, UsageError
from neoteny.training import DDQNConfig, Evaluation, PlasticityConfig, ReplayConfig, TD3Config, TrainConfig


class Trunk(nn.Module):
    """A network of one's own."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.relu(nn.Dense(8)(x))


def config(env: str, **options: Any) -> TrainConfig:
    agent: Any = DDQNConfig if env == "CartPole-v1" else TD3Config
    return TrainConfig(
        env,
        agent((8,), batch_size=16, learning_starts=30),
        ReplayConfig(capacity=400),
        PlasticityConfig(probe_every=0),
        **{"total_timesteps": 40, "eval_every": 0, **options},
    )


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return neoteny.train(config("Pendulum-v1"), out=tmp_path_factory.mktemp("runs") / "run", quiet=True)


def by_hand(policy: Any, env: gym.Env, episodes: int, seed: int) -> tuple[list[float], list[int]]:
    """Gymnasium's own loop, an episode at a time."""
    returns, lengths = [], []
    for reset_seed in np.random.SeedSequence([seed, 0]).generate_state(episodes):
        obs, _ = env.reset(seed=int(reset_seed))
        total, steps, ended = 0.0, 0, False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(policy(obs))
            total, steps, ended = total + float(reward), steps + 1, terminated or truncated
        returns.append(total)
        lengths.append(steps)
    return returns, lengths


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_run_is_played_as_by_hand(env: str, tmp_path: Path) -> None:
    run = neoteny.train(config(env), out=tmp_path / "run", quiet=True)
    found = neoteny.evaluate(run, episodes=4, seed=3)
    assert isinstance(found, Evaluation)
    returns, lengths = by_hand(neoteny.load_policy(run), gym.make(env), 4, 3)
    np.testing.assert_allclose(found.returns, returns, rtol=1e-3)
    assert list(found.lengths) == lengths
    assert found.mean == pytest.approx(np.mean(returns), rel=1e-3)
    assert (found.video, found.video_frames, found.video_seconds) == (None, None, None)
    assert neoteny.evaluate(str(run), episodes=4, seed=3) == found
    assert neoteny.evaluate(run, episodes=4, seed=4) != found


def test_an_environment_or_a_policy_of_ones_own(pendulum: Path) -> None:
    """The same episodes, whichever way the environment and the policy are given."""
    expected = neoteny.evaluate(pendulum, episodes=3)
    policy = neoteny.load_policy(pendulum)
    own = gym.make("Pendulum-v1")
    for source in (pendulum, policy, lambda obs: policy(obs)):
        for env in ("Pendulum-v1", own, lambda: gym.make("Pendulum-v1")):
            found = neoteny.evaluate(source, env=env, episodes=3)
            np.testing.assert_allclose(found.returns, expected.returns, rtol=1e-3)
            assert found.lengths == expected.lengths == (200,) * 3
    own.reset()  # it was not closed
    assert own.step(np.zeros(1, np.float32))[1] <= 0


def test_a_run_with_a_network_and_an_environment_of_ones_own(tmp_path: Path) -> None:
    def make_env() -> gym.Env:
        return gym.make("Pendulum-v1", max_episode_steps=30)

    run = neoteny.train(config("Mine"), out=tmp_path / "run", make_env=make_env, network=Trunk(), quiet=True)
    assert neoteny.evaluate(run, env=make_env, network=Trunk(), episodes=2).lengths == (30, 30)
    with pytest.raises(UsageError, match="an environment made by make_env, which a run cannot hold: give it again"):
        neoteny.evaluate(run, network=Trunk())
    with pytest.raises(UsageError, match="was trained with a network of your own"):
        neoteny.evaluate(run, env=make_env)


def test_observations_in_a_dict(tmp_path: Path) -> None:
    class Parts(gym.ObservationWrapper):
        def __init__(self) -> None:
            super().__init__(gym.make("Pendulum-v1", max_episode_steps=20))
            parts = {"at": gym.spaces.Box(-1, 1, (2,)), "speed": gym.spaces.Box(-8, 8, (1,))}
            self.observation_space = gym.spaces.Dict(parts)

        def observation(self, observation: Any) -> Any:
            return {"at": observation[:2], "speed": observation[2:]}

    run = neoteny.train(config("Parts"), out=tmp_path / "run", make_env=Parts, quiet=True)
    found = neoteny.evaluate(run, env=Parts, episodes=2)
    returns, _ = by_hand(neoteny.load_policy(run), Parts(), 2, 0)
    np.testing.assert_allclose(found.returns, returns, rtol=1e-3)


def test_the_interval_is_a_bootstrap_of_the_mean(pendulum: Path) -> None:
    found = neoteny.evaluate(pendulum, episodes=8)
    returns = np.array(found.returns)
    theirs = stats.bootstrap((returns,), np.mean, method="percentile", n_resamples=20_000, rng=1).confidence_interval
    assert found.interval is not None
    np.testing.assert_allclose(found.interval, theirs, atol=0.03 * np.ptp(returns))
    assert found.interval[0] < found.mean < found.interval[1]
    assert neoteny.evaluate(pendulum, episodes=1).interval is None


class Odd(gym.Env):
    """Three steps; in every second episode that is played the reward is NaN."""

    observation_space = gym.spaces.Box(-9, 9, (3,), np.float32)
    action_space = gym.spaces.Box(-2, 2, (1,), np.float32)
    episodes = 0

    def __init__(self, always: bool = False) -> None:
        self.always = always

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.episodes = 0, self.episodes + 1
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        bad = self.always or self.episodes % 4 == 3  # each is reset twice, once when it ends
        return np.zeros(3, np.float32), float("nan") if bad else 2.0, self.steps == 3, False, {}


def test_episodes_that_are_not_finite_are_left_out_of_the_mean() -> None:
    found = neoteny.evaluate(lambda obs: np.zeros((len(obs), 1)), env=Odd(), episodes=4)
    assert (found.mean, found.lengths) == (6.0, (3,) * 4)
    np.testing.assert_array_equal(np.isfinite(found.returns), [True, False, True, False])
    assert found.to_json()["returns"] == [6.0, None, 6.0, None]
    assert "left out: episodes 2, 4 of 4" in str(found)
    with pytest.raises(RunStopped, match="NaN or infinity in all of 2 episodes"):
        neoteny.evaluate(lambda obs: np.zeros((len(obs), 1)), env=Odd(always=True), episodes=2)


class Drawn(PendulumEnv):
    """Gymnasium's Pendulum, whose frames need no pygame: a bar as wide as the pendulum is high."""

    def render(self) -> Any:
        frame = np.zeros((64, 64, 3), np.uint8)
        frame[24:40, : int(32 + 31 * np.cos(self.state[0]))] = 255
        return frame


@pytest.fixture
def drawn() -> Iterator[str]:
    gym.register("Drawn-v0", Drawn, max_episode_steps=40)
    yield "Drawn-v0"
    del gym.registry["Drawn-v0"]


@pytest.mark.parametrize("given", ["id", "environment", "function"])
def test_a_video_of_one_more_episode(given: str, drawn: str, tmp_path: Path) -> None:
    import imageio_ffmpeg

    def make_env() -> gym.Env:
        return gym.make(drawn, render_mode="rgb_array")

    def policy(obs: Any) -> Any:
        return np.zeros((len(obs), 1), np.float32)

    env: Any = {"id": drawn, "environment": make_env(), "function": make_env}[given]
    path = tmp_path / "a.mp4"
    found = neoteny.evaluate(policy, env=env, episodes=2, video=path)
    assert (found.video, found.video_frames) == (path, 40)
    assert found.video_seconds == pytest.approx(40 / 30)
    read = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(read, capture_output=True, check=True)
    frames = np.frombuffer(raw.stdout, np.uint8).reshape(-1, 64, 64, 3)
    assert len(frames) == 40
    assert b"Duration: 00:00:01.33" in raw.stderr
    state = gym.make(drawn)
    widths, _ = [], state.reset(seed=0)
    for _ in range(40):  # the same episode by hand
        widths.append(int(32 + 31 * np.cos(state.unwrapped.state[0])))  # type: ignore[attr-defined]
        state.step(np.zeros(1, np.float32))
    np.testing.assert_allclose((frames[:, 32, :, 0] > 127).sum(axis=1), widths, atol=2)
    assert found == neoteny.evaluate(policy, env=env, episodes=2, video=path)


def test_the_command_prints_json(pendulum: Path, drawn: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(pendulum), "--episodes", "3", "--env", drawn, "--json", "--video"]) == 0
    shown = json.loads(capsys.readouterr().out)
    found = neoteny.evaluate(pendulum, env=drawn, episodes=3)
    video = {"video": str(pendulum / "video.mp4"), "video_frames": 40, "video_seconds": 40 / 30}
    assert (pendulum / "video.mp4").stat().st_size > 0
    assert shown == {"run": str(pendulum), **found.to_json(), **video}
    assert (shown["returns"], shown["mean"]) == (list(found.returns), found.mean)
    assert main(["evaluate", str(pendulum), "--episodes", "3", "--env", drawn]) == 0
    low, high = found.interval or (0, 0)
    text = f"3 episodes: mean return {found.mean:.2f}"
    shown = capsys.readouterr().out
    assert shown.startswith(text)
    assert f"95% interval of the mean {low:.2f} to {high:.2f}\n" in shown


def test_bad_input_is_one_sentence(pendulum: Path, tmp_path: Path) -> None:
    policy = neoteny.load_policy(pendulum)
    same = gym.make("Pendulum-v1")
    for said, attempt in {
        "--episodes must be >= 1, got 0": lambda: neoteny.evaluate(pendulum, episodes=0),
        "evaluate takes a run's directory or a policy, which is a function, got 3": lambda: neoteny.evaluate(3),  # type: ignore[arg-type]
        "is not a run: it has no config.json": lambda: neoteny.evaluate(tmp_path),
        "a policy does not say where to play: give env": lambda: neoteny.evaluate(policy),
        "there is no environment 'Pendulum-v9'": lambda: neoteny.evaluate(policy, env="Pendulum-v9"),
        "env must be an id, a gymnasium.Env or a function that makes one, got 3": lambda: neoteny.evaluate(
            policy,
            env=3,  # type: ignore[arg-type]
        ),
        "env must return a Gymnasium environment": lambda: neoteny.evaluate(policy, env=lambda: 3),  # type: ignore[arg-type,return-value]
        "env returned the same environment twice": lambda: neoteny.evaluate(policy, env=lambda: same),
        "network is for a run that was trained with one": lambda: neoteny.evaluate(
            policy, env="Pendulum-v1", network=Trunk()
        ),
        "video=True writes into a run's directory": lambda: neoteny.evaluate(policy, env="Pendulum-v1", video=True),
        "video must be the path of an .mp4 file": lambda: neoteny.evaluate(pendulum, video=tmp_path / "a.xyz"),
        "in a directory that exists, got": lambda: neoteny.evaluate(pendulum, video=tmp_path / "no" / "a.mp4"),
        "has render_mode=None: make it with render_mode='rgb_array'": lambda: neoteny.evaluate(
            policy, env=same, video=tmp_path / "a.mp4"
        ),
        r"actions of shape \(2, 1\), one for each observation of the batch, got \(1,\)": lambda: neoteny.evaluate(
            lambda obs: np.zeros(1), env="Pendulum-v1", episodes=2
        ),
        "is for another environment: its obs_shape is": lambda: neoteny.evaluate(
            pendulum, env="MountainCarContinuous-v0"
        ),
        "td3 needs continuous actions .* and CartPole-v1 has": lambda: neoteny.evaluate(pendulum, env="CartPole-v1"),
    }.items():
        with pytest.raises(UsageError, match=said):
            attempt()
