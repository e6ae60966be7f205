"""Linear decay whose T is set from outside between batches, such as by drift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from neoteny.replay import saved
from neoteny.replay.ages.ageing import Floats
from neoteny.replay.ages.schedules import LinearDecay
from neoteny.replay.drawing import AgeDrawer, Draw
from neoteny.replay.sampling import AgeWeightedSampler
from neoteny.replay.storage import Ring


@dataclass(frozen=True)
class MovingDecaySampler:
    """max(w_min, 1 - age / T) with a T that ``ReplayBuffer.set_decay_steps`` sets; until it does, a tenth of what is
    stored."""

    min_weight: float = 0.1
    """w_min, the weight that old transitions keep."""

    def __post_init__(self) -> None:
        self.schedule_at(None)

    def schedule_at(self, decay_steps: float | None) -> LinearDecay:
        """The schedule while T is `decay_steps`; None if it was not set yet."""
        return LinearDecay("auto" if decay_steps is None else decay_steps, self.min_weight)

    def attach(self, ring: Ring) -> MovingDrawer:
        """What draws from a buffer's `ring` by this sampler."""
        return MovingDrawer(self, ring)


class MovingDrawer:
    """Draws by the present T. A new T drops what was drawn ahead by the one before."""

    def __init__(self, sampler: MovingDecaySampler, ring: Ring) -> None:
        self._sampler = sampler
        self._ring = ring
        self.decay_steps: float | None = None
        """The present T; None if it was not set yet."""
        self._drawer = self._drawer_at(None)

    @property
    def schedule(self) -> LinearDecay:
        """The present schedule."""
        return self._sampler.schedule_at(self.decay_steps)

    def set_decay_steps(self, decay_steps: float) -> None:
        """Draw by this T from now on."""
        self.decay_steps, self._drawer = decay_steps, self._drawer_at(decay_steps)

    def draw(self, rng: np.random.Generator, batch_size: int, batches: int = 1) -> Draw:
        """Draw `batches` batches of `batch_size` at once."""
        return self._drawer.draw(rng, batch_size, batches)

    def law(self) -> Floats:
        """The present probability of each position."""
        return self._drawer.law()

    def law_key(self) -> object:
        """What the law depends on."""
        return self.decay_steps, self._drawer.law_key()

    def state(self) -> dict[str, Any]:
        """What it remembers: T, and what is drawn ahead."""
        return {**self._drawer.state(), "decay_steps": self.decay_steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Remember that."""
        decay_steps = saved.part(state, "decay_steps")
        if decay_steps is not None:
            decay_steps = saved.real(state, "decay_steps", 2.0, max(2.0, float(self._ring.capacity)))
        drawer = self._drawer_at(decay_steps)
        drawer.restore(state)
        self.decay_steps, self._drawer = decay_steps, drawer

    def _drawer_at(self, decay_steps: float | None) -> AgeDrawer:
        return AgeDrawer(AgeWeightedSampler(self._sampler.schedule_at(decay_steps)), self._ring)
