"""Combined experience replay: any sampler, with the newest transition in every batch; Zhang & Sutton (2017)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from neoteny.replay import saved
from neoteny.replay.ages.ageing import Floats, Schedule
from neoteny.replay.ages.schedules import Uniform
from neoteny.replay.drawing import AgeDrawer, Draw
from neoteny.replay.sampling import AgeWeightedSampler, Sampler
from neoteny.replay.storage import Ring


class CombinedSampler:
    """Uniform replay, or another age law, with the newest transition first in every batch.

    Of several environments' newest, one is picked evenly. A control for SWD: is it only the newest that matters?
    """

    def __init__(self, schedule: Schedule | None = None) -> None:
        self._sampler: Sampler = AgeWeightedSampler(Uniform() if schedule is None else schedule)

    @property
    def schedule(self) -> Schedule:
        """The age law of all but the newest."""
        return self._sampler.schedule

    def attach(self, ring: Ring) -> CombinedDrawer:
        """What draws from a buffer's `ring` by this sampler."""
        return CombinedDrawer(AgeDrawer(self._sampler, ring), ring)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sampler.schedule})"


class CombinedDrawer:
    """Draws by age, and puts the newest first."""

    def __init__(self, drawer: AgeDrawer, ring: Ring) -> None:
        self._drawer = drawer
        self._ring = ring
        self._batch_size = 0
        """Of the last draw: the law of a batch depends on its size."""

    def draw(self, rng: np.random.Generator, batch_size: int, batches: int = 1) -> Draw:
        """Draw `batches` batches of `batch_size` at once, each with the newest first."""
        positions = self._drawer.draw(rng, batch_size, batches).positions.reshape(batches, batch_size).copy()
        positions[:, 0] = rng.integers(0, min(self._ring.num_envs, self._ring.num_stored), batches)
        self._batch_size = batch_size
        flat = positions.ravel()
        return Draw(flat, self._ring.slots_of(flat))

    def law(self) -> Floats:
        """The mean probability of each position over the places of a batch like the last."""
        law = self._drawer.law()
        if not self._batch_size:
            return law
        law = law * (1 - 1 / self._batch_size)
        newest = min(self._ring.num_envs, len(law))
        law[:newest] += 1 / self._batch_size / newest
        return law

    def law_key(self) -> object:
        """What the law depends on."""
        return self._drawer.law_key(), self._batch_size

    def state(self) -> dict[str, Any]:
        """What it remembers."""
        return {**self._drawer.state(), "batch_size": self._batch_size}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Remember that."""
        batch_size = saved.whole(state, "batch_size", 0)
        self._drawer.restore(state)
        self._batch_size = batch_size
