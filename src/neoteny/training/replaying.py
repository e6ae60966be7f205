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
from neoteny.errors import UsageError, missing_extra
from neoteny.runs.policy import load_policy
from neoteny.runs.run import read_config
from neoteny.settings.config import TrainConfig
from neoteny.training.evaluate import ATARI_EPSILON, evaluate


def evaluate_run(directory: Path, episodes: int, seed: int) -> list[float]:
    """The returns of `episodes` episodes of a run's policy."""
    if episodes < 1:
        raise UsageError(f"--episodes must be >= 1, got {episodes}")
    config = _own_environment(directory)
    policy = load_policy(directory)
    options = envs.EnvOptions(sticky=config.sticky, action_repeat=config.action_repeat, evaluation=True)
    made = envs.make(config.env, episodes, options)
    epsilon = ATARI_EPSILON if config.env.startswith("ALE/") else 0.0
    try:
        return evaluate(policy, made, seed, 0, epsilon)
    finally:
        made.close()


def film(directory: Path, seed: int) -> Path:
    """Write a video of one episode of a run's policy into its directory."""
    import imageio.v3 as iio

    policy = load_policy(directory)
    made, obs, frames = start_filming(directory, seed)
    ended = False
    while not ended:
        obs, _, terminated, truncated, _ = made.step(policy(obs))
        ended = bool(terminated[0] or truncated[0])
        if not ended:
            frames.append(made.render()[0])
    made.close()
    path = directory / "video.mp4"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*os.fork", category=RuntimeWarning)  # imageio starts ffmpeg by it
        iio.imwrite(path, np.stack(frames), fps=30)
    return path


def start_filming(directory: Path, seed: int) -> tuple[SyncVectorEnv, NDArray[Any], list[Any]]:
    """The run's environment, its first observation and its first frame; an error where no video can be made."""
    config = _own_environment(directory)
    try:
        import imageio.v3  # noqa: F401
        import imageio_ffmpeg  # noqa: F401 - the writer that imageio looks for
    except ImportError as error:
        raise missing_extra("--video", "train", error) from error
    options = envs.EnvOptions(config.sticky, config.action_repeat, evaluation=True, render=True)
    try:
        made = envs.make(config.env, 1, options)
        obs, _ = made.reset(seed=seed)
        frame = made.render()[0]
    except UsageError:
        raise
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise UsageError(f"--video cannot render {config.env}: {error}") from error
    except Exception as error:  # GL fails in as many ways as there are drivers
        raise UsageError(
            f"--video cannot render here ({type(error).__name__}: {error}): install a GL library, on Debian "
            "libegl1 (then MUJOCO_GL=egl) or libosmesa6 (then MUJOCO_GL=osmesa)"
        ) from error
    return made, obs, [frame]


def _own_environment(directory: Path) -> TrainConfig:
    """The run's configuration, if its environment can be made from it."""
    config, facts = read_config(directory)
    if facts["environment"]["make_env"]:
        raise UsageError(
            f"{directory} was trained in an environment made by make_env, which a run cannot hold: load its policy "
            "with neoteny.load_policy and play it there"
        )
    return config
