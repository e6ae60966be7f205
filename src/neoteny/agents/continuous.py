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
from neoteny.networks import anatomy

Tree = Any
Forward = Callable[[Tree, Tree, dict[str, Array]], Tree]


def describe_actor(
    module: nn.Module,
    problem: Problem,
    optimiser: optax.GradientTransformation,
    forward: Forward,
    loss: Callable[..., tuple[Array, dict[str, Array]]],
    value: Callable[[Tree], Array],
    has_target: bool,
) -> TrainableNetwork:
    """Return the description of an actor. value: outputs -> the mean action before its bounds, (batch, actions)."""
    return TrainableNetwork(
        "actor",
        "policy",
        anatomy(module),
        init=lambda key: module.init(key, jnp.zeros((1, *problem.obs_shape))),
        optimiser=optimiser,
        forward=forward,
        loss=loss,
        value=lambda outputs, batch: value(outputs),
        has_target=has_target,
    )


def describe_critics(
    module: nn.Module,
    problem: Problem,
    optimiser: optax.GradientTransformation,
    forward: Forward,
    target: Callable[[Tree, dict[str, Array], Array], Array],
) -> TrainableNetwork:
    """Return the description of critics that learn y = target(state, batch, key) by squared errors."""
    obs, action = jnp.zeros((1, *problem.obs_shape)), jnp.zeros((1, problem.num_actions))
    return TrainableNetwork(
        "critics",
        "value",
        anatomy(module),
        init=lambda key: module.init(key, obs, action),
        optimiser=optimiser,
        forward=forward,
        loss=lambda values, state, batch, key: squared_errors(values, target(state, batch, key)),
        value=lambda values, batch: values.T,
    )
