"""The stream of examples: the slowly changing regression of Dohare et al. (2024), and its control that never changes.

An input has 20 bits. In the drifting world 15 of them are slow: one of the 15, drawn at random, flips every `every`
examples; the other 5 are drawn anew for every example. In the stationary world all 20 are. The target is a fixed
random network of 100 linear threshold units with weights of +1 and -1, the same function in both worlds for the same
key. It is a function of all 20 bits, so an old example is never wrong: it lies where the stream no longer is, and a
network that is too small for the whole function must give it up to fit the present part.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

World = Literal["drifting", "stationary"]
WORLDS: tuple[World, ...] = ("drifting", "stationary")
INPUTS, SLOW, UNITS, BETA = 20, 15, 100, 0.7
"""Bits of an input, how many of them are slow, units of the target, and beta, which sets their thresholds."""
_MANY = 4_096
"""Random inputs over which the target gets mean 0 and variance 1."""
_BLOCK = 1_000


class Target(NamedTuple):
    """A network of linear threshold units with weights of +1 and -1."""

    weights: Array
    """(20, 100), from the bits."""
    biases: Array
    """(100,)."""
    outgoing: Array
    """(100,)."""

    def __call__(self, bits: Array) -> Array:
        """Return sum_i v_i [w_i x + b_i > 0.7 * 21 - S_i], S_i the number of -1 among w_i and b_i; (examples,)."""
        negative = (self.weights < 0).sum(axis=0) + (self.biases < 0)
        threshold = BETA * (INPUTS + 1) - negative
        fires = bits.astype(jnp.float32) @ self.weights + self.biases > threshold
        return fires.astype(jnp.float32) @ self.outgoing


class Draws(NamedTuple):
    """Everything random about a stream."""

    target: Target
    first: Array
    """The slow bits before the first flip, (15,)."""
    flips: Array
    """Which slow bit flips at the end of each stretch of `every` examples, (stretches - 1,)."""
    quick: Array
    """Bits that are drawn anew for every example, (examples, 20); the drifting world uses the last 5."""


class Stream(NamedTuple):
    """Examples in the order in which they come."""

    inputs: Array
    """(examples, 20), uint8."""
    targets: Array
    """(examples,), of mean 0 and variance 1 over inputs of random bits."""


def draw(key: Array, examples: int, every: int) -> Draws:
    """Draw a stream of so many examples, in which a slow bit flips every `every` examples."""
    keys = jax.random.split(key, 6)
    signs = [
        jnp.where(jax.random.bernoulli(k, shape=shape), 1.0, -1.0)
        for k, shape in zip(keys, ((INPUTS, UNITS), (UNITS,), (UNITS,)), strict=False)
    ]
    flips = jax.random.randint(keys[4], (max(0, -(-examples // every) - 1),), 0, SLOW)
    quick = jax.random.bits(keys[5], (examples, INPUTS), jnp.uint8) & 1
    return Draws(Target(*signs), jax.random.bits(keys[3], (SLOW,), jnp.uint8) & 1, flips, quick)


def examples_of(draws: Draws, world: World, every: int) -> Stream:
    """Return the stream that was drawn, in one of the worlds."""
    inputs = draws.quick
    if world == "drifting":
        flipped = jnp.cumsum(jax.nn.one_hot(draws.flips, SLOW, dtype=jnp.int32), axis=0)
        counts = jnp.concatenate([jnp.zeros((1, SLOW), jnp.int32), flipped])
        slow = (draws.first + counts).astype(jnp.uint8) & 1
        stretch = jnp.arange(len(inputs)) // every
        inputs = jnp.concatenate([slow[stretch], inputs[:, SLOW:]], axis=1)
    anywhere = draws.target(jax.random.bits(jax.random.key(0), (_MANY, INPUTS), jnp.uint8) & 1)
    outputs = jax.lax.map(draws.target, inputs, batch_size=_BLOCK)
    return Stream(inputs, (outputs - anywhere.mean()) / jnp.maximum(anywhere.std(), 1e-6))
