"""LunarLander that drifts. Box2D does not let its contacts be read, so an episode is saved as how it began and went."""

from __future__ import annotations

import copy
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from neoteny.errors import missing_extra
from neoteny.worlds.drifting import Drifting

try:
    from gymnasium.envs.box2d.lunar_lander import LunarLander
except gym.error.DependencyNotInstalled as error:
    raise missing_extra("LunarLander", "box2d", ImportError(name="gymnasium[box2d]")) from error


class DriftingLunarLander(Drifting, LunarLander):
    """LunarLander-v3 with discrete actions; its dynamics change by gravity, from -5 to -20.

    Its state is the generator as it was before the episode, the level in which this began, and the actions since. To
    restore it the episode is played again, which gives the same bits.
    """

    constant = "gravity"

    def __init__(
        self, change: Literal["offset", "dynamics"] = "offset", every: int = 10_000, render_mode: str | None = None
    ) -> None:
        """change: what is drawn anew. every: after how many steps."""
        super().__init__(change, every, render_mode)
        self._resetting = False
        self._began: np.random.Generator | None = None
        self._began_at = 0
        self._actions: list[int] = []

    def enter(self, level: int, rng: np.random.Generator) -> None:
        """As the others do; new gravity acts at once, in the middle of an episode too."""
        super().enter(level, rng)
        self.world.gravity = (0, self.gravity)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in the present world; with a seed, in the first level of that seed."""
        gym.Env.reset(self, seed=seed)  # so that the generator is as it will be when the episode's first draw is made
        self._began = copy.deepcopy(self.np_random)
        self._resetting = True  # LunarLander's reset makes a step, which is no step of the world
        try:
            result = super().reset(seed=seed, options=options)
        finally:
            self._resetting = False
        self._began_at, self._actions = self.world_steps, []
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step in the present world."""
        if self._resetting:
            return LunarLander.step(self, action)  # type: ignore[no-untyped-call]
        self._actions.append(int(action))
        return super().step(action)

    def get_state(self) -> dict[str, Any]:
        """Return how the episode began, and its actions."""
        return {
            "generator": self._began,
            "world": [self.world_seed, self._began_at, self.every],
            "stays": self.stays,
            "actions": np.array(self._actions, np.int64),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Play the episode of a saved state again, up to the moment at which it was saved."""
        self.world_seed, self.world_steps, self.every = state["world"]
        self.stays = state["stays"]
        if state["generator"] is None:
            return
        self.np_random = state["generator"]
        self._enter()
        self.reset()
        for action in state["actions"]:
            self.step(int(action))
