"""A sum tree three levels deep: leaves, nodes of 16 leaves, blocks of 16 nodes. Every operation takes a whole batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from neoteny.replay.ages.ageing import Floats, Ints
from neoteny.replay.ages.laws import search

_SHIFT = 4
FAN = 1 << _SHIFT
BLOCK_SHIFT = 2 * _SHIFT
BLOCK = 1 << BLOCK_SHIFT
_EVEN = 0.15
_ONES = np.ones(FAN)
_PREFIX = np.triu(np.ones((FAN, FAN)))
"""x @ _PREFIX is the running sum of each row of x: five times as fast as cumsum on rows this short."""


class SumTree:
    """Weights of `size` leaves, in float64.

    A sum is always taken anew from what is below it, never corrected by a difference, so it does not drift.
    """

    def __init__(self, size: int) -> None:
        blocks = -(-size // (BLOCK * FAN)) * FAN  # whole rows of blocks, for running_sums
        self.leaves: Floats = np.zeros(blocks * BLOCK)
        self.node_sums: Floats = np.zeros(blocks * FAN)
        self.block_sums: Floats = np.zeros(blocks)
        self._bound = 0.0
        """No node's sum is larger; lowered to the largest now and then."""
        self._sets = 0
        self._rows = np.empty((0, FAN))
        self._sums = np.empty((0, FAN))

    def set(self, leaves: Ints, weights: Floats) -> None:
        """Give `leaves` new weights; of a leaf named twice the last one counts."""
        self.leaves[leaves] = weights
        self._sets += 1
        if len(leaves) * FAN >= len(self.leaves):
            self.node_sums[:] = self.leaves.reshape(-1, FAN) @ _ONES
            self.block_sums[:] = self.node_sums.reshape(-1, FAN) @ _ONES
            self._bound = float(self.node_sums.max())
            return
        nodes = leaves >> _SHIFT
        sums = self._children(self.leaves, nodes).dot(_ONES)
        self.node_sums[nodes] = sums
        blocks = nodes >> _SHIFT
        self.block_sums[blocks] = self._children(self.node_sums, blocks).dot(_ONES)
        self._bound = max(self._bound, float(sums.max()))
        if self._sets % 1_000 == 0:
            self._bound = float(self.node_sums.max())

    def draw(self, rng: np.random.Generator, size: int) -> tuple[Ints, Floats]:
        """Draw leaves in proportion to their weights; the leaves and their weights."""
        even = float(self.block_sums.sum()) / (len(self.node_sums) * self._bound)
        if even > _EVEN:  # then trying nodes at random is faster than searching for them
            u, v = rng.random((2, int(size / even * 1.12) + 16))
            u *= len(self.node_sums)
            tried = u.astype(np.int64)
            v *= self._bound
            nodes = tried[v < self.node_sums.take(tried)]
            if len(nodes) >= size:
                return self._draw_leaves(rng, nodes[:size], rng.random(size))
        return self.draw_by(rng, rng.random((3, size)), running_sums(self.block_sums))

    def draw_by(self, rng: np.random.Generator, u: Floats, sums: Floats) -> tuple[Ints, Floats]:
        """Draw blocks in proportion to the masses whose running sums are `sums`, then leaves in them by weight.

        u: uniform numbers, shape (3, size), drawn from `rng` and used up.
        """
        keys = u[0]
        keys *= sums[-1]
        blocks = search(sums, keys)
        return self._draw_leaves(rng, self._descend(self.node_sums, blocks, u[1]), u[2])

    def _draw_leaves(self, rng: np.random.Generator, nodes: Ints, u: Floats) -> tuple[Ints, Floats]:
        """A leaf of each node, in proportion to its weight."""
        leaves = self._descend(self.leaves, nodes, u)
        weights = self.leaves.take(leaves)
        if not weights.all():  # two running sums, equal but for their rounding, can let a leaf without weight through
            again = np.flatnonzero(weights == 0.0)
            leaves[again], weights[again] = self._draw_leaves(rng, nodes[again], rng.random(again.size))
        return leaves, weights

    def _descend(self, weights: Floats, parents: Ints, u: Floats) -> Ints:
        """One of each parent's children, in proportion to their weights; u is uniform on [0, 1), and used up."""
        sums = self._children(weights, parents).dot(_PREFIX, out=self._sums[: len(parents)])
        u *= sums[:, -1]
        children: Ints = (sums <= u[:, None]).argmin(axis=1)
        children += parents << _SHIFT
        return children

    def _children(self, weights: Floats, parents: Ints) -> Floats:
        """The weights of each parent's children, in an array that the next call writes over."""
        if len(parents) > len(self._rows):
            self._rows, self._sums = np.empty((2, len(parents), FAN))
        return weights.reshape(-1, FAN).take(parents, axis=0, out=self._rows[: len(parents)], mode="clip")

    def state(self) -> dict[str, Any]:
        """All levels: sums taken again could differ in their last bit."""
        return {
            "leaves": self.leaves.copy(),
            "node_sums": self.node_sums.copy(),
            "block_sums": self.block_sums.copy(),
            "bound": self._bound,
            "sets": self._sets,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become the tree that `state` was taken from."""
        for name in ("leaves", "node_sums", "block_sums"):
            getattr(self, name)[:] = state[name]
        self._bound, self._sets = state["bound"], state["sets"]


def running_sums(masses: Floats) -> Floats:
    """The running sums of `masses`: by rows, then over the rows' totals, faster than cumsum."""
    sums: Floats = masses.reshape(-1, FAN).dot(_PREFIX)
    sums[1:] += sums[:-1, -1].cumsum()[:, None]
    return sums.ravel()
