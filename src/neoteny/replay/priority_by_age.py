"""Priority times age weight: exact draws of the product, without looking at every transition.

The youngest, whose weights may differ most from one to the next, are drawn from a table of their products. All
others by block: block mass is the sum of its priorities x the largest weight in it; then by priority within the
block, kept with probability weight / that largest. What is not kept is drawn again from the start, so the law is
exact, and no batch costs time linear in the buffer.

Where most draws are not kept, because large priorities have small weights or none, the blocks in which that happened
are moved into the table; after a few rounds all are. A kept draw has the same law whichever blocks the table holds,
so this may depend on the draws before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from neoteny.replay.ageing import Floats, Ints, Schedule, ages_of, evaluate, positive_total, uses
from neoteny.replay.storage import Ring
from neoteny.replay.sumtree import BLOCK, BLOCK_SHIFT, SumTree, running_sums

YOUNG = 2 * BLOCK
"""How many of the newest transitions are drawn from a table of their own."""
_ROUNDS = 8
"""How often draws that were not kept are made again before every product is computed instead."""
_FEW = 0.25
"""The share of kept draws below which the blocks of those that were not kept are moved into the table."""


class _Proposal(NamedTuple):
    """What draws are first made from: a table of exact products, and blocks by a bound on theirs."""

    positions: Ints
    """Of what the table holds."""
    products: Floats
    """Their products."""
    sums: Floats
    """The running sums of those."""
    bounds: Floats
    """For each block of slots, a bound on the weights of what it holds beyond the table."""
    block_sums: Floats
    """The running sums of the blocks' masses."""
    total: float


def draw_products(rng: np.random.Generator, size: int, ring: Ring, tree: SumTree, ages: AgeWeights) -> Ints:
    """Draw `size` slots in proportion to priority, `tree`'s, x age weight."""

    def propose(positions: Ints, products: Floats, bounds: Floats) -> _Proposal:
        sums, block_sums = products.cumsum(), running_sums(tree.block_sums * bounds)
        total = positive_total(ages.schedule, float(sums[-1] + block_sums[-1]), ring.num_stored)
        return _Proposal(positions, products, sums, bounds, block_sums, total)

    def tabulate(proposal: _Proposal, blocks: Ints) -> _Proposal:
        """Move `blocks` into the table, those that are not in it yet."""
        blocks = blocks[proposal.bounds[blocks] > 0]
        slots = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
        slots = slots[tree.leaves.take(slots) > 0]
        positions = ring.slots_of(slots)  # slots and positions map alike both ways
        old = positions >= YOUNG
        slots, positions = slots[old], positions[old]
        products = tree.leaves.take(slots) * ages.of(positions)
        bounds = proposal.bounds.copy()
        bounds[blocks] = 0.0
        return propose(
            np.concatenate([proposal.positions, positions]), np.concatenate([proposal.products, products]), bounds
        )

    youngest = min(YOUNG, ring.num_stored)
    products = _behind(tree.leaves, ring.head, youngest, ring.capacity) * ages.of_young()
    proposal = propose(np.arange(youngest), products, ages.over_blocks())
    kept: list[Ints] = []
    missing, wanted, tried = size, size + size // 64 + 8, 0
    while True:
        slots, keep = _draw_once(rng, wanted, ring, tree, ages, proposal)
        kept.append(slots[keep])
        missing -= len(kept[-1])
        tried += wanted
        if missing <= 0:
            return (kept[0] if len(kept) == 1 else np.concatenate(kept))[:size]
        if len(kept) == _ROUNDS:
            proposal = tabulate(proposal, proposal.bounds.nonzero()[0])
        elif len(kept[-1]) < _FEW * wanted:
            proposal = tabulate(proposal, np.unique(slots[~keep] >> BLOCK_SHIFT))
        wanted = int(missing * min(1 / _FEW, tried / max(1, size - missing)) * 1.1) + 16


def _draw_once(
    rng: np.random.Generator, size: int, ring: Ring, tree: SumTree, ages: AgeWeights, proposal: _Proposal
) -> tuple[Ints, NDArray[np.bool_]]:
    """Draw slots from a proposal, and which of them are kept."""
    uniforms = rng.random((5, size))
    u = uniforms[0]
    u *= proposal.total
    keep = in_table = u < proposal.sums[-1]
    slots = np.empty(size, np.int64)
    if proposal.block_sums[-1] > 0:
        slots, _ = tree.draw_by(rng, uniforms[1:4], proposal.block_sums)
        positions = ring.slots_of(slots)
        old = positions >= YOUNG
        keep = uniforms[4] * proposal.bounds.take(slots >> BLOCK_SHIFT) < ages.of(positions)
        keep &= old
        keep |= in_table
    from_table = in_table.nonzero()[0]
    drawn = proposal.sums.searchsorted(u.take(from_table), side="right")
    slots[from_table] = ring.slots_of(proposal.positions.take(drawn))
    return slots, keep


class AgeWeights:
    """The weights of a ring's positions under a schedule, and how large they can be in each block of slots."""

    def __init__(self, schedule: Schedule, ring: Ring, num_blocks: int) -> None:
        self.schedule = schedule
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
            return self.schedule.weight(ages)  # every age was checked when the bounds were built
        return evaluate(self.schedule, ages, num_stored=ring.num_stored, clock=ring.clock)

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
