"""Priorities: prioritised replay, alone or times an age weight, exact and without a Python loop over a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from neoteny.replay.ages.ageing import Floats, Ints, Schedule, ages_of, evaluate, positive_total, uses
from neoteny.replay.batch import Batch
from neoteny.replay.drawing import Draw
from neoteny.replay.sampling import check_schedule_type
from neoteny.replay.storage import Ring
from neoteny.replay.sumtree import BLOCK, BLOCK_SHIFT, SumTree, running_sums

YOUNG = 2 * BLOCK
"""How many of the newest transitions are drawn from a table of their own when ages are weighted."""


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
        if not 0 < self.eps < np.inf:
            raise ValueError(f"PrioritizedSampler: eps must be a finite number > 0, got {self.eps!r}")

    def attach(self, ring: Ring) -> PriorityDrawer:
        """What draws from a buffer's `ring` by this sampler."""
        return PriorityDrawer(self, ring)


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

    def update(self, batch: Batch, errors: ArrayLike) -> None:
        """Give the transitions of a batch new errors; those no longer held are passed over."""
        errors = np.asarray(errors, np.float64)
        if errors.shape != batch.slots.shape:
            raise ValueError(f"one error for each transition drawn: shape {batch.slots.shape}, got {errors.shape}")
        raw = np.abs(errors)
        raw += self._sampler.eps
        if not math.isfinite(largest := float(raw.max())):
            raise ValueError(f"errors must be finite, got {errors[~np.isfinite(errors)][0]}")
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
        return {
            **self._tree.state(),
            "largest": self._largest,
            "seen": self._seen,
            "oldest": self._oldest,
            "draws": self._draws,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._tree.restore(state)
        self._largest, self._seen, self._draws = state["largest"], state["seen"], state["draws"]
        self._oldest, self._restored = state["oldest"], self._ring.restored

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
            slots = self._draw_product(rng, size, self._ages)
            return slots, tree.leaves.take(slots)
        return tree.draw(rng, size)

    def _draw_product(self, rng: np.random.Generator, size: int, ages: AgeWeights) -> Ints:
        """Draws in proportion to priority x age weight.

        The youngest, whose weights may differ most from one to the next, are drawn from a table of their
        products. All others by block: block mass is the sum of its priorities x the largest weight in it;
        then by priority within the block, kept with probability weight / that largest. What is not kept is
        drawn again from the start, so the law is exact, and no batch costs time linear in the buffer.
        """
        ring, tree = self._ring, self._tree
        youngest = min(YOUNG, ring.num_stored)
        young_sums = (_behind(tree.leaves, ring.head, youngest, ring.capacity) * ages.of_young()).cumsum()
        young_mass = float(young_sums[-1])
        bounds = ages.over_blocks()
        old_sums = running_sums(tree.block_sums * bounds)
        old_mass = float(old_sums[-1])
        total = positive_total(self._sampler, young_mass + old_mass, ring.num_stored)
        kept: list[Ints] = []
        missing, wanted, tried = size, size + size // 64 + 8, 0
        while missing > 0:
            uniforms = rng.random((5, wanted))
            u = uniforms[0]
            u *= total
            keep = is_young = u < young_mass
            slots = np.empty(wanted, np.int64)
            if old_mass > 0:
                slots, _ = tree.draw_by(rng, uniforms[1:4], old_sums)
                positions = ring.slots_of(slots)
                old = positions >= YOUNG
                keep = uniforms[4] * bounds.take(slots >> BLOCK_SHIFT) < ages.of(positions)
                keep &= old
                keep |= is_young
            from_table = is_young.nonzero()[0]
            drawn = young_sums.searchsorted(u.take(from_table), side="right")
            slots[from_table] = ring.slots_of(drawn)
            kept.append(slots[keep])
            missing -= len(kept[-1])
            tried += wanted
            if missing == size and tried > 1_000_000:
                self.law()  # raises if nothing that is held can be drawn
            wanted = min(65_536, int(max(missing, 0) * tried / max(1, size - missing) * 1.1) + 16)
        return (kept[0] if len(kept) == 1 else np.concatenate(kept))[:size]


class AgeWeights:
    """The weights of a ring's positions under a schedule, and how large they can be in each block of slots."""

    def __init__(self, schedule: Schedule, ring: Ring, num_blocks: int) -> None:
        self._schedule = schedule
        self._ring = ring
        self._asks = uses(schedule)
        self._built_for: object = None
        self._young: Floats = np.zeros(0)
        self._largest: Floats = np.zeros(0)
        self._bounds: Floats = np.zeros(num_blocks)
        self._bounds_for: object = None

    def of(self, positions: Ints) -> Floats:
        """The age weight of each position."""
        ring = self._ring
        ages = ages_of(positions, ring.num_envs) if ring.num_envs > 1 else positions + 1
        if not self._asks and self._built_for is not None:
            return self._schedule.weight(ages)  # every age was checked when the bounds were built
        return evaluate(self._schedule, ages, num_stored=ring.num_stored, clock=ring.clock)

    def of_young(self) -> Floats:
        """The weights of the youngest positions that are held."""
        self._build()
        return self._young[: self._ring.num_stored]

    def over_blocks(self) -> Floats:
        """For each block of slots, a bound on the weights of what it holds beyond the youngest.

        A block holds BLOCK positions in a row, from anywhere: the largest weight of the two aligned runs of
        BLOCK positions that it can touch bounds it. The block of the write head holds newest and oldest.
        """
        self._build()
        ring = self._ring
        held_runs = -(-ring.num_stored // BLOCK)
        newest = ring.head - 1  # slot s is at position newest - s, or capacity more if that is negative
        oldest = (newest + ring.capacity) // BLOCK
        key = (held_runs, newest // BLOCK, oldest)
        if key != self._bounds_for:
            largest = self._largest.copy()
            largest[held_runs:] = 0.0
            pairs = np.maximum(largest, np.concatenate([largest[:1], largest[:-1]]))
            blocks = -(-ring.capacity // BLOCK)
            split = max(newest, 0) // BLOCK
            self._bounds[:] = 0.0
            self._bounds[split:blocks] = pairs[oldest - (blocks - 1) : oldest - split + 1][::-1]
            if newest >= 0:
                self._bounds[split] = max(self._bounds[split], pairs[0])
                self._bounds[:split] = pairs[1 : split + 1][::-1]
            self._bounds_for = key
        return self._bounds

    def _build(self) -> None:
        ring = self._ring
        now = {"num_stored": ring.num_stored, "clock": ring.clock}
        key = tuple(now[name] for name in self._asks)
        if key != self._built_for:
            runs = ring.capacity // BLOCK + 2
            # A schedule of the size is asked of no older age than is held; one of the age alone of every age once.
            oldest = (ring.num_stored if self._asks else ring.capacity) - 1
            weights = self.of(np.minimum(np.arange(max(YOUNG, runs * BLOCK)), oldest))
            self._young = weights[:YOUNG].copy()
            weights[:YOUNG] = 0.0
            self._largest = weights[: runs * BLOCK].reshape(runs, BLOCK).max(axis=1)
            self._built_for = key
            self._bounds_for = None


def _behind(values: Floats, head: int, count: int, capacity: int) -> Floats:
    """The last `count` of a ring's values, the newest first."""
    if head >= count:
        return values[head - count : head][::-1]
    return np.concatenate([values[:head][::-1], values[capacity - (count - head) : capacity][::-1]])
