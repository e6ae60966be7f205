"""Resets (Nikishin et al. 2022): new parameters for all layers, or from one on, every so often or at set moments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from neoteny.agents.agent import Agent, NetworkState, TrainableNetwork
from neoteny.agents.learner import Remedy, Surgery
from neoteny.errors import UsageError
from neoteny.networks import Path
from neoteny.remedies.config import RemedyConfig, at_each, each
from neoteny.remedies.surgery import change, nothing

Tree = Any
USUAL_EVERY = 200_000
"""Updates between two resets, if nothing else is asked for."""


@dataclass(frozen=True)
class Reset(RemedyConfig):
    """Resets (Nikishin et al. 2022)."""

    name: ClassVar = "reset"
    prefix: ClassVar = "reset"
    every: int | None = None
    """Updates between two resets; 200,000 if no moments are given by --reset-at."""
    from_: str | None = None
    """The layer from which on to reset, such as layer_1, or head for the last layers; everything if not given."""
    at: tuple[int, ...] = ()
    """Updates after which to reset, such as 15000 50000 250000, and not at other times."""
    alpha: bool = False
    """Whether a reset also begins sac's alpha and its optimiser anew."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", tuple(self.at))
        if self.at and self.every is not None:
            raise UsageError(
                f"--reset-every {self.every} and --reset-at {_words(self.at)} both say when to reset: give one of them"
            )
        if not self.at and self.every is None:
            object.__setattr__(self, "every", USUAL_EVERY)
        self.require("every", self.every is None or self.every >= 1, ">= 1")
        if any(moment < 1 for moment in self.at) or any(late <= early for early, late in pairwise(self.at)):
            raise UsageError(
                f"--reset-at must be numbers of updates from 1 on, each larger than the one before, got "
                f"{_words(self.at)}"
            )

    def check(self, networks: Mapping[str, TrainableNetwork]) -> None:
        """Raise UsageError if no network has the layer `from_`."""
        super().check(networks)
        names = layer_names(networks)
        if self.from_ is not None and self.from_ not in names:
            raise UsageError(f"--reset-from must be one of {', '.join(names)}, got {self.from_!r}")

    def check_agent(self, agent: Agent) -> None:
        """Raise UsageError if the agent's networks lack the layer `from_`, or if it trains no alpha to reset."""
        super().check_agent(agent)
        if self.alpha and agent.renew is None:
            raise UsageError(
                "--reset-alpha is for an agent that trains an alpha, as sac does unless --no-tune-alpha is given, and "
                "this one trains none: leave it out"
            )

    def canonical(self, planned_updates: int) -> dict[str, Any]:
        """Return the fields that differ from their defaults, of which `every` has a number."""
        fields = super().canonical(planned_updates)
        return {name: value for name, value in fields.items() if (name, value) != ("every", USUAL_EVERY)}

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""

        def surgery(
            network: TrainableNetwork, own: NetworkState, state: Tree, batch: dict[str, Array], key: Array
        ) -> Surgery:
            parts = None if self.from_ is None else network.anatomy.since(self.from_)
            if parts == ():  # this network has no such layer
                return nothing(own)
            return change(network, own, key, lambda params, fresh: reset(params, fresh, parts), restart=True)

        done = at_each(self.at) if self.every is None else each(self.every)
        return Remedy(self.name, surgery=surgery, done=done, renews=self.alpha)


def _words(moments: tuple[int, ...]) -> str:
    """The moments as they are written on the command line."""
    return " ".join(map(str, moments))


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
