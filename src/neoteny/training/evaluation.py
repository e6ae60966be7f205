"""Evaluation: a run's policy, or any policy, in an environment over whole episodes, with a video if asked for."""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

from neoteny import envs
from neoteny.agents.problem import Problem
from neoteny.errors import RunStopped, UsageError
from neoteny.runs import policy_file
from neoteny.runs.files import inside
from neoteny.runs.policy import load_with_problem, problem_of
from neoteny.runs.records import fact, read_config
from neoteny.settings.config import TrainConfig, check_seed
from neoteny.training.filming import FRAMES_PER_SECOND, film, start_filming
from neoteny.training.own_envs import each_new
from neoteny.training.playing import ATARI_EPSILON, described, play

_RESAMPLES = 10_000


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found."""

    returns: tuple[float, ...]
    """The return of each episode: the sum of the environment's own rewards."""
    lengths: tuple[int, ...]
    """The steps of each episode, each a decision of the policy."""
    mean: float
    """The mean return, of the episodes whose return is finite."""
    interval: tuple[float, float] | None
    """A 95% bootstrap interval of the mean over episodes, of this one policy; None of fewer than two episodes."""
    video: Path | None = None
    """Where the video of one more episode is, if one was asked for."""
    video_frames: int | None = None
    """How many frames it has, one for each step."""

    @property
    def video_seconds(self) -> float | None:
        """How long the video is."""
        return None if self.video_frames is None else self.video_frames / FRAMES_PER_SECOND

    def __str__(self) -> str:
        """In words."""
        text = described(self.returns)
        if self.interval is not None:
            text += "; 95% interval of the mean {:.2f} to {:.2f}".format(*self.interval)
        if self.video is not None:
            text += f"\nWrote {self.video}, {self.video_frames:,} frames in {self.video_seconds:.1f} s"
        return text

    def to_json(self) -> dict[str, Any]:
        """As plain data for JSON, in which a number that is not finite is None."""
        return {
            "episodes": len(self.returns),
            "mean": self.mean,
            "interval": None if self.interval is None else list(self.interval),
            "returns": [value if math.isfinite(value) else None for value in self.returns],
            "lengths": list(self.lengths),
            "video": None if self.video is None else str(self.video),
            "video_frames": self.video_frames,
            "video_seconds": self.video_seconds,
        }


def evaluate(
    run_or_policy: str | Path | Callable[..., NDArray[Any]],
    *,
    env: str | gym.Env | envs.MakeEnv | None = None,
    episodes: int = 10,
    seed: int = 0,
    video: bool | str | Path = False,
    network: Any = None,
    best: bool = False,
) -> Evaluation:
    """Play whole episodes without exploration, and return what they gave.

    Args:
        run_or_policy: a run's directory, or a function from a batch of observations to a batch of actions, such as
            ``neoteny.load_policy`` returns.
        env: where to play: an id, an environment, or a function that makes a new one at every call. If it is not given,
            the run's own environment; a policy alone needs it, and so does a run that was trained with make_env.
        episodes: how many, each in a copy of the environment; an environment that was given is played one by one.
        seed: of the episodes. The same seed gives the same episodes.
        video: whether to film one more episode, and where to: True writes video.mp4 into the run's directory. An
            environment of your own must have been made with render_mode="rgb_array".
        network: the Flax module, if the run was trained with one of your own.
        best: of a run, the policy of the evaluation with the largest mean return, instead of the last one.
    """
    if episodes < 1:
        raise UsageError(f"--episodes must be >= 1, got {episodes}")
    check_seed(seed)
    if video:
        os.environ.setdefault("MUJOCO_GL", "egl")  # before anything that renders is imported
    policy, config, path = _the_policy(run_or_policy, env, network, video, best)
    place = _Place(config, env)
    # An hour of episodes should not end in an error that could have come first: filming starts before they are played.
    started = start_filming(lambda: place.make(1, render=True), place.name, seed) if path else None
    vector_env = place.make(1 if isinstance(env, gym.Env) else episodes)
    try:
        if policy.problem is not None:
            _check_same_problem(policy.source, policy.problem, vector_env, config, place.name)
        epsilon = ATARI_EPSILON if place.name.startswith("ALE/") else 0.0
        turns = episodes if isinstance(env, gym.Env) else 1
        played = play(_checked(policy.act, vector_env), vector_env, seed, 0, epsilon, turns)
        returns = [episode.value for episode in played]
        if not any(map(math.isfinite, returns)):
            raise RunStopped(described(returns))
        if isinstance(env, gym.Env) and started is not None:  # it is the one that was just played in
            started = start_filming(lambda: vector_env, place.name, seed)
        frames = film(policy.act, started, path) if started and path else None
    finally:
        if not isinstance(env, gym.Env):
            for made in (vector_env, *([started.env] if started else [])):
                made.close()
    finite = np.array([value for value in returns if math.isfinite(value)])
    lengths = tuple(episode.length for episode in played)
    return Evaluation(tuple(returns), lengths, float(finite.mean()), _interval(finite), path, frames)


def can_be_evaluated(directory: Path) -> bool:
    """Whether `evaluate` takes a run as it is: not if its world changes, or if its environment came from make_env."""
    try:
        config, facts = read_config(directory)
        if fact(directory, facts, "make_env"):
            return False
        _Place(config, None).make(1).close()
    except UsageError:
        return False
    return True


class _Policy(NamedTuple):
    """What acts, what it was trained for, if that is known, and where it came from."""

    act: Callable[..., NDArray[Any]]
    problem: Problem | None
    source: str


class _Place:
    """Where to play: makes the environments."""

    def __init__(self, config: TrainConfig | None, env: str | gym.Env | envs.MakeEnv | None) -> None:
        self._options = (config.sticky, config.action_repeat) if config else (False, None)
        self._own: Callable[[], gym.Env] | None = None
        self.name = env if isinstance(env, str) else config.env if config else "the environment"
        self._given = env is not None
        if isinstance(env, gym.Env):
            self._own, self.name = (lambda: env), str(env)
        elif env is not None and not isinstance(env, str):
            self._own = each_new(env, "env")

    def make(self, count: int, render: bool = False) -> SyncVectorEnv:
        """So many environments; an error if their world changes and they were not asked for by name."""
        options = envs.EnvOptions(*self._options, evaluation=True, render=render)
        vector_env = envs.make(self.name, count, options, self._own)
        if envs.changes(vector_env) and not self._given:
            vector_env.close()
            raise UsageError(
                f"this run was trained in {self.name}, a world that changes, and a policy does not say of which level "
                "it is: read eval_return in metrics.jsonl, which was measured in the world of its moment"
            )
        return vector_env


def _the_policy(
    source: Any, env: Any, network: Any, video: bool | str | Path, best: bool
) -> tuple[_Policy, TrainConfig | None, Path | None]:
    """The policy, the configuration of its run, and where the video goes."""
    if not (env is None or isinstance(env, (str, gym.Env)) or callable(env)):
        raise UsageError(f"env must be an id, a gymnasium.Env or a function that makes one, got {env!r}")
    if isinstance(source, (str, Path)):
        directory = Path(source)
        config, facts = read_config(directory)
        if env is None and fact(directory, facts, "make_env"):
            raise UsageError(
                f"{directory} was trained in an environment made by make_env, which a run cannot hold: give it again, "
                "as env= of neoteny.evaluate, or --env if it is registered"
            )
        path = _video_path(video, directory)
        if not best and (said := policy_file.caution(directory)):
            warnings.warn(said, stacklevel=3)
        act, problem = load_with_problem(directory, network, best=best)
        return _Policy(act, problem, str(directory / "policy")), config, path
    if not callable(source):
        raise UsageError(f"evaluate takes a run's directory or a policy, which is a function, got {source!r}")
    if env is None:
        raise UsageError("a policy does not say where to play: give env, such as env='Pendulum-v1'")
    if network is not None:
        raise UsageError("network is for a run that was trained with one, and this is a policy: leave it out")
    if best:
        raise UsageError("best is for a run, and this is a policy: leave it out")
    if video is True:
        raise UsageError("video=True writes into a run's directory, and this is a policy: give a path, such as 'a.mp4'")
    return _Policy(source, None, "the policy"), None, _video_path(video, None)


def _video_path(video: bool | str | Path, directory: Path | None) -> Path | None:
    """Where the video goes, or an error if it cannot be written there."""
    if video is False:
        return None
    if video is True:
        assert directory is not None
        return inside(directory, "video.mp4")
    path = Path(video)
    if path.suffix != ".mp4" or not path.parent.is_dir():
        raise UsageError(f"video must be the path of an .mp4 file in a directory that exists, got {str(path)!r}")
    return path


def _checked(act: Callable[..., NDArray[Any]], vector_env: SyncVectorEnv) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """`act`, refused if it does not return one action for each observation."""
    expected = (vector_env.num_envs, *(vector_env.single_action_space.shape or ()))

    def policy(obs: NDArray[Any]) -> NDArray[Any]:
        actions = np.asarray(act(obs))
        if actions.shape != expected:
            raise UsageError(
                f"the policy must return actions of shape {expected}, one for each observation of the batch, got "
                f"{actions.shape}"
            )
        return actions

    return policy


def _check_same_problem(
    source: str, saved: Problem, vector_env: SyncVectorEnv, config: TrainConfig | None, name: str
) -> None:
    """Refuse to play a policy where observations or actions are not those that it was trained with."""
    assert config is not None
    here = problem_of(vector_env, dataclasses.replace(config, env=name))
    for part in ("obs_shape", "pixels", "num_actions", "action_low", "action_high"):
        was, now = getattr(saved, part), getattr(here, part)
        if not np.array_equal(was, now):
            raise UsageError(f"{source} is for another environment: its {part} is {was}, and not {now}")


def _interval(values: NDArray[Any]) -> tuple[float, float] | None:
    """The 2.5% and 97.5% quantiles of the means of resamples, always the same ones."""
    if len(values) < 2:
        return None
    chosen = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.quantile(values[chosen].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)
