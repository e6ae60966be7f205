"""What the laws on the device are made of: whole numbers, parts of a mixture, transitions of a vector step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

Number = Any
"""A number, or a traced one."""
Law = Callable[[Array, int, Number, int], Array]
"""(key, batch_size, num_stored, num_envs) -> positions, 0 the newest."""


def spread(steps: Callable[[Array, int, Array, int], Array]) -> Law:
    """A law over positions from one over vector steps; each transition of a step is as likely."""

    def law(key: Array, batch_size: int, num_stored: Number, num_envs: int) -> Array:
        stored = jnp.asarray(num_stored, jnp.int32)
        groups = -(-stored // num_envs)
        if num_envs == 1:
            return steps(key, batch_size, groups, 1)
        return _redraw_outside(steps, key, batch_size, stored, groups, num_envs)

    return law


def _redraw_outside(
    steps: Callable[[Array, int, Array, int], Array],
    key: Array,
    size: int,
    stored: Array,
    groups: Array,
    num_envs: int,
) -> Array:
    """Where num_envs does not divide num_stored the oldest step is short: what falls outside is drawn again."""

    def draw(key: Array) -> Array:
        return steps(key, size, groups, num_envs) * num_envs + below(fold(key, 3), size, num_envs)

    def again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        key, positions = carry
        key = fold(key, 4)
        return key, jnp.where(positions < stored, positions, draw(key))

    return jax.lax.while_loop(lambda carry: (carry[1] >= stored).any(), again, (key, draw(key)))[1]


def choose(key: Array, size: int, masses: list[Array]) -> Array:
    """Which part of a mixture each draw comes from."""
    sums = jnp.cumsum(jnp.stack([jnp.asarray(mass, jnp.float32) for mass in masses]))
    u = jax.random.uniform(key, (size,)) * sums[-1]
    # A mass of 0 is never chosen, not even the last, where u might round up to the sum.
    return jnp.searchsorted(sums, jnp.minimum(u, jnp.nextafter(sums[-1], 0.0)), side="right")


def below(key: Array, size: int, end: Number | Array) -> Array:
    """Whole numbers, uniform on 0 .. end-1; 0 where end < 1."""
    return jax.random.randint(key, (size,), 0, jnp.maximum(jnp.asarray(end, jnp.int32), 1))


def fold(key: Array, number: int) -> Array:
    """The key of a part of a draw, by its number."""
    return jax.random.fold_in(key, number)
