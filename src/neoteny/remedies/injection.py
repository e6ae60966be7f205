"""Plasticity injection (Nikishin et al. 2023): a new tail learns beside the old one, which is frozen.

The output becomes h_theta + h_theta1 - h_theta2 from the last block to the heads, theta1 = theta2 = new, so that it
does not change at first. The trained parameters then have theta1 as their tail; theta's own tail and theta2 are
constants beside them, in a collection of Flax variables that this file alone knows. On a last linear layer alone (the
paper's wording) injection would only re-parametrise it, so the last block is part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from neoteny.agents.agent import NetworkState, TrainableNetwork, copied
from neoteny.agents.learner import Remedy, Surgery
from neoteny.networks import Path
from neoteny.remedies.config import RemedyConfig, once
from neoteny.remedies.surgery import at, cleared, put

Tree = Any
NAME = "injection"
"""Of the remedy, and of its collection of constants."""


@dataclass(frozen=True)
class Injection(RemedyConfig):
    """Plasticity injection (Nikishin et al. 2023), once in a run."""

    name: ClassVar = NAME
    prefix: ClassVar = "injection"
    at: int | None = None
    """Updates before the injection; half of the run's if not given."""

    def __post_init__(self) -> None:
        self.require("at", self.at is None or self.at >= 1, ">= 1")

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy; without `at` it acts after half of the planned updates."""
        moment = half_of(planned_updates) if self.at is None else self.at
        return Remedy(NAME, surgery=inject, done=once(moment), reshapes=True, apply=apply)

    def canonical(self, planned_updates: int) -> dict[str, Any]:
        """Return the fields that differ from their defaults; half of the run is the default of `at`."""
        return {} if self.at in (None, half_of(planned_updates)) else {"at": self.at}


def half_of(planned_updates: int) -> int:
    """The moment of the injection if none is given."""
    return max(1, planned_updates // 2)


def inject(network: TrainableNetwork, own: NetworkState, state: Tree, batch: dict[str, Array], key: Array) -> Surgery:
    """A network, and its target by the same draw, with a new tail; Adam's moments of the tail and its count restart."""
    if NAME in own.params:
        raise ValueError("plasticity was injected already: it is done once")
    fresh = network.init(key)["params"]
    tail = network.anatomy.since(network.anatomy.last_block)
    changed = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, bool), own.params["params"])
    for path in tail:
        changed = put(changed, path, jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), at(changed, path)))
    made = NetworkState(
        params=_with_new_tail(own.params, fresh, tail),
        target=None if own.target is None else _with_new_tail(own.target, fresh, tail),
        opt=cleared(own.opt, own.params["params"], changed, restart=True),
        memory=own.memory,
    )
    return Surgery(copied(made), changed)  # a copy, since the parameters and the target share what is new


def apply(module: Any, variables: Tree, *inputs: Array) -> Any:
    """The output of a network with injected plasticity. The three passes share all that comes before their tails."""
    constants = jax.lax.stop_gradient(variables[NAME])
    params = variables["params"]
    trained = module.apply({"params": params}, *inputs)  # first: it is the one whose layers are measured
    kept, taken = (module.apply({"params": _merged(params, constants[part])}, *inputs) for part in ("kept", "taken"))
    return jax.tree.map(lambda h, new, old: h + new - old, kept, trained, taken)


def _with_new_tail(variables: Tree, fresh: Tree, tail: tuple[Path, ...]) -> Tree:
    kept: Tree = {}
    taken: Tree = {}
    params = variables["params"]
    for path in tail:
        kept = put(kept, path, at(params, path))
        taken = put(taken, path, at(fresh, path))
        params = put(params, path, at(fresh, path))
    return {**variables, "params": params, NAME: {"kept": kept, "taken": taken}}


def _merged(params: Tree, part: Tree) -> Tree:
    """`params` with the leaves of `part`, a tree of the same names, in the place of its own."""
    return {
        **params,
        **{name: _merged(params[name], value) if isinstance(value, dict) else value for name, value in part.items()},
    }
