"""L2-init, regenerative regularisation (Kumar et al. 2023): the parameters stay near those that the network began with.

Added to the loss of every network is

    strength / 2 sum ||theta - theta_0||^2

over kernels and biases, heads too; the parameters of normalisation layers are left out, as in the authors' code,
https://github.com/skumar9876/L2_Init, with which they swept strengths from 1e-2 to 1e-5. What a remedy re-initialises
gets its new values as theta_0 (ours). Units that continual backprop replaces keep their theta_0, which a new network
drew as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from neoteny.agents.agent import NetworkState, TrainableNetwork
from neoteny.agents.learner import Remedy, Step
from neoteny.remedies.config import RemedyConfig
from neoteny.remedies.surgery import renewed

Tree = Any


@dataclass(frozen=True)
class L2Init(RemedyConfig):
    """L2-init (Kumar et al. 2023): the parameters stay near those at the beginning."""

    name: ClassVar = "l2-init"
    prefix: ClassVar = "l2_init"
    kind: ClassVar = "penalty"
    strength: float = 1e-3
    """Strength of L2-init; 0 for none."""

    def __post_init__(self) -> None:
        self.require("strength", 0 <= self.strength < float("inf"), "a finite number >= 0")

    def check(self, networks: Mapping[str, TrainableNetwork]) -> None:
        """Accept every network: its layers need not be known."""

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""
        if self.strength == 0:
            return Remedy(self.name)

        def penalty(params: Tree, outputs: Tree, memory: Tree, step: Step) -> Array:
            return 0.5 * self.strength * squared_distance(params, memory)

        def followed(own: NetworkState, memory: Tree, changed: Tree) -> tuple[NetworkState, Tree]:
            return own, renewed(memory, own, changed)

        return Remedy(self.name, memory=lambda network, params, key: params, penalty=penalty, followed=followed)


def squared_distance(params: Tree, others: Tree) -> Array:
    """The sum of (theta - theta_0)^2 over two trees; layers with a scale, those that normalise, count nothing."""
    if not isinstance(params, Mapping):
        difference = (params - others).ravel()
        return difference @ difference
    if "scale" in params:
        return jnp.zeros(())
    return sum((squared_distance(params[name], others[name]) for name in params), jnp.zeros(()))
