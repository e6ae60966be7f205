"""UPGD, utility-based perturbed gradient descent (Elsayed & Mahmood 2024), in the form with Adam of its RL runs.

The utility of a weight is a running mean of how much the loss would rise, to first order, if the weight were 0,

    U <- decay U + (1 - decay) (-g w),        s = sigma(U / max U),

with the maximum over all weights of the network. Useful weights are protected from the step and from noise alike:

    w <- (1 - lr rho) w - 2 lr (1 - s) (m / (sqrt(v) + eps) + xi),        xi ~ N(0, sigma^2),

where m and v are Adam's moments, bias-corrected. The utility's own correction, 1 / (1 - decay^t), is in U and in max U,
and cancels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from neoteny.agents.agent import TrainableNetwork
from neoteny.agents.configs import AgentConfig
from neoteny.agents.learner import Remedy
from neoteny.errors import UsageError
from neoteny.remedies.config import RemedyConfig

Tree = Any
BETA1, BETA2, EPS = 0.9, 0.999, 1e-5
"""Of Adam, as the authors' RL runs have them."""
_LEAST = 1e-30
"""What stands for the largest utility where no weight has a positive one."""


@dataclass(frozen=True)
class UPGD(RemedyConfig):
    """UPGD (Elsayed & Mahmood 2024): small steps and little noise for useful weights, large ones for the others."""

    name: ClassVar = "upgd"
    prefix: ClassVar = "upgd"
    kind: ClassVar = "optimiser"
    decay: float = 0.999
    """What a weight's utility keeps of itself at each update."""
    sigma: float = 1e-3
    """Standard deviation of UPGD's noise, in units of twice the learning rate."""
    weight_decay: float = 1e-3
    """UPGD's weight decay, which takes the place of the agent's own."""

    def __post_init__(self) -> None:
        self.require("decay", 0 <= self.decay < 1, "in [0, 1)")
        self.require("sigma", 0 <= self.sigma < float("inf"), "a finite number >= 0")
        self.require("weight_decay", 0 <= self.weight_decay < float("inf"), "a finite number >= 0")

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy: the optimiser that takes the place of the network's own, at its learning rate."""

        def optimiser(network: TrainableNetwork) -> optax.GradientTransformation:
            assert network.learning_rate is not None  # `check` refuses such a network
            return upgd(network.learning_rate, self.decay, self.sigma, self.weight_decay)

        return Remedy(self.name, optimiser=optimiser)

    def check(self, networks: Mapping[str, TrainableNetwork]) -> None:
        """Raise UsageError if the learning rate of a network is not known."""
        for label, network in networks.items():
            if network.learning_rate is None:
                raise UsageError(f"--remedy upgd needs a learning rate, and the agent tells none for its {label}")

    def check_settings(self, agent: AgentConfig) -> None:
        """Raise UsageError if the agent is given a weight decay or a schedule, which would not be used."""
        if (lr_end := getattr(agent, "lr_end", None)) is not None:
            raise UsageError(
                f"--lr-end {lr_end} is of the agent's own optimiser, which --remedy upgd replaces: give --lr-end None"
            )
        usual = getattr(type(agent), "weight_decay", None)
        if (decay := getattr(agent, "weight_decay", None)) != usual:
            raise UsageError(
                f"--weight-decay {decay} is of the agent's own optimiser, which --remedy upgd replaces: give "
                f"{self.flag('weight_decay')} instead"
            )


class State(NamedTuple):
    """What UPGD remembers of a network."""

    steps: Array
    """How many it has made."""
    mu: Tree
    nu: Tree
    utility: Tree
    key: Array


def upgd(
    learning_rate: float, decay: float = 0.999, sigma: float = 1e-3, weight_decay: float = 1e-3
) -> optax.GradientTransformation:
    """Return UPGD's Adam form as an Optax optimiser.

    Args:
        learning_rate: lr.
        decay: of the utility.
        sigma: standard deviation of the noise.
        weight_decay: rho.
    """

    def init(params: Tree) -> State:
        mu, nu, utility = (jax.tree.map(jnp.zeros_like, params) for _ in range(3))
        return State(jnp.int32(0), mu, nu, utility, first_key(params))

    def update(grads: Tree, state: State, params: Tree | None = None) -> tuple[Tree, State]:
        if params is None:
            raise ValueError("UPGD needs the parameters: call update(grads, state, params)")
        steps = state.steps + 1
        mu = jax.tree.map(lambda m, g: BETA1 * m + (1.0 - BETA1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: BETA2 * v + (1.0 - BETA2) * g**2, state.nu, grads)
        utility = jax.tree.map(lambda u, g, w: decay * u - (1.0 - decay) * g * w, state.utility, grads, params)
        largest = jnp.maximum(jnp.stack([u.max() for u in jax.tree.leaves(utility)]).max(), _LEAST)
        key, draw = jax.random.split(state.key)
        # 1 - beta^steps, in a form that keeps its digits where beta^steps is near 1
        corrections = tuple(-jnp.expm1(steps * math.log(beta)) for beta in (BETA1, BETA2))

        def step(w: Array, m: Array, v: Array, u: Array, noise: Array) -> Array:
            adam = (m / corrections[0]) / (jnp.sqrt(v / corrections[1]) + EPS)
            free = jax.nn.sigmoid(-u / largest)  # 1 - s
            return -learning_rate * (weight_decay * w + 2.0 * free * (adam + sigma * noise))

        updates = jax.tree.map(step, params, mu, nu, utility, normal_like(draw, params))
        return updates, State(steps, mu, nu, utility, key)

    return optax.GradientTransformation(init, update)


def first_key(params: Tree) -> Array:
    """Return a random key made from the bits of new parameters: these were drawn from the run's seed."""
    bits = [jax.lax.bitcast_convert_type(leaf, jnp.uint32).sum() for leaf in jax.tree.leaves(params)]
    return jax.random.key_data(jax.random.fold_in(jax.random.key(0), sum(bits)))


def normal_like(key: Array, params: Tree) -> Tree:
    """Draw a standard normal for every parameter, all at once."""
    leaves, structure = jax.tree.flatten(params)
    ends = [sum(leaf.size for leaf in leaves[: index + 1]) for index in range(len(leaves))]
    drawn = jnp.split(jax.random.normal(key, (ends[-1],)), ends[:-1])
    return jax.tree.unflatten(structure, [part.reshape(leaf.shape) for part, leaf in zip(drawn, leaves, strict=True)])
