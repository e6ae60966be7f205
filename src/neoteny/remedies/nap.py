"""Normalise and project (Lyle et al. 2024): LayerNorm, and every so often each layer back to the norm it began with.

LayerNorm makes a network's output insensitive to the size of the weights before it, so that weights grow, and the same
steps then turn them less and less. The projection

    W <- W |W_0| / |W|        (Frobenius norms; LayerNorm's scale and offset as one vector)

keeps the size, and with it the effective learning rate, what it was. Biases of other layers are left, and so are the
heads of values, whose size must be free to follow the returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from neoteny.agents.agent import NetworkState, TrainableNetwork
from neoteny.agents.learner import Remedy, Surgery
from neoteny.errors import UsageError
from neoteny.networks import Path
from neoteny.remedies.config import RemedyConfig, each
from neoteny.remedies.surgery import at, nothing, put

Tree = Any


@dataclass(frozen=True)
class NaP(RemedyConfig):
    """Normalise and project (Lyle et al. 2024), for networks with LayerNorm."""

    name: ClassVar = "nap"
    prefix: ClassVar = "nap"
    kind: ClassVar = "projection"
    every: int = 10_000
    """Updates between two projections of the weights to the norms that they began with."""

    def __post_init__(self) -> None:
        self.require("every", self.every >= 1, ">= 1")

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""
        return Remedy(self.name, memory=begin, surgery=self._surgery, done=each(self.every), followed=follow)

    def check(self, networks: Mapping[str, TrainableNetwork]) -> None:
        """Raise UsageError if a network has no LayerNorm."""
        for label, network in networks.items():
            params = jax.eval_shape(network.init, jax.random.key(0))["params"]
            if not any("scale" in names for names in together(params).values()):
                raise UsageError(f"--remedy nap needs LayerNorm, and the {label} has none: add --network layernorm")

    def _surgery(
        self, network: TrainableNetwork, own: NetworkState, state: Tree, batch: dict[str, Array], key: Array
    ) -> Surgery:
        """Project a network. To other remedies nothing was changed: no weight begins anew."""
        projected = project(own.params["params"], own.memory[self.name])
        return nothing(own)._replace(own=replace(own, params={**own.params, "params": projected}))


def together(params: Tree, path: Path = ()) -> dict[Path, tuple[str, ...]]:
    """Return which parameters have a norm together, by the path of their layer: a kernel, or a scale and its offset."""
    if not isinstance(params, Mapping):
        return {}
    own = ("kernel",) if "kernel" in params else tuple(name for name in ("scale", "bias") if name in params)
    if "kernel" in params or "scale" in params:
        return {path: own}
    return {layer: names for name, part in params.items() for layer, names in together(part, (*path, name)).items()}


def begin(network: TrainableNetwork, params: Tree, key: Array) -> dict[Path, Array]:
    """Return the norms of a new network, of all layers but the heads of values."""
    left = network.anatomy.heads if network.kind == "value" else ()
    return {path: norm(at(params, path), names) for path, names in together(params).items() if path not in left}


def norm(layer: Mapping[str, Array], names: tuple[str, ...]) -> Array:
    """Return the norm of these parameters of a layer as one vector."""
    return jnp.sqrt(sum((jnp.square(layer[name]).sum() for name in names), jnp.float32(0)))


def project(params: Tree, norms: Mapping[Path, Array]) -> Tree:
    """Return the parameters with these norms. A norm of 0, then or now, cannot be reached by scaling, and is left."""
    for path, names in together(params).items():
        if path in norms:
            layer = at(params, path)
            size = norm(layer, names)
            scale = jnp.where((norms[path] > 0) & (size > 0), norms[path] / size, 1.0)
            params = put(params, path, {**layer, **{name: scale * layer[name] for name in names}})
    return params


def follow(own: NetworkState, memory: Tree, changed: Tree) -> tuple[NetworkState, Tree]:
    """Remember the new norm of layers that somebody's surgery gave new weights, all of them."""
    params = own.params["params"]
    norms = {}
    for path, names in together(params).items():
        if path in memory:
            anew = jnp.stack([at(changed, path)[name].all() for name in names]).all()
            norms[path] = jnp.where(anew, norm(at(params, path), names), memory[path])
    return own, norms
