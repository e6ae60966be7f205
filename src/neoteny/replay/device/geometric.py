"""Geometric draws on the device, among whole numbers, and how fast they fall for a given mean age."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from neoteny.replay.device.drawing import Number, fold

_DIGIT = 256
_NEWTON_STEPS = 10


def geometric(key: Array, size: int, loss: Array, end: Array) -> Array:
    """Whole numbers r of 0 .. end-1 with probabilities proportional to exp(-loss r); 0 where end < 1.

    float32 has too few digits to invert the sum over millions. But the digits of r to the base 256 are independent,
    each geometric over the values that it can have. What falls beyond `end`, at most half, is drawn again.
    """
    end = jnp.maximum(end, 1)

    def digit(key: Array, loss: Array, count: Array | float) -> Array:
        u = jax.random.uniform(key, (size,))
        flat = jnp.floor(u * count)
        x = loss * count
        curved = jnp.log1p(u * jnp.expm1(-x)) / -jnp.maximum(loss, 1e-30)
        return jnp.clip(jnp.where(x < 1e-6, flat, curved), 0.0, count - 1.0).astype(jnp.int32)

    def draw(key: Array) -> Array:
        low = digit(fold(key, 5), loss, jnp.minimum(end, _DIGIT).astype(jnp.float32))
        middle = digit(fold(key, 6), loss * _DIGIT, jnp.minimum(jnp.ceil(end / _DIGIT), _DIGIT))
        high = digit(fold(key, 7), loss * _DIGIT**2, jnp.ceil(end / _DIGIT**2))
        return low + _DIGIT * middle + _DIGIT**2 * high

    def again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        key, drawn = carry
        key = fold(key, 8)
        return key, jnp.where(drawn < end, drawn, draw(key))

    return jax.lax.while_loop(lambda carry: (carry[1] >= end).any(), again, (key, draw(key)))[1]


def log_loss(mean_age: Number, n: Array) -> Array:
    """`neoteny.replay.ages.geometric.log_loss` in float32.

    In units of the size, the mean's share of it is 1/x - 1/(e^x - 1), near enough: the discrete law's mean lies half a
    transition above that of the continuous one.
    """
    share = jnp.clip((mean_age - 0.5) / n, 1e-9, 0.5)
    x = (1.0 - 2.0 * share) * (1.0 / share + 4.0)
    for _ in range(_NEWTON_STEPS):
        many = jnp.expm1(jnp.minimum(x, 80.0))
        small = x < 0.1
        safe = jnp.where(small, 1.0, x)
        safe_many = jnp.where(small, 1.0, many)
        mean = jnp.where(small, 0.5 - x / 12.0 + x**3 / 720.0, 1.0 / safe - 1.0 / safe_many)
        slope = jnp.where(small, -1.0 / 12.0 + x**2 / 240.0, -1.0 / safe**2 + (1.0 + 1.0 / safe_many) / safe_many)
        x = jnp.maximum(0.0, jnp.clip(x - (mean - share) / slope, x / 8.0, 8.0 * x))
    return jnp.where(2.0 * mean_age >= n + 1.0, 0.0, x / n)
