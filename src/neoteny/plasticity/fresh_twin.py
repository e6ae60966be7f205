"""The fresh-twin gap: whether a network still learns what it is asked to as well as a new one would.

A copy of the present network and new networks of the same architecture are trained for the same updates on the same
batches, each with a new optimiser, and their losses on batches that none of them was trained on are compared: present
over new. Above 1 the present network learns worse than a new one. It has the advantage of what it has learned already,
so that 1 is no natural place for a network that has learned something: a healthy one is below.

This is what the definition shares between frameworks, in NumPy: `flax_twin` and `torch_twin` train the twins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
UPDATES = 1_000
"""Of each twin."""
NEW_NETWORKS = 2
"""New networks, whose mean loss is compared with."""
HELD_OUT = 1_024
"""Transitions that the twins are compared on, at most a quarter of what is stored."""
LEAST = 8
"""Transitions that must be stored."""


class Gap(NamedTuple):
    """What the twins were left with on the held-out batches."""

    gap: float
    """The present network's loss over that of new ones."""
    present: float
    new: float
    """The mean over the new networks."""


class Units(NamedTuple):
    """What both twins learn in: outputs x scale + shift are values."""

    scale: float
    shift: float


def compare(present: Sequence[float], new: Sequence[Sequence[float]]) -> Gap:
    """The gap from the mean losses on each held-out batch, of the present network and of each new one."""
    if not new:
        raise ValueError("new must have at least one network to compare with, got none")
    own, others = float(np.mean(present, dtype=np.float64)), float(np.mean(new, dtype=np.float64))
    return Gap(own / max(others, 1e-30), own, others)


def draw(rng: np.random.Generator, num_stored: int, num_updates: int, batch_size: int) -> tuple[Ints, Ints]:
    """Positions of held-out transitions, (batches, batch_size), and of those trained on, (num_updates, batch_size).

    Held out are as many different ones as fill whole batches, and at most a quarter of what is stored, which are then
    repeated; what is trained on is drawn evenly from the rest.
    """
    batches = max(1, HELD_OUT // batch_size)
    held = np.sort(rng.choice(num_stored, max(1, min(batches * batch_size, num_stored // 4)), replace=False))
    rest = rng.integers(0, num_stored - len(held), (num_updates, batch_size))
    before = np.searchsorted(held - np.arange(len(held)), rest, side="right")  # held-out ones at or below each
    return np.resize(rng.permutation(held), (batches, batch_size)), rest + before


def units_of(targets: NDArray[Any]) -> Units:
    """The spread and the mean of targets; a spread of 1 where they do not vary."""
    spread, mean = float(np.std(targets, dtype=np.float64)), float(np.mean(targets, dtype=np.float64))
    return Units(spread if spread > 1e-6 * (1 + abs(mean)) else 1.0, mean)
