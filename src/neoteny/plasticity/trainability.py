"""Trainability: plasticity measured directly, by how well a network's present weights can still be trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

Tree = Any


class Task(NamedTuple):
    """A change of a network's outputs to be learned: its shape, mean 0 and variance 1, and its least size."""

    target: Array
    spread: Array


def random_task(values: Array) -> Task:
    """The task to change as a new random network varies: `values` are that network's, (batch, values)."""
    spread = jnp.maximum(values.std(axis=0), 1e-6)
    return Task((values - values.mean(axis=0)) / spread, spread)


def loss_after(params: Tree, function: Callable[[Tree], Array], task: Task, steps: int, lr: float) -> Array:
    """The least mean squared error met within `steps` of Adam on the change that `task` asks for; 1 to begin with.

    function(params) -> (batch, values). The loss is the mean of ((f(theta) - f(theta_0)) / s - target)^2, s the spread
    of f(theta_0) over the batch, or a new network's if that is larger: what is measured is whether outputs can be
    moved, and not how far from a target they happened to begin, nor their scale (a critic's grows with its returns, and
    what a step of Adam does to it grows alike).
    """
    adam = optax.adam(lr)
    began = jax.lax.stop_gradient(function(params))
    spread = jnp.maximum(began.std(axis=0), task.spread)

    def loss(params: Tree) -> Array:
        return (((function(params) - began) / spread - task.target) ** 2).mean()

    def step(carry: tuple[Tree, Any], _: None) -> tuple[tuple[Tree, Any], Array]:
        params, opt = carry
        before, slope = jax.value_and_grad(loss)(params)
        steps, opt = adam.update(slope, opt)
        return (optax.apply_updates(params, steps), opt), before

    (params, _), met = jax.lax.scan(step, (params, adam.init(params)), None, steps)
    return jnp.minimum(met.min(), loss(params))
