"""A pendulum whose gravity changes; importing this registers it with Gymnasium as ``ChangingGravity-v0``."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

PERIOD = 6_000
"""Steps between changes."""
GRAVITIES = (10.0, 15.0, 5.0, 15.0)
ID = f"{__name__}:ChangingGravity-v0"
"""What `gymnasium.make` takes: the module that registers the environment, and its name."""


class ChangingGravity(gym.Wrapper):
    """Pendulum-v1 whose gravity changes every PERIOD steps."""

    def __init__(self) -> None:
        super().__init__(gym.make("Pendulum-v1"))
        self.steps = 0

    def step(self, action: Any) -> Any:
        """One step, in the world of its time."""
        pendulum: Any = self.env.unwrapped
        pendulum.g = GRAVITIES[self.steps // PERIOD % len(GRAVITIES)]
        self.steps += 1
        return self.env.step(action)


gym.register("ChangingGravity-v0", entry_point=f"{__name__}:ChangingGravity")
