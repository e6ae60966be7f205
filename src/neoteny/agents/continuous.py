"""What agents of continuous actions share: how an actor and critics of observation and action are described."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import optax
from jax import Array

from neoteny.agents.agent import TrainableNetwork, squared_errors
from neoteny.agents.problem import Problem
from neoteny.networks import anatomy, new_variables, projection

Tree = Any
Forward = Callable[[Tree, Tree, dict[str, Array]], Tree]


def describe_actor(
    module: nn.Module,
    problem: Problem,
    optimiser: optax.GradientTransformation,
    forward: Forward,
    loss: Callable[..., tuple[Array, dict[str, Array]]],
    value: Callable[[Tree], Array],
    distance: Callable[[Tree, Tree], Array],
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
) -> TrainableNetwork:
    """Return the description of critics that learn y = target(state, batch, key) by squared errors."""
    obs, action = jnp.zeros((1, *problem.obs_shape)), jnp.zeros((1, problem.num_actions))
    return TrainableNetwork(
        "critics",
        "value",
        anatomy(module),
        init=lambda key: new_variables(module, key, obs, action),
        optimiser=optimiser,
        forward=forward,
        loss=lambda values, state, batch, key: squared_errors(values, target(state, batch, key)),
        value=lambda values, batch: values.T,
        learning_rate=learning_rate,
        target_every=period(tau),
        distance=lambda values, earlier: ((values - earlier) ** 2).sum(axis=0),
        project=projection(module),
    )


def period(tau: float) -> int:
    """Return the updates in which a target that moves by tau at each is renewed: 1 / tau."""
    return max(1, round(1 / tau)) if tau > 0 else 1
