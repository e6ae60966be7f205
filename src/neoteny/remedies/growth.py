"""Growing critics (FoG, "forget and grow"): one more residual block at set moments, and now and then a reset of all.

The critics are SimBa's, residual blocks with LayerNorm. A new block's kernels are orthogonal of gain sqrt 2, its
target's the same; Adam's moments of it are 0 and its count of steps restarts. The learning rate of the critics is
lr P_0 / P, P their parameters and P_0 those they begin with. A reset gives actor, critics, targets and optimisers as in
a new agent, with the blocks they begin with; the moments of growth count from the last reset (ours), so that critics
grow again after each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from neoteny.agents.agent import Agent, NetworkState, TrainableNetwork, copied
from neoteny.agents.learner import Remedy, Surgery
from neoteny.errors import UsageError
from neoteny.remedies.config import RemedyConfig, at_each
from neoteny.remedies.surgery import cleared, like, nothing

Tree = Any


@dataclass(frozen=True)
class Growth(RemedyConfig):
    """FoG: critics that grow by a residual block at set moments, and resets that take them back to their first size."""

    name: ClassVar = "growth"
    prefix: ClassVar = "growth"
    alone: ClassVar = True
    at: tuple[int, ...] = (50_000, 200_000)
    """Updates since the last reset after which the critics get one more block."""
    reset_at: tuple[int, ...] = (15_000, 50_000, 250_000, 500_000, 750_000)
    """Updates after which actor and critics are reset, the critics to the blocks they began with."""

    def __post_init__(self) -> None:
        for field in ("at", "reset_at"):
            moments = tuple(getattr(self, field))
            object.__setattr__(self, field, moments)
            if any(moment < 1 for moment in moments) or any(late <= early for early, late in pairwise(moments)):
                raise UsageError(
                    f"{self.flag(field)} must be numbers of updates from 1 on, each larger than the one before, got "
                    f"{' '.join(map(str, moments))}"
                )

    def check_agent(self, agent: Agent) -> None:
        """Raise UsageError if no network of the agent has blocks that can be added to."""
        if not any(map(_can_grow, agent.networks.values())):
            raise UsageError("--remedy growth adds residual blocks with LayerNorm to critics: it needs --network simba")

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""
        moments = self.moments()
        return Remedy(
            self.name,
            optimiser=_optimiser,
            surgery=_reset,
            surgery_of=lambda turn: _grow if moments[turn][1] else _reset,
            done=at_each([moment for moment, _ in moments]),
            reshapes=True,
        )

    def moments(self) -> list[tuple[int, bool]]:
        """Return each moment of surgery in its order, and whether the critics grow; else all is reset."""
        events: list[tuple[int, bool]] = []
        for since, until in pairwise([0, *self.reset_at, float("inf")]):
            events += [(int(since), False)] if since else []
            events += [(int(since) + after, True) for after in self.at if since + after < until]
        return events


def _can_grow(network: TrainableNetwork) -> bool:
    """Whether these are critics with SimBa's blocks."""
    return network.kind == "value" and {"norm_0", "expand_0", "compress_0"} <= set(network.anatomy.names())


def _optimiser(network: TrainableNetwork) -> optax.GradientTransformation:
    """The network's own optimiser; if the network can grow, with steps times P_0 / P."""
    if not _can_grow(network):
        return network.optimiser
    first = _size(jax.eval_shape(network.init, jax.random.key(0))["params"])

    def update(steps: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        return jax.tree.map(lambda step: step * (first / _size(steps)), steps), state

    return optax.chain(network.optimiser, optax.GradientTransformation(lambda params: optax.EmptyState(), update))


def _size(params: Tree) -> int:
    """How many parameters there are."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _reset(network: TrainableNetwork, own: NetworkState, state: Tree, batch: dict[str, Array], key: Array) -> Surgery:
    """A new network with a new optimiser."""
    variables = network.init(key)
    target = copied(variables) if network.has_target else None
    new = replace(own, params=variables, target=target, opt=_optimiser(network).init(variables["params"]))
    return Surgery(new, jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), variables["params"]))


def _grow(network: TrainableNetwork, own: NetworkState, state: Tree, batch: dict[str, Array], key: Array) -> Surgery:
    """The critics, and their targets by the same draw, with one more block; other networks as they are."""
    if not _can_grow(network):
        return nothing(own)
    params = own.params["params"]

    def added(tree: Tree, block: Callable[[Tree, Array], Tree]) -> Tree:
        """`tree`, of the parameters' structure, with what `block` makes of each trunk's first block as its last."""
        result = dict(tree)
        for index, (trunk, *_) in enumerate(dict.fromkeys(branch[0] for branch in network.anatomy.branches)):
            result[trunk] = {**tree[trunk], **block(tree[trunk], jax.random.fold_in(key, index))}
        return result

    def new(trunk: Tree, key: Array) -> Tree:
        return new_block(trunk, _blocks(trunk), jax.random.fold_in(key, _blocks(trunk)))

    def filled(value: Any) -> Callable[[Tree, Array], Tree]:
        return lambda trunk, key: jax.tree.map(lambda leaf: jnp.full(leaf.shape, value, leaf.dtype), new(trunk, key))

    changed = added(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, bool), params), filled(True))
    changed = jax.tree.map(lambda leaf: leaf.astype(bool), changed)
    grown = added(params, new)
    is_moments = like(params)
    opt = jax.tree.map(lambda node: added(node, filled(0)) if is_moments(node) else node, own.opt, is_leaf=is_moments)
    larger = NetworkState(
        params={**own.params, "params": grown},
        target=None if own.target is None else {**own.target, "params": added(own.target["params"], new)},
        opt=cleared(opt, grown, changed, restart=True),
        memory=own.memory,
    )
    return Surgery(copied(larger), changed)  # a copy, since the parameters and the target share what is new


def _blocks(trunk: Tree) -> int:
    """How many blocks a trunk has."""
    return sum(name.startswith("expand_") for name in trunk)


def new_block(trunk: Tree, index: int, key: Array) -> Tree:
    """Return the parameters of one more block, called `index`, of the shapes of the first: its kernels orthogonal of
    gain sqrt 2, its LayerNorm as at first, its biases 0."""
    orthogonal = nn.initializers.orthogonal(2.0**0.5)
    keys = dict(zip(("expand", "compress"), jax.random.split(key), strict=True))
    block = {
        f"{part}_{index}": {
            "kernel": orthogonal(own, trunk[f"{part}_0"]["kernel"].shape, jnp.float32),
            "bias": jnp.zeros(trunk[f"{part}_0"]["bias"].shape),
        }
        for part, own in keys.items()
    }
    width = trunk["norm_0"]["scale"].shape
    return {**block, f"norm_{index}": {"scale": jnp.ones(width), "bias": jnp.zeros(width)}}
