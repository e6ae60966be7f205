"""Drawing: a sampler at work on a buffer's ring, with whatever it has to remember between batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from neoteny.replay import saved
from neoteny.replay.ages.ageing import Floats, Ints
from neoteny.replay.storage import Ring

if TYPE_CHECKING:
    from neoteny.replay.sampling import Sampler

_AHEAD = 8_192
"""How many draws are made at once from a full ring: the calls into NumPy are shared among their batches."""


class Draw(NamedTuple):
    """Which transitions: places behind the head, their slots, and importance weights where the law has them."""

    positions: Ints
    slots: Ints
    weights: Floats | None = None


class Drawer(Protocol):
    """Draws from one ring."""

    def draw(self, rng: np.random.Generator, batch_size: int, batches: int = 1) -> Draw:
        """Draw `batches` batches of `batch_size` at once, with replacement."""
        ...

    def law(self) -> Floats:
        """The present probability of each position; linear in the buffer."""
        ...

    def law_key(self) -> object:
        """What the law depends on: equal keys, equal laws."""
        ...

    def state(self) -> dict[str, Any]:
        """What it remembers: arrays, numbers and JSON."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Remember that, or raise ValueError and remember what was before. The ring has been restored by then."""
        ...


class Attachable(Protocol):
    """What a buffer asks of a sampler: to draw from its ring."""

    def attach(self, ring: Ring) -> Drawer:
        """What draws from `ring` by this sampler."""
        ...


class AgeDrawer:
    """Draws by age. Once the ring is full its law no longer changes, so many batches are drawn at once."""

    def __init__(self, sampler: Sampler, ring: Ring) -> None:
        self._sampler = sampler
        self._ring = ring
        self._ahead: Ints = np.zeros(0, np.int64)

    def draw(self, rng: np.random.Generator, batch_size: int, batches: int = 1) -> Draw:
        batch_size *= batches
        ring = self._ring
        if not self._sampler.draws_ahead or ring.num_stored < ring.capacity:
            positions = self._new(rng, batch_size)
            return Draw(positions, ring.slots_of(positions))
        if len(self._ahead) < batch_size:
            self._ahead = self._new(rng, max(batch_size, _AHEAD))
        positions, self._ahead = self._ahead[:batch_size], self._ahead[batch_size:]
        return Draw(positions, ring.slots_of(positions))

    def law(self) -> Floats:
        return self._sampler.probabilities(self._ring.num_stored, self._ring.num_envs, self._ring.clock)

    def law_key(self) -> object:
        return self._ring.num_stored, 0 if self._sampler.draws_ahead else self._ring.clock

    def state(self) -> dict[str, Any]:
        return {"ahead": self._ahead.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        length = None if self._sampler.draws_ahead else 0
        self._ahead = saved.array(state, "ahead", np.int64, (length,), 0, self._ring.capacity - 1).copy()

    def _new(self, rng: np.random.Generator, size: int) -> Ints:
        ring = self._ring
        return self._sampler.positions(rng, size, ring.num_stored, ring.num_envs, ring.clock)
