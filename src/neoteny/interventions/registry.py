"""The interventions by name, over an agent's state: every network, its targets by the same draw, its moments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax import Array

from neoteny.agents.agent import Network
from neoteny.interventions.formulas import inject, inject_moments, reset, shrink_perturb
from neoteny.interventions.recycle import recycle, scores_by_activity, scores_by_gradient
from neoteny.interventions.surgery import cleared
from neoteny.networks import Hidden, Path
from neoteny.plasticity.flax import collect

Tree = Any
Change = Callable[[Tree, Tree], tuple[Tree, Tree]]
"""(params, fresh parameters) -> (params, which were changed)"""


@dataclass(frozen=True)
class Intervention:
    """What is done to an agent's state, and when."""

    name: str
    every: int
    """Updates between two, or before the only one."""
    once: bool
    apply: Callable[[Tree, Mapping[str, Network], dict[str, Array], Array], Tree]
    """(state, networks, batch, key) -> state; can be compiled."""

    def due(self, before: int, after: int) -> bool:
        """Whether it is to be done now, if there were `before` updates and are now `after`."""
        return before < self.every <= after if self.once else after // self.every > before // self.every


def make(name: str, numbers: Mapping[str, Any]) -> Intervention:
    """An intervention by its name in `INTERVENTIONS`, with these numbers of its own."""
    every = numbers["every"]
    match name:
        case "regrama" | "redo":
            return Intervention(name, every, False, _recycling(name, numbers["tau"]))
        case "shrink-perturb":
            keep = numbers["lambda"]
            return Intervention(name, every, False, _changing(lambda network: lambda p, f: shrink_perturb(p, f, keep)))
        case "reset":
            return Intervention(name, every, False, _changing(_resetting(numbers["since"])))
        case "injection":
            return Intervention(name, every, True, inject_all)
    raise ValueError(f"there is no intervention {name!r}")


def injected(state: Tree, networks: Mapping[str, Network]) -> bool:
    """Whether plasticity was injected into this state."""
    return any("injected" in getattr(state, network.params) for network in networks.values())


def reset_names(networks: Mapping[str, Network]) -> tuple[str, ...]:
    """What a reset can begin from: the layers of any of these networks, and `head` for the heads of all."""
    names = [name for network in networks.values() for name in network.anatomy.names()]
    return (*dict.fromkeys(name for name in names if name != "head"), "head")


def _resetting(since: str | None) -> Callable[[Network], Change | None]:
    def change(network: Network) -> Change | None:
        parts = None if since is None else network.anatomy.since(since)
        return None if parts == () else lambda params, fresh: reset(params, fresh, parts)

    return change


def _changing(change_of: Callable[[Network], Change | None]) -> Any:
    """What applies the change of each network; one without a change stays as it is, its optimiser too."""

    def apply(state: Tree, networks: Mapping[str, Network], batch: dict[str, Array], key: Array) -> Tree:
        for network, own_key in zip(networks.values(), jax.random.split(key, len(networks)), strict=True):
            change = change_of(network)
            state = state if change is None else _changed(state, network, change, own_key, restart=True)
        return state

    return apply


def _recycling(name: str, tau: float) -> Any:
    score = scores_by_gradient if name == "regrama" else scores_by_activity

    def apply(state: Tree, networks: Mapping[str, Network], batch: dict[str, Array], key: Array) -> Tree:
        began = state  # every network is scored as it was before any was changed
        for network, own_key in zip(networks.values(), jax.random.split(key, len(networks)), strict=True):
            loss_key, fresh_key = jax.random.split(own_key)
            layers = losses_of(began, network, batch, loss_key).layers
            change = _recycling_by(score(layers, network.anatomy.hidden), tau, network.anatomy.hidden)
            state = _changed(state, network, change, fresh_key, restart=False)
        return state

    return apply


def _recycling_by(scores: dict[Path, Array], tau: float, hidden: Sequence[Hidden]) -> Change:
    return lambda params, fresh: recycle(params, fresh, scores, tau, hidden)


def losses_of(state: Tree, network: Network, batch: dict[str, Array], key: Array) -> Any:
    """What passes through a network, forward and back, under its training loss."""
    return collect(
        getattr(state, network.params),
        lambda params: network.forward(params, state, batch),
        lambda outputs: network.loss(outputs, state, batch, key),
    )


def _changed(state: Tree, network: Network, change: Change, key: Array, restart: bool) -> Tree:
    """The state with one network changed, and its targets by the same draw; restart: whether Adam's count restarts."""
    fresh = network.init(key)
    params, changed = change(getattr(state, network.params), fresh)
    targets = {name: change(getattr(state, name), fresh)[0] for name in network.targets}
    opt = cleared(getattr(state, network.optimiser), changed, restart)
    return replace(state, **{network.params: params, network.optimiser: opt, **targets})


def inject_all(state: Tree, networks: Mapping[str, Network], batch: dict[str, Array], key: Array) -> Tree:
    """Inject plasticity into every network, once; the state's shape changes."""
    for network, own_key in zip(networks.values(), jax.random.split(key, len(networks)), strict=True):
        fresh = network.init(own_key)
        anatomy = network.anatomy
        made = {name: inject(getattr(state, name), fresh, anatomy) for name in (network.params, *network.targets)}
        made[network.optimiser] = inject_moments(getattr(state, network.optimiser), anatomy)
        state = replace(state, **jax.tree.map(jax.numpy.copy, made))  # targets and parameters must not share a buffer
    return state
