"""Trainability: plasticity measured directly, by how well a network's present weights can still be trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

Tree = Any


def loss_after(params: Tree, function: Callable[[Tree], Array], target: Array, steps: int, lr: float) -> Array:
    """The mean squared error left after `steps` of Adam on the change that `target` asks for.

    function(params) -> (batch, values). The loss is the mean of (f(theta) - f(theta_0) - target)^2: what is measured is
    whether outputs can be moved, and not how far from the target they happened to begin.
    """
    adam = optax.adam(lr)
    began = jax.lax.stop_gradient(function(params))

    def loss(params: Tree) -> Array:
        return ((function(params) - began - target) ** 2).mean()

    def step(carry: tuple[Tree, Any], _: None) -> tuple[tuple[Tree, Any], None]:
        params, opt = carry
        steps, opt = adam.update(jax.grad(loss)(params), opt)
        return (optax.apply_updates(params, steps), opt), None

    (params, _), _ = jax.lax.scan(step, (params, adam.init(params)), None, steps)
    return loss(params)


def random_target(values: Array) -> Array:
    """A target to fit: what a random network gives, each value with mean 0 and variance 1 over the batch."""
    return (values - values.mean(axis=0)) / jnp.maximum(values.std(axis=0), 1e-6)
