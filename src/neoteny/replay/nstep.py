"""n-step returns, summed when a transition is sampled rather than when it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from neoteny.replay.ages.ageing import Floats, Ints
from neoteny.replay.storage import Field, Layout, Ring, require_scalars

NEEDED = ("reward", "terminated", "truncated")


def check_n_step(n_step: int, gamma: float | None, fields: Mapping[str, Field | tuple[int, ...]]) -> None:
    """Refuse what cannot be summed."""
    if n_step < 1:
        raise ValueError(f"n_step must be >= 1, got {n_step}")
    if gamma is not None and not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be in [0, 1], got {gamma}")
    if n_step > 1:
        if gamma is None:
            raise ValueError(f"n_step={n_step} needs gamma, the discount of each further reward")
        require_scalars(fields, NEEDED, f"n_step={n_step}")
    if gamma is not None and "discount" in fields:
        raise ValueError("with gamma the buffer makes the field 'discount' itself; leave it out of fields")


@dataclass(frozen=True)
class NStep:
    """The returns of a batch: their value, the discount of what follows, and where they end."""

    returns: Floats
    discounts: Floats
    last_slots: Ints
    further: Ints
    """How many transitions after the first, over all environments, the last one was added."""


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
    last = counts - 1
    return NStep(returns, gamma**counts, path[np.arange(len(slots)), last], last * ring.num_envs)
