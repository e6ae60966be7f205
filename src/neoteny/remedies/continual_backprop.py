"""Continual backprop (Dohare et al. 2024): at every update, a few of the least useful hidden units are replaced.

The utility of a unit is a running mean of how much it contributes to the layers that read it,

    u <- decay u + (1 - decay) mean |h| mean |w_out|,

over the batch of the update and over its outgoing weights, divided by 1 - decay^age. Units older than `maturity`
updates may be replaced: `rate` times their number is added to what the layer owes, and as many whole units as it owes,
those of least utility, get new weights into them and none out of them. A convolution's channel that is read flat
contributes at each position; the mean over positions counts, as in the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.random import key_data

from neoteny.agents.agent import NetworkState, TrainableNetwork
from neoteny.agents.learner import Remedy, Step
from neoteny.networks import HiddenLayer
from neoteny.remedies.config import RemedyConfig
from neoteny.remedies.recycling import renew_units
from neoteny.remedies.surgery import at, change

Tree = Any


@dataclass(frozen=True)
class ContinualBackprop(RemedyConfig):
    """Continual backprop (Dohare et al. 2024): replace the least useful units, a few at every update."""

    name: ClassVar = "continual-backprop"
    prefix: ClassVar = "cbp"
    rate: float = 1e-4
    """Units that continual backprop replaces at each update, as a share of a layer's mature ones; fractions add up."""
    maturity: int = 10_000
    """Updates after which a unit is mature."""
    decay: float = 0.99
    """What a unit's utility keeps of itself at each update."""

    def __post_init__(self) -> None:
        self.require("rate", 0 < self.rate <= 1, "in (0, 1]")
        self.require("maturity", self.maturity >= 0, ">= 0")
        self.require("decay", 0 <= self.decay < 1, "in [0, 1)")

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""

        def after_step(own: NetworkState, memory: Tree, step: Step) -> tuple[NetworkState, Tree]:
            memory = self._remember(own, memory, step)
            due = {path: jnp.floor(owed) for path, owed in memory["owed"].items()}
            memory = {**memory, "owed": {path: owed - due[path] for path, owed in memory["owed"].items()}}
            # New parameters are costly: they are drawn only if a unit is due.
            return jax.lax.cond(
                jnp.stack(list(due.values())).max() >= 1,
                lambda own, memory: self._replace(step.network, own, memory, due),
                lambda own, memory: (own, memory),
                own,
                memory,
            )

        return Remedy(self.name, memory=begin, after_step=after_step, followed=restart)

    def _remember(self, own: NetworkState, memory: Tree, step: Step) -> Tree:
        """Return the memory in which every unit is an update older, and its layer owes for those that are mature."""
        utility, age, owed = {}, {}, {}
        for layer in step.network.anatomy.hidden:
            path = layer.incoming
            new = contribution(own.params["params"], layer, step.hidden[path].activations, memory["age"][path].shape[0])
            utility[path] = self.decay * memory["utility"][path] + (1.0 - self.decay) * new
            age[path] = memory["age"][path] + 1
            owed[path] = memory["owed"][path] + self.rate * (age[path] > self.maturity).sum()
        return {**memory, "utility": utility, "age": age, "owed": owed}

    def _replace(
        self, network: TrainableNetwork, own: NetworkState, memory: Tree, due: dict[Any, Array]
    ) -> tuple[NetworkState, Tree]:
        """Replace the `due` mature units of least utility in each layer."""
        key, draw = jax.random.split(memory["key"])
        flagged = {}
        for path, age in memory["age"].items():
            corrected = memory["utility"][path] / (1.0 - self.decay ** age.astype(jnp.float32))
            order = jnp.argsort(jnp.where(age > self.maturity, corrected, jnp.inf))  # of equals the first comes first
            flagged[path] = jnp.argsort(order) < due[path]
        own, _ = change(
            network,
            own,
            draw,
            lambda params, fresh: renew_units(params, fresh, flagged, network.anatomy.hidden),
            restart=False,
        )
        return own, {**_forgetting(memory, flagged), "key": key}


def begin(network: TrainableNetwork, params: Tree, key: Array) -> Tree:
    """What is remembered of a new network: of each hidden unit its utility and its age, of each layer what it owes."""
    units = {layer.incoming: at(params, layer.incoming)["kernel"].shape[-1] for layer in network.anatomy.hidden}
    return {
        "utility": {path: jnp.zeros(count) for path, count in units.items()},
        "age": {path: jnp.zeros(count, jnp.int32) for path, count in units.items()},
        "owed": {path: jnp.zeros(()) for path in units},
        "key": key_data(key),
    }


def contribution(params: Tree, layer: HiddenLayer, activations: Array, units: int) -> Array:
    """mean |h| mean |w_out| of each unit of a layer.

    Args:
        params: of the network.
        layer: the layer.
        activations: what its readers are given, samples first.
        units: how many it has.
    """
    kernels = [at(params, reader)["kernel"] for reader in layer.outgoing]
    rows = kernels[0].shape[-2]
    weights = jnp.concatenate([jnp.moveaxis(kernel, -2, 0).reshape(rows, -1) for kernel in kernels], axis=1)
    inputs = jnp.abs(activations).reshape(-1, rows)
    # Means by products, which are far faster on the CPU than sums.
    mean_input = jnp.full(inputs.shape[0], 1.0 / inputs.shape[0]) @ inputs
    mean_weight = jnp.abs(weights) @ jnp.full(weights.shape[1], 1.0 / weights.shape[1])
    return (mean_input * mean_weight).reshape(-1, units).mean(axis=0)


def restart(own: NetworkState, memory: Tree, changed: Tree) -> tuple[NetworkState, Tree]:
    """Forget the utility and the age of units that somebody's surgery gave new incoming weights, all of them."""
    kernels = {path: at(changed, path)["kernel"] for path in memory["age"]}
    flagged = {path: kernel.all(axis=tuple(range(kernel.ndim - 1))) for path, kernel in kernels.items()}
    return own, _forgetting(memory, flagged)


def _forgetting(memory: Tree, flagged: dict[Any, Array]) -> Tree:
    """Set utility and age of the flagged units to 0."""
    return {
        **memory,
        "utility": {path: jnp.where(flagged[path], 0.0, value) for path, value in memory["utility"].items()},
        "age": {path: jnp.where(flagged[path], 0, value) for path, value in memory["age"].items()},
    }
