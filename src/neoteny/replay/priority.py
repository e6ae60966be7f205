"""Priorities: prioritised replay, alone or times an age weight, exact and without a Python loop over a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from neoteny.replay import saved
from neoteny.replay.ages.ageing import LARGEST, Floats, Ints, Schedule, positive_total
from neoteny.replay.drawing import Draw
from neoteny.replay.priority_by_age import AgeWeights, draw_products
from neoteny.replay.sampling import check_schedule_type
from neoteny.replay.storage import Ring
from neoteny.replay.sumtree import SumTree


@dataclass(frozen=True)
class PrioritizedSampler:
    """Prioritised experience replay (Schaul et al. 2016): P proportional to (|delta| + eps)^alpha.

    With a `schedule`, P is proportional to that times the age's weight, and the importance weights come from
    the priority alone: correcting for the age would undo it. A new transition has the largest priority
    seen. Tell the buffer the errors of a batch with ``ReplayBuffer.update_priorities``.
    """

    schedule: Schedule | None = None
    """Age weights to multiply with, such as LinearDecay(); none for plain PER."""
    alpha: float = 0.6
    """How much the error counts: 0 not at all."""
    beta: float = 0.4
    """How much of the bias the importance weights correct, to begin with."""
    beta_step: float = 1e-6
    """How much beta rises with every batch drawn, up to 1."""
    eps: float = 1e-6
    """What is added to every error, so that none is never drawn."""

    def __post_init__(self) -> None:
        if self.schedule is not None:
            check_schedule_type(self.schedule)
        for name, low, high in (("alpha", 0, 1), ("beta", 0, 1), ("beta_step", 0, 1)):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"PrioritizedSampler: {name} must be in [0, 1], got {getattr(self, name)!r}")
        if not 1 / LARGEST <= self.eps <= LARGEST:
            raise ValueError(f"PrioritizedSampler: eps must be from {1 / LARGEST:g} to {LARGEST:g}, got {self.eps!r}")

    def attach(self, ring: Ring) -> PriorityDrawer:
        """What draws from a buffer's `ring` by this sampler."""
        return PriorityDrawer(self, ring)


class Drawn(Protocol):
    """Which transitions a batch contains, and when it was drawn: a Batch tells it."""

    @property
    def slots(self) -> Ints: ...

    @property
    def positions(self) -> Ints: ...

    @property
    def clock(self) -> int: ...


class PriorityDrawer:
    """Draws by priority, and age weight if there is one, from a sum tree over the slots of one ring."""

    def __init__(self, sampler: PrioritizedSampler, ring: Ring) -> None:
        self._sampler = sampler
        self._ring = ring
        self._tree = SumTree(ring.capacity)
        self._largest = 1.0
        self._seen = 0
        self._oldest = 0
        self._restored = ring.restored
        self._draws = 0
        self._ages = (
            AgeWeights(sampler.schedule, ring, len(self._tree.block_sums)) if sampler.schedule is not None else None
        )

    def draw(self, rng: np.random.Generator, batch_size: int, batches: int = 1) -> Draw:
        self._sync()
        slots, priorities = self._draw_slots(rng, batch_size * batches)
        if batches == 1:
            weights = priorities ** -self._beta(0)
            weights /= weights.max()
        else:
            beta = np.array([self._beta(index) for index in range(batches)])
            apart = priorities.reshape(batches, batch_size) ** -beta[:, None]
            weights = (apart / apart.max(axis=1, keepdims=True)).ravel()
        self._draws += batches
        return Draw(self._ring.slots_of(slots), slots, weights)  # slots and positions map alike both ways

    def _beta(self, further: int) -> float:
        """beta of the batch `further` after the next."""
        return min(1.0, self._sampler.beta + (self._draws + further) * self._sampler.beta_step)

    def update(self, batch: Drawn, errors: ArrayLike) -> None:
        """Give the transitions of a batch new errors; those no longer held are passed over."""
        errors = np.asarray(errors, np.float64)
        if errors.shape != batch.slots.shape:
            raise ValueError(f"one error for each transition drawn: shape {batch.slots.shape}, got {errors.shape}")
        raw = np.abs(errors)
        raw += self._sampler.eps
        if not (largest := float(raw.max())) <= LARGEST:
            allowed = f"at most {LARGEST:g}" if math.isfinite(largest) else "finite"
            raise ValueError(f"errors must be {allowed}, got {errors[~(raw <= LARGEST)][0]}")
        self._sync()
        if batch.clock > self._ring.clock:
            raise ValueError("this batch was drawn before the buffer was restored to an earlier state")
        slots, oldest = batch.slots, batch.clock - 1 - self._ring.oldest
        if int(batch.positions.max()) > oldest:
            held = batch.positions <= oldest
            slots, raw = slots[held], raw[held]
            if not slots.size:
                return
        self._largest = max(self._largest, largest)
        self._tree.set(slots, raw**self._sampler.alpha)

    def law(self) -> Floats:
        self._sync()
        ring = self._ring
        positions = np.arange(ring.num_stored)
        p = self._tree.leaves[ring.slots_of(positions)]
        if self._ages is not None:
            p = p * self._ages.of(positions)
        return p / positive_total(self._sampler, float(p.sum()), ring.num_stored)

    def law_key(self) -> object:
        return object()  # priorities change with every batch: no two laws are taken for equal

    def state(self) -> dict[str, Any]:
        if self._ring.restored != self._restored:
            self._sync()
        return {
            **self._tree.state(),
            "largest": self._largest,
            "seen": self._seen,
            "oldest": self._oldest,
            "draws": self._draws,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        capacity = self._ring.capacity
        seen = saved.whole(state, "seen", 0, self._ring.clock)
        oldest = saved.whole(state, "oldest", max(0, seen - capacity), seen)
        largest = saved.real(state, "largest", 1.0, LARGEST)
        draws = saved.whole(state, "draws", 0)
        leaves = saved.array(state, "leaves", np.float64, self._tree.leaves.shape, 0.0, LARGEST)
        held = np.zeros(len(leaves), bool)
        held[np.arange(oldest, seen) % capacity] = True
        if not np.array_equal(leaves > 0, held):
            raise ValueError(
                "the saved 'leaves' must be above 0 for each transition that is held, and 0 for all others"
            )
        self._tree.restore(state)
        self._largest, self._seen, self._draws = largest, seen, draws
        self._oldest, self._restored = oldest, self._ring.restored

    def _sync(self) -> None:
        """Give what was added since the last look the largest priority seen, and what left early none."""
        ring = self._ring
        if ring.restored != self._restored:  # by another view of it: nothing known of its transitions holds
            self._tree.set(np.arange(ring.capacity), np.zeros(ring.capacity))
            self._seen, self._oldest, self._restored = ring.oldest, ring.oldest, ring.restored
        new = min(ring.clock - self._seen, ring.capacity)
        if new:
            slots = np.arange(ring.clock - new, ring.clock) % ring.capacity
            self._tree.set(slots, np.full(new, self._largest**self._sampler.alpha))
            self._seen = ring.clock
        if ring.oldest != self._oldest:
            gone = np.arange(max(self._oldest, ring.clock - ring.capacity), ring.oldest)
            if gone.size:  # they made room for final frames, and were not written over
                self._tree.set(gone % ring.capacity, np.zeros(gone.size))
            self._oldest = ring.oldest

    def _draw_slots(self, rng: np.random.Generator, size: int) -> tuple[Ints, Floats]:
        """Slots and their priorities."""
        tree = self._tree
        if self._ages is not None:
            slots = draw_products(rng, size, self._ring, tree, self._ages)
            return slots, tree.leaves.take(slots)
        return tree.draw(rng, size)
