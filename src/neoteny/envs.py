"""Environments: MuJoCo, DeepMind Control, Atari, MinAtar and all that Gymnasium registers, as a vector environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from neoteny.errors import UsageError, missing_extra
from neoteny.worlds.changing import Changing  # and with it everything that is called neoteny/...
from neoteny.worlds.minatar import make_game

MakeEnv = Callable[[], gym.Env]


@dataclass(frozen=True)
class EnvOptions:
    """How an environment is made."""

    sticky: bool = False
    """Atari: repeat the last action with probability 0.25."""
    action_repeat: int | None = None
    """Simulator steps for each decision, rewards summed; if not given 2 for DeepMind Control, else 1."""
    evaluation: bool = False
    """Atari: whole games and raw rewards, instead of lives and signs."""
    render: bool = False
    """Whether frames of video can be asked for."""


PLAIN = EnvOptions()


def make(env_id: str, num_envs: int = 1, options: EnvOptions = PLAIN, make_env: MakeEnv | None = None) -> SyncVectorEnv:
    """`num_envs` environments that step together and reset in the step that ends an episode.

    make_env: a user's own, instead of `env_id`. The observation before such a reset is in info["final_obs"].
    """
    if num_envs < 1:
        raise UsageError(f"--num-envs must be >= 1, got {num_envs}")
    one = (lambda: _prepared(make_env(), options)) if make_env is not None else (lambda: _make_one(env_id, options))
    return SyncVectorEnv([one] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def is_pixels(space: spaces.Space) -> bool:
    """Whether observations are stacks of frames: (stack, height, width), or (stack, channels, height, width)."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) in (3, 4)


def changes(env: SyncVectorEnv) -> bool:
    """Whether the world changes while an agent learns in it."""
    return isinstance(env.envs[0].unwrapped, Changing)


def stay_in_present_world(evaluation: SyncVectorEnv, training: SyncVectorEnv) -> None:
    """If the world changes, make the environments of an evaluation stay in the present worlds of training, in turn."""
    for index, env in enumerate(evaluation.envs):
        present = training.envs[index % training.num_envs].unwrapped
        if isinstance(env.unwrapped, Changing) and isinstance(present, Changing):
            env.unwrapped.stay_where(present)


def observation_keys(env: SyncVectorEnv) -> list[str] | None:
    """The parts of a flattened Dict observation, in their order; None for an observation that was never a Dict."""
    inner: Any = env.envs[0]
    while isinstance(inner, gym.Wrapper):
        if isinstance(inner, gym.wrappers.FlattenObservation):
            return list(inner.env.observation_space.spaces)  # type: ignore[attr-defined]
        inner = inner.env
    return None


def frames_per_step(env_id: str, action_repeat: int | None) -> int:
    """Simulator steps for each decision."""
    if env_id.startswith("ALE/"):
        return 4
    return action_repeat if action_repeat is not None else _default_repeat(env_id)


def _default_repeat(env_id: str) -> int:
    return 2 if env_id.startswith("dm_control/") else 1


def episode_steps(env_id: str) -> int:
    """Simulator steps of an episode: 1,000 in DeepMind Control, else what Gymnasium has registered."""
    if env_id.startswith("dm_control/"):
        return 1_000
    try:
        steps = gym.spec(env_id).max_episode_steps
    except (gym.error.Error, ModuleNotFoundError):
        steps = None
    if steps is None:
        raise UsageError(f"--gamma auto needs the length of an episode, and {env_id} tells none: give --gamma a number")
    return steps


def may_terminate(env_id: str) -> bool:
    """Whether episodes may terminate, as far as its id tells: those of DeepMind Control only end with their time."""
    return not env_id.startswith("dm_control/")


def versions() -> dict[str, str]:
    """The versions of what an environment's dynamics depend on, as far as they are installed."""
    installed = {}
    for name in ("gymnasium", "mujoco", "dm-control", "shimmy", "ale-py", "opencv-python-headless", "MinAtar", "Box2D"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def _make_one(env_id: str, options: EnvOptions) -> gym.Env:
    mode: dict[str, Any] = {"render_mode": "rgb_array"} if options.render else {}
    if env_id.startswith("dm_control/"):
        _import_dm_control(options.render)
    try:
        if env_id.startswith("ALE/"):
            return _atari(env_id, options, mode)
        if env_id.startswith("MinAtar/"):
            return _prepared(make_game(env_id, **mode), options)
        return _prepared(gym.make(env_id, **mode), options, default_repeat=_default_repeat(env_id))
    except gym.error.DependencyNotInstalled as error:
        raise UsageError(f"{env_id} needs a package that is not installed: {error}") from error
    except (gym.error.Error, ModuleNotFoundError) as error:
        raise UsageError(f"there is no environment {env_id!r}: {error}") from error


def _import_dm_control(render: bool) -> None:
    if not render:
        os.environ.setdefault("MUJOCO_GL", "disabled")  # training needs no GL, and must not look for one
    try:
        import dm_control  # noqa: F401
        import shimmy  # noqa: F401 - registers dm_control/* on import
    except ImportError as error:
        raise missing_extra("DeepMind Control", "dmc", error) from error


def _prepared(env: gym.Env, options: EnvOptions, default_repeat: int = 1) -> gym.Env:
    """Episode statistics, action repeat, and a flat vector for a Dict of numbers."""
    repeat = options.action_repeat if options.action_repeat is not None else default_repeat
    if repeat < 1:
        raise UsageError(f"--action-repeat must be >= 1, got {repeat}")
    if repeat > 1:
        env = ActionRepeat(env, repeat)
    if not _counts_episodes(env):
        env = gym.wrappers.RecordEpisodeStatistics(env)
    space = env.observation_space
    if isinstance(space, spaces.Dict):
        for name, part in space.items():
            if not isinstance(part, spaces.Box) or part.dtype == np.uint8 or len(part.shape) > 1:
                raise UsageError(
                    f"the observation {name!r} is {part}: a Dict may hold vectors of numbers; choose or wrap an "
                    "environment whose observations are one Box, or a Dict of such vectors"
                )
        env = gym.wrappers.FlattenObservation(env)
    elif not isinstance(space, spaces.Box):
        raise UsageError(f"observations must be a Box, or a Dict of vectors of numbers, got {space}")
    return env


def _counts_episodes(env: gym.Env) -> bool:
    inner: Any = env
    while isinstance(inner, gym.Wrapper):
        if isinstance(inner, gym.wrappers.RecordEpisodeStatistics):
            return True
        inner = inner.env
    return False


def _atari(env_id: str, options: EnvOptions, mode: dict[str, Any]) -> gym.Env:
    """Noop 30, max and skip 4, episodic life, fire reset, sign of the reward, 84 x 84 grey, stack 4."""
    try:
        import ale_py
        import cv2  # noqa: F401 - AtariPreprocessing resizes with it
    except ImportError as error:
        raise missing_extra("Atari", "atari", error) from error
    gym.register_envs(ale_py)
    env: Any = gym.make(env_id, frameskip=1, repeat_action_probability=0.0, **mode)
    if options.sticky:  # not ALE's own: the action it would repeat is no part of the state that ALE saves
        env = gym.wrappers.StickyAction(env, 0.25)
    env = gym.wrappers.AtariPreprocessing(env, noop_max=30, frame_skip=4, screen_size=84)
    env = gym.wrappers.RecordEpisodeStatistics(env)
    if not options.evaluation:
        env = EpisodicLife(env)
    if "FIRE" in env.unwrapped.get_action_meanings():
        env = FireReset(env)
        if options.evaluation:
            env = FireAfterLostLife(env)
    if not options.evaluation:
        env = gym.wrappers.TransformReward(env, lambda reward: float(np.sign(float(reward))))
    return gym.wrappers.FrameStackObservation(env, 4)


class ActionRepeat(gym.Wrapper):
    """Takes each action `times` times and sums the rewards, up to the end of the episode."""

    def __init__(self, env: gym.Env, times: int) -> None:
        super().__init__(env)
        self.times = times

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self.times):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


class EpisodicLife(gym.Wrapper):
    """A lost life ends the episode for learning, and the game goes on: only a finished game is reset."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.lives = 0
        self.game_over = True

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.game_over = terminated or truncated
        lives = _lives(self.env)
        lost = 0 < lives < self.lives
        self.lives = lives
        return obs, float(reward), terminated or lost, truncated, info

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        if self.game_over or arguments.get("seed") is not None:
            obs, info = self.env.reset(**arguments)
        else:
            obs, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                obs, info = self.env.reset(**arguments)
        self.game_over = False
        self.lives = _lives(self.env)
        return obs, info


class FireAfterLostLife(gym.Wrapper):
    """Presses FIRE after a lost life, as training does at each of its resets, and lets the game go on.

    Without it a policy that never had to press FIRE stands still for the rest of the game.
    """

    lives = 0

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**arguments)
        self.lives = _lives(self.env)
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        lost = _lives(self.env) < self.lives
        self.lives = _lives(self.env)
        obs, reward, terminated, truncated, info = self.env.step(1 if lost else action)
        return obs, float(reward), terminated, truncated, info


def _lives(env: Any) -> int:
    return int(env.unwrapped.ale.lives())


class FireReset(gym.Wrapper):
    """Presses FIRE after a reset, in games that wait for it."""

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        self.env.reset(**arguments)
        obs, _, terminated, truncated, info = self.env.step(1)
        if terminated or truncated:
            obs, info = self.env.reset(**arguments)
        return obs, info
