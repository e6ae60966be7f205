"""The law of any schedule of the age alone, from a table on the device."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from neoteny.replay.ages.ageing import Schedule, evaluate, positive_total, uses
from neoteny.replay.device.drawing import Law, fold, spread

_BLOCK = 1024
_HALVES = tuple(_BLOCK >> k for k in range(1, _BLOCK.bit_length()))


def table(schedule: Schedule, max_stored: int, num_envs: int = 1) -> Law:
    """Any schedule of the age alone, from a table for up to `max_stored` transitions.

    Two searches among whole numbers: a block of 1,024 vector steps, then a step in it, each by prefix sums
    scaled to 2^32. A probability is then right to about one part in a million of the mean one.
    """
    if uses(schedule):
        raise ValueError(f"{schedule} uses {', '.join(uses(schedule))}: on the device a schedule may use the age alone")
    groups = -(-max_stored // num_envs)
    blocks = -(-groups // _BLOCK)
    weights = np.zeros(blocks * _BLOCK)
    ages = 1 + np.arange(groups) * num_envs
    weights[:groups] = evaluate(schedule, ages, num_stored=max_stored, clock=max_stored)
    inside = np.cumsum(weights.reshape(blocks, _BLOCK), axis=1)
    masses = inside[:, -1]
    positive_total(schedule, float(masses.sum()), max_stored)
    outer = jnp.asarray(_scaled(np.cumsum(masses)))
    inner = jnp.asarray(_scaled(inside / np.where(masses > 0, masses, 1.0)[:, None], total=1.0))

    def steps(key: Array, size: int, groups: Array, num_envs_now: int) -> Array:
        if num_envs_now != num_envs:
            raise ValueError(f"this table is for {num_envs} environments, got {num_envs_now}")
        last = (groups - 1) // _BLOCK
        before = jnp.where(last > 0, outer[jnp.maximum(last - 1, 0)], jnp.uint32(0))
        part = inner[last, (groups - 1) % _BLOCK]  # of the last block, how much is held
        total = before + _scale(part, outer[last] - before)
        u = _scale(jax.random.bits(fold(key, 1), (size,), jnp.uint32), total)
        block = jnp.minimum(jnp.searchsorted(outer, u, side="right").astype(jnp.int32), last)
        held = jnp.where(block == last, part, inner[block, _BLOCK - 1])
        v = _scale(jax.random.bits(fold(key, 2), (size,), jnp.uint32), held)
        step = jnp.zeros_like(block)
        for half in _HALVES:  # a binary search in each draw's own block
            step += jnp.where(inner[block, step + half - 1] <= v, half, 0)
        return jnp.minimum(block * _BLOCK + step, groups - 1)

    law = spread(steps)
    law.max_stored = max_stored  # type: ignore[attr-defined]
    return law


def _scaled(sums: np.ndarray, total: float | None = None) -> np.ndarray:
    """Prefix sums as uint32, the total near 2^32."""
    return np.round(sums / (sums[-1] if total is None else total) * (2.0**32 - 1)).astype(np.uint32)


def _scale(x: Array, total: Array) -> Array:
    """floor(x * total / 2^32) of two uint32, by halves of 16 bits."""
    low, high = x & 0xFFFF, x >> 16
    t_low, t_high = total & 0xFFFF, total >> 16
    middle = (low * t_low >> 16) + low * t_high  # below 2^32: (2^16 - 1)^2 + 2^16
    across = high * t_low + (middle & 0xFFFF)
    return high * t_high + (middle >> 16) + (across >> 16)
