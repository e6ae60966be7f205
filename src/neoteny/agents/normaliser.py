"""RSNorm: observations normalised by running mean and variance (SimBa), updated by interaction only."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Normaliser:
    """Running statistics of every observation met, by the parallel form of Welford's sums."""

    mean: Array
    var: Array
    count: Array


def init(obs_shape: tuple[int, ...]) -> Normaliser:
    """Mean 0, variance 1, a count of 1e-4."""
    return Normaliser(jnp.zeros(obs_shape), jnp.ones(obs_shape), jnp.float32(1e-4))


def observe(norm: Normaliser, obs: Array) -> Normaliser:
    """The statistics with a batch of observations added."""
    count = obs.shape[0]
    mean, var = obs.mean(axis=0), obs.var(axis=0)
    total = norm.count + count
    delta = mean - norm.mean
    squares = norm.var * norm.count + var * count + delta**2 * norm.count * count / total
    return Normaliser(norm.mean + delta * count / total, squares / total, total)


def normalise(norm: Normaliser, obs: Array) -> Array:
    """(x - mean) / sqrt(var + 1e-8), not clipped."""
    return (obs - norm.mean) / jnp.sqrt(norm.var + 1e-8)
