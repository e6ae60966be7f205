"""MinAtar (Young & Tian 2019): its games with frames as agents take them, and several games in turn."""

from __future__ import annotations

import colorsys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from neoteny.errors import missing_extra
from neoteny.worlds.changing import Changing

IN_TURN = ("space_invaders", "asterix", "seaquest")
CHANNELS = 10
"""Of the game in turn that has the most, Seaquest."""
ACTIONS = 6
"""MinAtar's full set: nothing, left, up, right, down, fire."""
LONGEST = 5_000
"""Steps after which an episode is cut: a submarine that stays at the surface is never hit. Freeway has 2,501."""


def make_game(env_id: str, **arguments: Any) -> gym.Env:
    """One of MinAtar's games by the id that its package registers, such as MinAtar/Breakout-v1."""
    _import()
    if "MinAtar/Breakout-v1" not in gym.registry:
        from minatar.gym import register_envs

        register_envs()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is out of date")  # v0 is not: it has all actions, v1 those of use
        return ChannelsFirst(gym.make(env_id, max_episode_steps=LONGEST, **arguments))


class ChannelsFirst(gym.ObservationWrapper, gym.utils.RecordConstructorArgs):
    """Observations as one frame of channels, (1, channels, 10, 10), uint8: what the frame store and agents take."""

    def __init__(self, env: gym.Env) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        assert env.observation_space.shape is not None
        self.observation_space = _space(env.observation_space.shape[-1])

    def observation(self, observation: Any) -> NDArray[np.uint8]:
        """Return the observation with its channels first."""
        return _channels_first(observation, observation.shape[-1])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As the game's own, which leaves out that Gymnasium's generator is seeded too."""
        gym.Env.reset(self.unwrapped, seed=seed)
        return super().reset(seed=seed, options=options)

    def render(self) -> Any:
        """Return the present frame as a picture."""
        base: Any = self.unwrapped
        return _picture(base.game.state())


class Games(gym.Env):
    """MinAtar's games of `IN_TURN`, of which one is played; every game with all actions and as many channels."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, render_mode: str | None = None) -> None:
        environment = _import()
        self.render_mode = render_mode
        self.playing = IN_TURN[0]
        for name in IN_TURN:  # attributes, each of which a snapshot knows how to save
            setattr(self, name, environment(name))
        self._seed_games()
        self.observation_space = _space(CHANNELS)
        self.action_space = spaces.Discrete(ACTIONS)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of the game that is played."""
        super().reset(seed=seed)
        if seed is not None:
            self._seed_games()
        self._game.reset()
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step of the game that is played."""
        reward, ended = self._game.act(int(action))
        return self._observe(), float(reward), bool(ended), False, {}

    def render(self) -> Any:
        """Return the present frame as a picture."""
        return _picture(self._game.state())

    @property
    def _game(self) -> Any:
        return getattr(self, self.playing)

    def _seed_games(self) -> None:
        """Give every game, whatever is played, a generator that it shares with its rules."""
        for name in IN_TURN:
            getattr(self, name).seed(int(self.np_random.integers(2**32)))

    def _observe(self) -> NDArray[np.uint8]:
        return _channels_first(self._game.state(), CHANNELS)


class GamesInTurn(Changing, Games):
    """SpaceInvaders, Asterix and Seaquest in turn, each for `every` steps; a change of the game cuts the episode."""

    def __init__(self, every: int = 100_000, render_mode: str | None = None) -> None:
        super().__init__(every, render_mode=render_mode)

    def enter(self, level: int, rng: np.random.Generator) -> None:
        """Play the level's game."""
        self.playing = IN_TURN[(level - 1) % len(IN_TURN)]

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step of the present game, which is the last of its episode if another game follows."""
        before = self.playing
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated or self.playing != before, info


def _import() -> Any:
    """MinAtar's Environment."""
    try:
        from minatar import Environment
    except ImportError as error:
        raise missing_extra("MinAtar", "minatar", error) from error
    return Environment


def _space(channels: int) -> spaces.Box:
    return spaces.Box(0, 1, (1, channels, 10, 10), np.uint8)


def _channels_first(state: NDArray[np.bool_], channels: int) -> NDArray[np.uint8]:
    """A game's state, (10, 10, its channels), as a stack of one frame; channels that it does not have are 0."""
    stack = np.zeros((1, channels, 10, 10), np.uint8)
    stack[0, : state.shape[-1]] = state.transpose(2, 0, 1)
    return stack


def _picture(state: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """A game's state in colours, (160, 160, 3): of the channels that are on in a cell, the last is seen."""
    channels = state.shape[-1]
    colours = [(0.0, 0.0, 0.0), *(colorsys.hsv_to_rgb(channel / channels, 0.7, 1.0) for channel in range(channels))]
    shown = (state * (np.arange(channels) + 1)).max(axis=-1)
    return (255 * np.array(colours)[shown]).astype(np.uint8).repeat(16, axis=0).repeat(16, axis=1)
