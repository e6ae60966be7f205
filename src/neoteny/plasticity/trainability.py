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


class Fit(NamedTuple):
    """Weights on their way to a task."""

    params: Tree
    opt: Tree
    began: Array
    """The outputs of the weights it began with."""
    least: Array
    """The least mean squared error met so far."""


def begin(params: Tree, function: Callable[[Tree], Array], lr: float) -> Fit:
    """The fit of a task, before its first step. function(params) -> (batch, values)."""
    return Fit(params, optax.adam(lr).init(params), function(params), jnp.array(jnp.inf))


def advance(fit: Fit, function: Callable[[Tree], Array], task: Task, lr: float) -> Fit:
    """One step of Adam on the change that `task` asks for.

    The loss is the mean of ((f(theta) - f(theta_0)) / s - target)^2, s the spread of f(theta_0) over the batch, or a
    new network's if that is larger: what is measured is whether outputs can be moved, and not how far from a target
    they happened to begin, nor their scale (a critic's grows with its returns, and what a step of Adam does to it
    grows alike). It is 1 to begin with.
    """
    spread = jnp.maximum(fit.began.std(axis=0), task.spread)

    def loss(params: Tree) -> Array:
        return (((function(params) - fit.began) / spread - task.target) ** 2).mean()

    met, slope = jax.value_and_grad(loss)(fit.params)
    step, opt = optax.adam(lr).update(slope, fit.opt)
    return Fit(optax.apply_updates(fit.params, step), opt, fit.began, jnp.minimum(fit.least, met))


def loss_after(params: Tree, function: Callable[[Tree], Array], task: Task, steps: int, lr: float) -> Array:
    """The least mean squared error that `steps` of Adam meet, the beginning's among them.

    A loop on the host around one compiled step: XLA runs convolutions five times slower inside a loop of its own.
    """
    fit = begin(params, function, lr)
    step = jax.jit(lambda fit: advance(fit, function, task, lr))
    for _ in range(steps):
        fit = step(fit)
    return fit.least
