"""A network that learns from a replay of a stream, compiled: training, the gap to new networks, the newest's share.

The stream itself is the replay buffer: after example i a buffer of capacity N contains the newest min(i + 1, N) of it.
The laws are those of `neoteny.replay.device`, whose positions count from the newest. Everything is for one seed; the
command maps it over seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from neoteny.agents.agent import adam
from neoteny.lab.regression.stream import Stream
from neoteny.networks.heads import Head
from neoteny.networks.trunks import MLP
from neoteny.plasticity.norms import l2_norm
from neoteny.replay.ages.ageing import Describing
from neoteny.replay.device import Law, draw_slots, law_of

Tree = Any
LEARNING_RATE = 1e-3
BATCH = 32
TWINS = 4
"""New networks that the present one is compared with."""
JUDGED_ON = 4_096
"""Draws on which the losses of the present and the new networks are compared."""
DRAWS = 32_768
"""Draws from which the newest examples' share of the gradient is measured."""
_AT_ONCE = 1_024
_ADAM = adam(LEARNING_RATE, 0.0)


class Arm(NamedTuple):
    """A replay: by which law it draws, and how many examples it contains at most."""

    schedule: Describing
    capacity: int


class Fit(NamedTuple):
    """A network on its way."""

    params: Tree
    opt: Tree


class Network(nn.Module):
    """The project's MLP with its head: inputs (..., 20) to outputs (...); linear if there are no widths."""

    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, bits: Array) -> Array:
        """Return the outputs."""
        trunk = MLP(self.widths, name="trunk")
        return Head(1, trunk, name="head")(trunk(bits.astype(jnp.float32)))[..., 0]


def begin(network: Network, key: Array, inputs: int) -> Fit:
    """Return a new network, with Adam at its beginning."""
    params = network.init(key, jnp.zeros((1, inputs)))["params"]
    return Fit(params, _ADAM.init(params))


def learn(network: Network, arm: Arm, length: int, batch: int = BATCH) -> Callable[..., tuple[Fit, Array]]:
    """Return a function that goes on for `length` examples: (fit, stream, start, key) -> (fit, online errors).

    Each example is first predicted, which gives its squared error, (length,); then it is stored, and one step of Adam
    is made on a batch of what is stored.
    """

    def part(fit: Fit, stream: Stream, start: Array, key: Array) -> tuple[Fit, Array]:
        law = law_of(arm.schedule, len(stream.targets))
        numbers = start + jnp.arange(length)
        slots = jax.vmap(lambda i: _drawn(law, arm, stream, jax.random.fold_in(key, i), i + 1, batch))(numbers)

        def step(fit: Fit, at: tuple[Array, Array]) -> tuple[Fit, Array]:
            i, rows = at
            error = (network.apply({"params": fit.params}, stream.inputs[i]) - stream.targets[i]) ** 2
            return _updated(network, fit, stream.inputs[rows], stream.targets[rows]), error

        return jax.lax.scan(step, fit, (numbers, slots))

    return part


def fresh_gap(network: Network, arm: Arm, updates: int, batch: int = BATCH) -> Callable[..., Array]:
    """Return a function for the gap between the present network and new ones: (params, stream, stored, key) -> gap.

    A copy of the present network and `TWINS` new ones, all with Adam at its beginning, make so many updates on the same
    batches from the buffer as it is after `stored` examples. The gap is the present one's loss over the mean of the
    new ones', on the same further draws by the arm's law: above 1, a new network learns this buffer better.
    """

    def gap(params: Tree, stream: Stream, stored: Array, key: Array) -> Array:
        law, keys = law_of(arm.schedule, len(stream.targets)), jax.random.split(key, 3)
        new = jax.vmap(lambda k: begin(network, k, stream.inputs.shape[1]).params)(jax.random.split(keys[0], TWINS))
        all_params = jax.tree.map(lambda own, others: jnp.concatenate([own[None], others]), params, new)
        fits = Fit(all_params, jax.vmap(_ADAM.init)(all_params))
        slots = jax.vmap(lambda k: _drawn(law, arm, stream, k, stored, batch))(jax.random.split(keys[1], updates))

        def step(fits: Fit, rows: Array) -> tuple[Fit, None]:
            inputs, targets = stream.inputs[rows], stream.targets[rows]
            return jax.vmap(lambda fit: _updated(network, fit, inputs, targets))(fits), None

        fits, _ = jax.lax.scan(step, fits, slots)
        rows = _drawn(law, arm, stream, keys[2], stored, JUDGED_ON)
        losses = jax.vmap(lambda own: _loss(network, own, stream.inputs[rows], stream.targets[rows]))(fits.params)
        return losses[0] / losses[1:].mean()

    return gap


def newest_share(network: Network, arm: Arm, newest: int) -> Callable[..., Array]:
    """Return a function for the share of the gradient that the newest examples have: (params, stream, stored, key).

    Draws are made by the law. The share is the sum of the gradient norms of those draws that are among the `newest`
    examples, over the sum of all draws' gradient norms.
    """

    def share(params: Tree, stream: Stream, stored: Array, key: Array) -> Array:
        law = law_of(arm.schedule, len(stream.targets))

        def norm(row: Array) -> Array:
            slope = jax.grad(lambda own: _loss(network, own, stream.inputs[row], stream.targets[row]))(params)
            return l2_norm(slope)

        def block(key: Array) -> Array:
            rows = _drawn(law, arm, stream, key, stored, _AT_ONCE)
            norms = jax.vmap(norm)(rows)
            return jnp.stack([jnp.where(rows >= stored - newest, norms, 0.0).sum(), norms.sum()])

        young, whole = jax.lax.map(block, jax.random.split(key, DRAWS // _AT_ONCE)).sum(axis=0)
        return young / jnp.maximum(whole, 1e-30)

    return share


def _drawn(law: Law, arm: Arm, stream: Stream, key: Array, stored: Array, count: int) -> Array:
    """The numbers of examples, drawn by the law once `stored` have come."""
    return draw_slots(law, key, count, jnp.minimum(stored, arm.capacity), stored, len(stream.targets))


def _updated(network: Network, fit: Fit, inputs: Array, targets: Array) -> Fit:
    """The network after one step of Adam."""
    slope = jax.grad(lambda params: _loss(network, params, inputs, targets))(fit.params)
    updates, opt = _ADAM.update(slope, fit.opt, fit.params)
    return Fit(optax.apply_updates(fit.params, updates), opt)


def _loss(network: Network, params: Tree, inputs: Array, targets: Array) -> Array:
    """The mean squared error."""
    return ((network.apply({"params": params}, inputs) - targets) ** 2).mean()
