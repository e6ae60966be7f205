"""Resetting the optimiser when the target changes (Asadi et al. 2023): its moments and its count of steps go to 0.

The moments at which a target changes are those of Double DQN's copy. A target that follows by Polyak averaging has no
such moment: there it is every 1 / tau steps of the network. What surgery leaves of a network is a new problem as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from neoteny.agents.agent import NetworkState, TrainableNetwork
from neoteny.agents.learner import Remedy, Step
from neoteny.errors import UsageError
from neoteny.remedies.config import RemedyConfig
from neoteny.remedies.surgery import cleared

Tree = Any


@dataclass(frozen=True)
class OptimiserReset(RemedyConfig):
    """Optimiser reset (Asadi et al. 2023): moments and count of steps to 0 at each change of the target."""

    name: ClassVar = "optimiser-reset"
    prefix: ClassVar = "optimiser_reset"
    kind: ClassVar = "optimiser"

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""
        return at_changes_of_target(self.name, with_moments=True)

    def check(self, networks: Mapping[str, TrainableNetwork]) -> None:
        """Raise UsageError if it is not known when a network's target changes."""
        check_targets(self.name, networks)


def check_targets(name: str, networks: Mapping[str, TrainableNetwork]) -> None:
    """Raise UsageError if it is not known when a network's target changes. name: of the remedy."""
    for label, network in networks.items():
        if network.target_every is None:
            raise UsageError(
                f"--remedy {name} acts when targets change, and the agent tells no such moment of its {label}"
            )


def at_changes_of_target(name: str, with_moments: bool) -> Remedy:
    """Return the remedy that restarts an optimiser's count of steps at each change of the target, and after surgery.

    Args:
        name: of the remedy.
        with_moments: whether the optimiser's moments go to 0, too.
    """

    def begin(network: TrainableNetwork, params: Tree, key: Array) -> Tree:
        return {"steps": jnp.int32(0)}

    def restarted(own: NetworkState, now: Array) -> NetworkState:
        params = own.params["params"]
        changed = jax.tree.map(lambda leaf: now & with_moments, params)
        return replace(own, opt=cleared(own.opt, params, changed, restart=now))

    def after_step(own: NetworkState, memory: Tree, step: Step) -> tuple[NetworkState, Tree]:
        assert step.network.target_every is not None  # `check_targets` refuses such a network
        steps = (memory["steps"] + 1) % step.network.target_every
        return restarted(own, steps == 0), {"steps": steps}

    def followed(own: NetworkState, memory: Tree, changed: Tree) -> tuple[NetworkState, Tree]:
        touched = jnp.stack([leaf.any() for leaf in jax.tree.leaves(changed)]).any()
        return restarted(own, touched), memory

    return Remedy(name, memory=begin, after_step=after_step, followed=followed)
