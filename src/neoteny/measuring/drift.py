"""Measuring drift: how far what was done at each age is from what would be done now, by one pass of what acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import Array
from numpy.typing import NDArray

from neoteny.agents.agent import Agent
from neoteny.machine.compiled import compiled
from neoteny.plasticity.drift import LEAST, RANGES, SAMPLES, age_ranges, far_share, named
from neoteny.runs.session import Session

Tree = Any


@dataclass(frozen=True, eq=False)
class Measured:
    """The drift of each range of age at one moment."""

    bounds: NDArray[np.int64]
    """Of the ranges, (RANGES + 1,): range r is of the ages bounds[r] + 1 to bounds[r + 1]."""
    distances: NDArray[np.float64]
    """Of what was looked at in each range, (RANGES, SAMPLES)."""

    @property
    def finite(self) -> bool:
        """Whether all of it is finite."""
        return bool(np.isfinite(self.distances).all())

    @property
    def far(self) -> NDArray[np.float64]:
        """The share of each range that is far off."""
        return far_share(self.distances)

    def numbers(self) -> dict[str, float]:
        """What is logged: the mean distance and the far share of each range by its number, the newest 00, and how many
        transitions were stored, from which `age_ranges` has the ages."""
        return named(int(self.bounds[-1]), self.distances.mean(axis=1), self.far)


class Drift:
    """The compiled measurement of one agent.

    What is looked at is drawn by a generator of that moment alone, so that training draws the same with and without it,
    and a resumed run needs no state of it.
    """

    def __init__(self, agent: Agent, unpack: Callable[..., dict[str, Any]], seed: int) -> None:
        self._network = next((network for network in agent.networks.values() if network.drift is not None), None)
        self._unpack = unpack
        self._seed = seed
        self._distances = compiled(self._on_device)

    def measure(self, session: Session, updates: int) -> Measured | None:
        """The drift after `updates` updates; None of an agent that does not say, or while little is stored."""
        num_stored = len(session.buffer)
        if self._network is None or num_stored < LEAST:
            return None
        bounds = age_ranges(num_stored)
        rng = np.random.default_rng([self._seed, 5, updates])
        positions = rng.integers(bounds[:-1, None], bounds[1:, None], (RANGES, SAMPLES))
        drawn = session.buffer.gather(positions.ravel())
        pixels = {name: value[None] for name, value in drawn.pixels.items()}
        distances = self._distances(session.state, drawn.rows[None], pixels, np.float32(session.step))
        return Measured(bounds, np.asarray(distances, np.float64).reshape(RANGES, SAMPLES))

    def _on_device(self, state: Tree, rows: Array, pixels: dict[str, Array], step: Array) -> Array:
        network = self._network
        assert network is not None
        assert network.drift is not None
        batch = {name: value[0] for name, value in self._unpack(rows, pixels).items()}
        outputs = network.forward(getattr(state, network.name).params, state, batch)
        return network.drift(outputs, batch, step)
