"""Shrink and perturb (Ash & Adams 2020): every weight is moved towards a new random one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from neoteny.agents.agent import NetworkState, TrainableNetwork
from neoteny.agents.learner import Remedy, Surgery
from neoteny.remedies.config import RemedyConfig, each
from neoteny.remedies.surgery import change

Tree = Any


@dataclass(frozen=True)
class ShrinkPerturb(RemedyConfig):
    """Shrink and perturb (Ash & Adams 2020)."""

    name: ClassVar = "shrink-perturb"
    prefix: ClassVar = "shrink"
    lambda_: float = 0.8
    """What shrink-perturb keeps of the weights; the rest is new."""
    every: int = 100_000
    """Updates between two shrink-perturb."""

    def __post_init__(self) -> None:
        self.require("lambda_", 0 <= self.lambda_ <= 1, "in [0, 1]")
        self.require("every", self.every >= 1, ">= 1")

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""

        def surgery(
            network: TrainableNetwork, own: NetworkState, state: Tree, batch: dict[str, Array], key: Array
        ) -> Surgery:
            return change(
                network, own, key, lambda params, fresh: shrink_perturb(params, fresh, self.lambda_), restart=True
            )

        return Remedy(self.name, surgery=surgery, done=each(self.every))


def shrink_perturb(params: Tree, fresh: Tree, keep: float) -> tuple[Tree, Tree]:
    """theta <- keep theta + (1 - keep) theta_fresh, heads included, and which were changed.

    Kernels and biases; LayerNorm's scales are left.
    """
    changed = jax.tree_util.tree_map_with_path(lambda path, leaf: jnp.full(leaf.shape, path[-1].key != "scale"), params)
    mixed = jax.tree.map(
        lambda old, new, touch: jnp.where(touch, keep * old + (1.0 - keep) * new, old), params, fresh, changed
    )
    return mixed, changed
