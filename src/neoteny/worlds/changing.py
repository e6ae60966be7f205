"""What all changing worlds share: a clock, levels that a seed decides, and evaluation in the world of the moment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from neoteny.errors import UsageError


class Changing(gym.Env):
    """An environment whose world is another one every `every` steps, in the middle of an episode too.

    It goes before the environment that it changes in the bases of a class, which says in `enter` what a level is. The
    levels are numbered from 1. What is random in one is drawn from ``default_rng([seed, level])``, where `seed` is the
    one of the last reset that had a seed: that reset begins with the first level again.
    """

    def __init__(self, every: int, **arguments: Any) -> None:
        """every: steps in each level. arguments: those of the environment that is changed."""
        if every < 1:
            raise UsageError(f"every must be >= 1, the steps between two changes of the world, got {every}")
        super().__init__(**arguments)
        self.every = every
        self.world_seed: int | None = None
        self.world_steps = 0
        self.stays = False
        """Whether the world no longer changes, as in an evaluation."""

    @property
    def level(self) -> int:
        """The number of the present level, from 1."""
        return 1 + self.world_steps // self.every

    def enter(self, level: int, rng: np.random.Generator) -> None:
        """Become the world of this level. rng: the level's own."""
        raise NotImplementedError

    def seen(self, obs: Any) -> Any:
        """What an agent sees in the present level of an observation of the environment that is changed."""
        return obs

    def stay_where(self, other: Changing) -> None:
        """Become the world that `other` is in now, and stay in it, whatever comes."""
        self.world_seed, self.world_steps, self.every = other.world_seed, other.world_steps, other.every
        self.stays = True
        self._enter()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in the present world; with a seed, in the first level of that seed."""
        if not self.stays and (seed is not None or self.world_seed is None):
            self.world_seed = self.np_random_seed if seed is None else seed
            self.world_steps = 0
            self._enter()
        obs, info = super().reset(seed=seed, options=options)
        return self.seen(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step in the present world; the last one of a level ends in the next, as which it is seen."""
        obs, reward, terminated, truncated, info = super().step(action)
        if not self.stays:
            self.world_steps += 1
            if self.world_steps % self.every == 0:
                self._enter()
        return self.seen(obs), reward, terminated, truncated, info

    def _enter(self) -> None:
        self.enter(self.level, np.random.default_rng([self.world_seed or 0, self.level]))
