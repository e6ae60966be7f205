"""A finished run's policy, put back into its environment: returns, and a video."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

from neoteny import envs
from neoteny.agents.problem import Problem
from neoteny.errors import UsageError, missing_extra
from neoteny.runs.files import inside
from neoteny.runs.policy import load_with_problem, problem_of
from neoteny.runs.records import fact, read_config
from neoteny.settings.config import TrainConfig, check_seed
from neoteny.training.evaluate import ATARI_EPSILON, evaluate


def evaluate_run(directory: Path, episodes: int, seed: int) -> list[float]:
    """The returns of `episodes` episodes of a run's policy."""
    if episodes < 1:
        raise UsageError(f"--episodes must be >= 1, got {episodes}")
    check_seed(seed)
    config = _own_environment(directory)
    policy, problem = load_with_problem(directory)
    options = envs.EnvOptions(sticky=config.sticky, action_repeat=config.action_repeat, evaluation=True)
    vector_env = _made(directory, config, episodes, options)
    epsilon = ATARI_EPSILON if config.env.startswith("ALE/") else 0.0
    try:
        _check_same_problem(directory, problem, problem_of(vector_env, config))
        return evaluate(policy, vector_env, seed, 0, epsilon)
    finally:
        vector_env.close()


def can_be_evaluated(directory: Path) -> bool:
    """Whether `evaluate_run` takes a run: not if its world changes, or if only its maker can make its environment."""
    try:
        config = _own_environment(directory)
        options = envs.EnvOptions(sticky=config.sticky, action_repeat=config.action_repeat, evaluation=True)
        _made(directory, config, 1, options).close()
    except UsageError:
        return False
    return True


def _check_same_problem(directory: Path, saved: Problem, here: Problem) -> None:
    """Refuse to play a policy where observations or actions are not those that it was trained with."""
    for name in ("obs_shape", "pixels", "num_actions", "action_low", "action_high"):
        was, now = getattr(saved, name), getattr(here, name)
        if not np.array_equal(was, now):
            raise UsageError(f"{directory / 'policy'} is for another environment: its {name} is {was}, and not {now}")


def film(directory: Path, seed: int) -> Path:
    """Write a video of one episode of a run's policy into its directory."""
    import imageio.v3 as iio

    policy, _ = load_with_problem(directory)
    vector_env, obs, frames = start_filming(directory, seed)
    ended = False
    while not ended:
        obs, _, terminated, truncated, _ = vector_env.step(policy(obs))
        ended = bool(terminated[0] or truncated[0])
        if not ended:
            frames.append(vector_env.render()[0])
    vector_env.close()
    path = inside(directory, "video.mp4")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*os.fork", category=RuntimeWarning)  # imageio starts ffmpeg by it
        iio.imwrite(path, np.stack(frames), fps=30)
    return path


def start_filming(directory: Path, seed: int) -> tuple[SyncVectorEnv, NDArray[Any], list[Any]]:
    """The run's environment, its first observation and its first frame; an error where no video can be made."""
    check_seed(seed)
    config = _own_environment(directory)
    try:
        import imageio.v3  # noqa: F401
        import imageio_ffmpeg  # noqa: F401 - the writer that imageio looks for
    except ImportError as error:
        raise missing_extra("--video", "train", error) from error
    options = envs.EnvOptions(config.sticky, config.action_repeat, evaluation=True, render=True)
    try:
        vector_env = _made(directory, config, 1, options)
        obs, _ = vector_env.reset(seed=seed)
        frame = vector_env.render()[0]
    except UsageError:
        raise
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise UsageError(f"--video cannot render {config.env}: {error}") from error
    except Exception as error:  # GL fails in as many ways as there are drivers
        raise UsageError(
            f"--video cannot render here ({type(error).__name__}: {error}): install a GL library, on Debian "
            "libegl1 (then MUJOCO_GL=egl) or libosmesa6 (then MUJOCO_GL=osmesa)"
        ) from error
    return vector_env, obs, [frame]


def _made(directory: Path, config: TrainConfig, episodes: int, options: envs.EnvOptions) -> SyncVectorEnv:
    """The run's environments; an error if their world changes, since the policy does not say when it was made."""
    vector_env = envs.make(config.env, episodes, options)
    if envs.changes(vector_env):
        vector_env.close()
        raise UsageError(
            f"{directory} was trained in {config.env}, a world that changes, and a policy does not say of which level "
            "it is: read eval_return in metrics.jsonl, which was measured in the world of its moment"
        )
    return vector_env


def _own_environment(directory: Path) -> TrainConfig:
    """The run's configuration, if its environment can be made from it."""
    config, facts = read_config(directory)
    if fact(directory, facts, "make_env"):
        raise UsageError(
            f"{directory} was trained in an environment made by make_env, which a run cannot hold: load its policy "
            "with neoteny.load_policy and play it there"
        )
    return config
