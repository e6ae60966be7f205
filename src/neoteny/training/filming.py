"""A video of one episode."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

from neoteny.errors import UsageError, missing_extra

FRAMES_PER_SECOND = 30


class Started(NamedTuple):
    """An environment in which filming has begun: its first observation, and its first frame."""

    env: SyncVectorEnv
    obs: NDArray[Any]
    frame: Any


def start_filming(make: Callable[[], SyncVectorEnv], name: str, seed: int) -> Started:
    """Make an environment and take its first frame; an error in one sentence where no video can be made.

    Args:
        make: makes a vector environment of one, which can render.
        name: what the environment is called.
        seed: of the episode.
    """
    try:
        import imageio.v3  # noqa: F401
        import imageio_ffmpeg  # noqa: F401 - the writer that imageio looks for
    except ImportError as error:
        raise missing_extra("--video", "train", error) from error
    try:
        vector_env = make()
        mode = vector_env.envs[0].render_mode
        if mode != "rgb_array":
            raise UsageError(
                f"--video needs an environment that renders frames, and {name} has render_mode={mode!r}: make it with "
                "render_mode='rgb_array'"
            )
        obs, _ = vector_env.reset(seed=seed)
        frame = vector_env.envs[0].render()
    except UsageError:
        raise
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise UsageError(f"--video cannot render {name}: {error}") from error
    except Exception as error:  # GL fails in as many ways as there are drivers
        raise UsageError(
            f"--video cannot render here ({type(error).__name__}: {error}): install a GL library, on Debian "
            "libegl1 (then MUJOCO_GL=egl) or libosmesa6 (then MUJOCO_GL=osmesa)"
        ) from error
    return Started(vector_env, obs, frame)


def film(policy: Callable[[NDArray[Any]], NDArray[Any]], started: Started, path: Path) -> int:
    """Play the episode that was started, write its video to `path`, and return how many frames it has."""
    import imageio.v3 as iio

    vector_env, obs, frame = started
    frames, ended = [frame], False
    while not ended:
        obs, _, terminated, truncated, _ = vector_env.step(policy(obs))
        ended = bool(terminated[0] or truncated[0])
        if not ended:
            frames.append(vector_env.envs[0].render())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*os.fork", category=RuntimeWarning)  # imageio starts ffmpeg by it
        iio.imwrite(path, np.stack(frames), fps=FRAMES_PER_SECOND)
    return len(frames)
