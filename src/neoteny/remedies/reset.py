"""Resets (Nikishin et al. 2022): new parameters for every layer, or from one layer on, now and then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from neoteny.agents.agent import NetworkState, TrainableNetwork
from neoteny.agents.learner import Remedy, Surgery
from neoteny.errors import UsageError
from neoteny.networks import Path
from neoteny.remedies.config import RemedyConfig, each
from neoteny.remedies.surgery import change, nothing

Tree = Any


@dataclass(frozen=True)
class Reset(RemedyConfig):
    """Resets (Nikishin et al. 2022)."""

    name: ClassVar = "reset"
    prefix: ClassVar = "reset"
    every: int = 200_000
    """Updates between two resets."""
    from_: str | None = None
    """The layer from which on to reset, such as layer_1, or head for the last layers; everything if not given."""

    def __post_init__(self) -> None:
        self.require("every", self.every >= 1, ">= 1")

    def check(self, networks: Mapping[str, TrainableNetwork]) -> None:
        """Raise UsageError if no network has the layer `from_`."""
        super().check(networks)
        names = layer_names(networks)
        if self.from_ is not None and self.from_ not in names:
            raise UsageError(f"--reset-from must be one of {', '.join(names)}, got {self.from_!r}")

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""

        def surgery(
            network: TrainableNetwork, own: NetworkState, state: Tree, batch: dict[str, Array], key: Array
        ) -> Surgery:
            parts = None if self.from_ is None else network.anatomy.since(self.from_)
            if parts == ():  # this network has no such layer
                return nothing(own)
            return change(network, own, key, lambda params, fresh: reset(params, fresh, parts), restart=True)

        return Remedy(self.name, surgery=surgery, done=each(self.every))


def layer_names(networks: Mapping[str, TrainableNetwork]) -> tuple[str, ...]:
    """What a reset can begin from: the layers of any of these networks, and `head` for the heads of all."""
    names = [name for network in networks.values() for name in network.anatomy.names()]
    return (*dict.fromkeys(name for name in names if name != "head"), "head")


def reset(params: Tree, fresh: Tree, since: tuple[Path, ...] | None) -> tuple[Tree, Tree]:
    """New parameters for all layers, or for those at the paths `since`, and which were changed."""

    def touched(path: Any, leaf: Any) -> Any:
        names = tuple(part.key for part in path)
        return jnp.full(leaf.shape, since is None or any(names[: len(part)] == part for part in since))

    changed = jax.tree_util.tree_map_with_path(touched, params)
    return jax.tree.map(lambda old, new, touch: jnp.where(touch, new, old), params, fresh, changed), changed
