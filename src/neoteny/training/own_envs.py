"""An environment of the user's own, checked before a run begins: made anew at every call, true to its own spaces."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

from neoteny.envs import MakeEnv
from neoteny.errors import UsageError


def each_new(make_env: MakeEnv | None, called: str = "make_env") -> MakeEnv | None:
    """`make_env`, refused if it returns an environment twice: two of a run's environments would be one.

    called: what the caller's argument is called.
    """
    if make_env is None:
        return None
    earlier: list[gym.Env] = []

    @functools.wraps(make_env)  # its name is part of the run's id
    def make_another() -> gym.Env:
        env: Any = make_env()
        if not isinstance(env, gym.Env):
            raise UsageError(f"{called} must return a Gymnasium environment (gymnasium.Env), got {env!r}")
        if any(env.unwrapped is other for other in earlier):
            raise UsageError(
                f"{called} returned the same environment twice, {env}: it must make a new one at every call, such as "
                "lambda: gym.make(...)"
            )
        earlier.append(env.unwrapped)
        return env

    return make_another


def first_observations(vector_env: SyncVectorEnv, seeds: list[int | None]) -> NDArray[Any]:
    """Reset every environment; one sentence if what a reset returns is not what the observation space says."""
    try:
        observations: NDArray[Any] = vector_env.reset(seed=seeds)[0]
    except Exception:
        for env in vector_env.envs:
            _check_reset(env)
        raise
    if not np.isfinite(observations).all():
        name = type(vector_env.envs[0].unwrapped).__name__
        raise UsageError(f"reset of {name} returned NaN or infinity in its observation: every number must be finite")
    return observations


def _check_reset(env: Any) -> None:
    """Find the innermost layer, the environment itself or a wrapper, whose reset does not fit its space."""
    if isinstance(env, gym.Wrapper):
        _check_reset(env.env)
    name = type(env).__name__
    try:
        returned = env.reset(seed=0)
    except Exception:  # an error of its own, which is what is shown then
        return
    if not (isinstance(returned, tuple) and len(returned) == 2):
        raise UsageError(f"reset of {name} must return an observation and a dict, (obs, info), got {returned!r}")
    shape, said = _shape(returned[0]), _shape_of(env.observation_space)
    if shape != said:
        raise UsageError(
            f"reset of {name} returned an observation of shape {shape}, and its observation_space has {said}"
        )


def _shape(obs: Any) -> Any:
    return {name: _shape(part) for name, part in sorted(obs.items())} if isinstance(obs, dict) else np.shape(obs)


def _shape_of(space: spaces.Space) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _shape_of(part) for name, part in sorted(space.items())}
    return space.shape
