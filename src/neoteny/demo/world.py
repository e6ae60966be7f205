"""A pendulum whose gravity changes; importing this registers it with Gymnasium as ``ChangingGravity-v0``."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import PendulumEnv

from neoteny.worlds.changing import Changing

PERIOD = 6_000
"""Steps between changes."""
GRAVITIES = (10.0, 15.0, 5.0, 15.0)
ID = f"{__name__}:ChangingGravity-v0"
"""What `gymnasium.make` takes: the module that registers the environment, and its name."""


class ChangingGravity(Changing, PendulumEnv):
    """Pendulum-v1 whose gravity changes every PERIOD steps."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(PERIOD, render_mode=render_mode)

    def enter(self, level: int, rng: np.random.Generator) -> None:
        """Take the level's gravity, which is the same for every seed."""
        self.g = GRAVITIES[(level - 1) % len(GRAVITIES)]


gym.register("ChangingGravity-v0", entry_point=f"{__name__}:ChangingGravity", max_episode_steps=200)
