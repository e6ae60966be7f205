"""What an agent must know of its environment. No JAX here: a saved policy is described by it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NATURE_SIDE = 36
"""The least height and width of frames that the convolutions of the Nature CNN can take."""


@dataclass(frozen=True)
class Problem:
    """What an agent must know of its environment, and of the batches it will be given."""

    obs_shape: tuple[int, ...]
    pixels: bool
    num_actions: int
    action_low: NDArray[np.float32] | None
    action_high: NDArray[np.float32] | None
    total_timesteps: int
    num_envs: int = 1
    """Environments that step together; a policy does not depend on it."""

    @property
    def small_frames(self) -> bool:
        """Whether observations are frames too small for the Nature CNN."""
        return self.pixels and min(self.obs_shape[-2:]) < NATURE_SIDE

    def scale(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Half the width of the action space, and its middle."""
        assert self.action_low is not None
        assert self.action_high is not None
        low, high = self.action_low, self.action_high
        return (high - low) / np.float32(2), (high + low) / np.float32(2)
