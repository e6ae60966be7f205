"""Laws: exact draws of ring positions. What one is, and what all of them share.

Position 0 is the newest transition. With E environments the E transitions of one vector step share an age:
step r (0 the newest) has age 1 + r E. A law draws positions of a ring that holds `num_stored` transitions.
Nothing here depends on how the ring wraps, and no draw costs more than the logarithm of its size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from neoteny.replay.ages.ageing import Floats, Ints


class Law(Protocol):
    """Exact draws of positions, and their probabilities."""

    def positions(self, rng: np.random.Generator, size: int, num_stored: int, clock: int | None) -> Ints:
        """Draw `size` positions, with replacement."""
        ...

    def pmf(self, num_stored: int, clock: int | None) -> Floats:
        """The probability of each position.

        It is computed from the construction that the draws use, not from the schedule's weights, so that
        comparing the two means something.
        """
        ...


def search(sums: Floats, keys: Floats) -> Ints:
    """For each key the first index whose running sum is above it. Keys in order are found several times as fast."""
    order = keys.argsort()
    found = np.empty(len(keys), np.int64)
    found[order] = sums.searchsorted(keys.take(order), side="right")
    return found


def spread(steps: Callable[[int], Ints], rng: np.random.Generator, size: int, num_stored: int, num_envs: int) -> Ints:
    """Positions from draws of vector steps: one of the step's transitions, any as likely.

    If num_envs does not divide num_stored the oldest step is short, and what falls outside is drawn again.
    """
    if num_envs == 1:
        return steps(size)
    positions = steps(size) * num_envs + rng.integers(0, num_envs, size)
    while (outside := np.flatnonzero(positions >= num_stored)).size:
        positions[outside] = steps(outside.size) * num_envs + rng.integers(0, num_envs, outside.size)
    return positions


def per_position(per_step: Floats, num_stored: int, num_envs: int) -> Floats:
    """A law over positions from one over vector steps, the oldest of which may be short."""
    p: Floats = np.repeat(per_step, num_envs)[:num_stored]
    return p / p.sum()
