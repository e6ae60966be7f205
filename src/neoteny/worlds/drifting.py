"""Classic control that drifts: every so many steps a new offset of the observations, or a new constant of the dynamics.

The offsets are those of TRAC (Muppidi et al. 2024) and C-CHAIN (Tang et al. 2025), whose code draws them from a normal
distribution of standard deviation 2, the same in all dimensions. The changes of the dynamics are ours.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import AcrobotEnv, CartPoleEnv, PendulumEnv

from neoteny.errors import UsageError
from neoteny.worlds.changing import Changing

OFFSET = 2.0
"""The standard deviation of an offset."""
FACTOR = 2.0
"""The most that a constant is multiplied or divided by."""


class Drifting(Changing):
    """An environment of classic control with levels of its observations' offset or of one constant of its dynamics."""

    constant: ClassVar[str]
    """The attribute that changes with the dynamics."""

    def __init__(
        self, change: Literal["offset", "dynamics"] = "offset", every: int = 10_000, render_mode: str | None = None
    ) -> None:
        """change: what is drawn anew. every: after how many steps."""
        if change not in ("offset", "dynamics"):
            raise UsageError(f"change must be offset or dynamics, got {change!r}")
        super().__init__(every, render_mode=render_mode)
        self.change = change
        self.usual = float(getattr(self, self.constant))
        shape = self.observation_space.shape
        assert shape is not None
        self.offset = np.zeros(shape, np.float32)
        if change == "offset":
            self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)

    def enter(self, level: int, rng: np.random.Generator) -> None:
        """Draw an offset from N(0, 2^2) for each dimension; or multiply the constant by 2^u, u uniform in [-1, 1]."""
        if self.change == "offset":
            self.offset = rng.normal(0.0, OFFSET, self.offset.shape).astype(np.float32)
        else:
            setattr(self, self.constant, self.usual * FACTOR ** rng.uniform(-1.0, 1.0))

    def seen(self, obs: Any) -> Any:
        """Return the observation with the level's offset added."""
        return obs + self.offset


class DriftingCartPole(Drifting, CartPoleEnv):
    """CartPole-v1; its dynamics change by the force that pushes the cart."""

    constant = "force_mag"


class DriftingAcrobot(Drifting, AcrobotEnv):
    """Acrobot-v1; its dynamics change by the mass of the second link."""

    constant = "LINK_MASS_2"


class DriftingPendulum(Drifting, PendulumEnv):
    """Pendulum-v1; its dynamics change by gravity."""

    constant = "g"
