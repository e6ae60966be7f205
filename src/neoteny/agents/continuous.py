"""What agents of continuous actions share: how an actor and critics of observation and action are described."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import optax
from jax import Array

from neoteny.agents.agent import TrainableNetwork, squared_errors, td_target
from neoteny.agents.problem import Problem
from neoteny.networks import anatomy, new_variables, projection

Tree = Any
Forward = Callable[[Tree, Tree, dict[str, Array]], Tree]


class CriticOutputs(NamedTuple):
    """What critics give, and how they learn it."""

    size: int
    """Numbers that each gives for a state and an action."""
    values: Callable[[Array], Array]
    """outputs -> values, (critics, batch)."""
    least: Callable[[Array], Array]
    """outputs -> of each transition those of the critic with the smallest value, (batch, ...)."""
    bootstrap: Callable[[dict[str, Array], float, Array, Array], Array]
    """(batch, gamma, least outputs at the next action, its cost, which is taken off its value) -> what is to be
    learned."""
    losses: Callable[[Array, Array], tuple[Array, dict[str, Array]]]
    """(outputs, what is to be learned) -> the loss of each transition, (batch,), and what `squared_errors` tells."""


VALUES = CriticOutputs(
    1,
    values=lambda values: values,
    least=lambda values: values.min(axis=0),
    bootstrap=lambda batch, gamma, value, cost: td_target(batch, gamma, value - cost),
    losses=squared_errors,
)
"""Critics that give a value, of which the smallest counts, and learn it by squared errors."""


def describe_actor(
    module: nn.Module,
    problem: Problem,
    optimiser: optax.GradientTransformation,
    forward: Forward,
    loss: Callable[..., tuple[Array, dict[str, Array]]],
    value: Callable[[Tree], Array],
    distance: Callable[[Tree, Tree], Array],
    drift: Callable[[Tree, dict[str, Array], Array], Array],
    has_target: bool,
    learning_rate: float,
    tau: float,
) -> TrainableNetwork:
    """Return the description of an actor. value: outputs -> the mean action before its bounds, (batch, actions)."""
    return TrainableNetwork(
        "actor",
        "policy",
        anatomy(module),
        init=lambda key: new_variables(module, key, jnp.zeros((1, *problem.obs_shape))),
        optimiser=optimiser,
        forward=forward,
        loss=loss,
        value=lambda outputs, batch: value(outputs),
        has_target=has_target,
        learning_rate=learning_rate,
        target_every=period(tau),
        acts=True,
        distance=distance,
        drift=drift,
        project=projection(module),
    )


def describe_critics(
    module: nn.Module,
    problem: Problem,
    optimiser: optax.GradientTransformation,
    forward: Forward,
    target: Callable[[Tree, dict[str, Array], Array], Array],
    learning_rate: float,
    tau: float,
    kind: CriticOutputs = VALUES,
) -> TrainableNetwork:
    """Return the description of critics of this kind that learn what target(state, batch, key) tells."""
    obs, action = jnp.zeros((1, *problem.obs_shape)), jnp.zeros((1, problem.num_actions))
    return TrainableNetwork(
        "critics",
        "value",
        anatomy(module),
        init=lambda key: new_variables(module, key, obs, action),
        optimiser=optimiser,
        forward=forward,
        loss=lambda outputs, state, batch, key: kind.losses(outputs, target(state, batch, key)),
        value=lambda outputs, batch: kind.values(outputs).T,
        learning_rate=learning_rate,
        target_every=period(tau),
        distance=lambda outputs, earlier: ((kind.values(outputs) - kind.values(earlier)) ** 2).sum(axis=0),
        project=projection(module),
    )


def period(tau: float) -> int:
    """Return the updates in which a target that moves by tau at each is renewed: 1 / tau."""
    return max(1, round(1 / tau)) if tau > 0 else 1
