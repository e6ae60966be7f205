"""n-step returns, summed when a transition is sampled rather than when it is stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neoteny.replay.ageing import Floats, Ints
from neoteny.replay.storage import Layout, Ring

NEEDED = ("reward", "terminated", "truncated")


@dataclass(frozen=True)
class NStep:
    """The returns of a batch: their value, the discount of what follows, and the slot they end in."""

    returns: Floats
    discounts: Floats
    last_slots: Ints


def n_step(ring: Ring, layout: Layout, slots: Ints, n: int, gamma: float) -> NStep:
    """Sum gamma^i reward_i over k <= n transitions of one environment, from each of `slots`.

    A return stops after a terminated or truncated transition, and at the write head; k >= 1 always, so every
    stored transition can be drawn. Its discount is gamma^k. An environment's next transition lies num_envs
    slots further.
    """
    ahead = np.arange(n) * ring.num_envs
    path = (slots[:, None] + ahead) % ring.capacity
    positions = (ring.head - 1 - slots) % ring.capacity
    reward, terminated, truncated = (ring.rows[path, layout.columns[name].start] for name in NEEDED)
    counted = ahead <= positions[:, None]
    going_on = (terminated == 0) & (truncated == 0)
    counted[:, 1:] &= np.logical_and.accumulate(going_on[:, :-1], axis=1)
    counts = counted.sum(axis=1)
    returns = np.where(counted, reward, 0.0) @ gamma ** np.arange(n)
    return NStep(returns, gamma**counts, path[np.arange(len(slots)), counts - 1])
