"""Trainability: plasticity measured directly, by how well a network's present weights can still be trained.

A copy of the network is asked to change its outputs on a batch by a random target, and the loss that is left after a
few steps is compared with that of new networks of the same shape. Each step moves each layer by a fixed share of
its own size. So the measure does not depend on the scale or offset of the outputs (exactly, up to rounding: a head
multiplied by any number gives the same), nor much on the scale of the weights, both of which grow in a run that
learns. Steps of a fixed size, such as Adam's, move large weights relatively less, and would call them untrainable.

What it does not tell: whether the optimiser of the run, with its own step size, still moves the weights (see
`norms.effective_learning_rate`); nor anything about a layer whose weights are all 0, which stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

Tree = Any
STEPS = 20
RATE = 0.015
"""How far the first step moves each layer, relative to its size; it falls to 0 in equal parts over the steps."""
_TINY = 1e-30
_ADAM = optax.scale_by_adam(eps=1e-15)  # the layer's length is set afterwards, so no gradient is too small to count


def random_target(values: Array) -> Array:
    """A change to be learned, of mean 0 and variance 1: as a new random network's `values` (batch, values) vary."""
    return (values - values.mean(axis=0)) / jnp.maximum(values.std(axis=0), _TINY)


class Fit(NamedTuple):
    """Weights on their way to a target."""

    params: Tree
    opt: Tree
    began: Array
    """The outputs of the weights it began with."""
    least: Array
    """The least loss met so far."""


def begin(params: Tree, function: Callable[[Tree], Array]) -> Fit:
    """The fit before its first step. function(params) -> (batch, values)."""
    return Fit(params, _ADAM.init(params), function(params), jnp.array(jnp.inf))


def advance(fit: Fit, function: Callable[[Tree], Array], target: Array) -> Fit:
    """One step in Adam's direction, of which each layer goes a share of its own size.

    The loss is the mean of ((f(theta) - f(theta_0)) / s - target)^2 with the mean difference over the batch taken off,
    s the spread of f(theta_0) over the batch: what counts is whether outputs can be moved relative to each other, and
    not where they began. It is 1 to begin with. After `STEPS` steps one more call moves nothing, and looks at the last.
    """
    size = jnp.sqrt((fit.began**2).mean(axis=0))
    spread = jnp.maximum(fit.began.std(axis=0), 1e-6 * size + _TINY)  # outputs that do not vary have none

    def loss(params: Tree) -> Array:
        moved = (function(params) - fit.began) / spread
        return ((moved - moved.mean(axis=0) - target) ** 2).mean()

    met, slope = jax.value_and_grad(loss)(fit.params)
    rate = RATE * (1.0 - fit.opt.count / STEPS)
    direction, opt = _ADAM.update(slope, fit.opt)
    return Fit(_moved(fit.params, direction, rate), opt, fit.began, jnp.minimum(fit.least, met))


def loss_after(params: Tree, function: Callable[[Tree], Array], target: Array) -> Array:
    """The least loss that the steps meet, the beginning's among them.

    A loop on the host around one compiled step: XLA runs convolutions five times slower inside a loop of its own.
    """
    fit = begin(params, function)
    step = jax.jit(lambda fit: advance(fit, function, target))
    for _ in range(STEPS + 1):
        fit = step(fit)
    return fit.least


def _moved(params: Tree, direction: Tree, rate: Array) -> Tree:
    """Each layer moved against `direction` by `rate` of its size.

    A layer is what holds arrays directly, such as a kernel and its bias. Its size is its kernel's norm, since a bias
    may be 0, or as large as it takes to silence a unit; of a layer without one, such as a LayerNorm, all its arrays'.
    """
    leaves, shape = jax.tree_util.tree_flatten_with_path(params)
    arrays, ways = [leaf for _, leaf in leaves], jax.tree.leaves(direction)
    layers: dict[Any, list[int]] = {}
    for index, (path, _) in enumerate(leaves):
        layers.setdefault(path[:-1], []).append(index)
    for members in layers.values():
        size = _norm([arrays[i] for i in members if arrays[i].ndim > 1] or [arrays[i] for i in members])
        length = jnp.maximum(_norm([ways[i] for i in members]), _TINY)
        for i in members:
            arrays[i] = arrays[i] - rate * size / length * ways[i]
    return jax.tree.unflatten(shape, arrays)


def _norm(arrays: list[Array]) -> Array:
    """|arrays|_2, as one vector; by products, which XLA computes faster than sums on the CPU."""
    return jnp.sqrt(sum(jnp.vdot(array, array) for array in arrays))
