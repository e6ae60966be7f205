"""The laws of our own schedules on the device, in closed form, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from neoteny.replay.ages.ageing import Schedule
from neoteny.replay.ages.schedules import (
    GeometricDecay,
    LinearDecay,
    LinearGrowth,
    TruncatedGeometric,
    Uniform,
    Window,
)
from neoteny.replay.device.drawing import Law, Number, below, choose, fold, spread
from neoteny.replay.device.geometric import geometric, log_loss
from neoteny.replay.device.tables import table


def uniform() -> Law:
    """Every stored transition alike."""

    def law(key: Array, batch_size: int, num_stored: Number, num_envs: int) -> Array:
        return below(key, batch_size, num_stored)

    return law


def window(steps: Number) -> Law:
    """Uniform over ages up to `steps`."""
    _check(lambda: Window(steps), steps)

    def law(key: Array, batch_size: int, num_stored: Number, num_envs: int) -> Array:
        whole = jnp.minimum(steps, num_stored).astype(jnp.int32)
        width = (1 + (whole - 1) // num_envs) * num_envs
        return below(key, batch_size, jnp.minimum(width, num_stored))

    return law


def linear_decay(decay_steps: Number, min_weight: Number) -> Law:
    """max(w, 1 - age / T) as a mixture: uniform on all, uniform on the q above the floor, and a triangle.

    The triangle, weight (q - 1 - r) E / T for vector step r < q, is the smaller of two distinct uniform r:
    min(x, y) with x in 0 .. q-1 and y in 0 .. q-2.
    """
    _check(lambda: LinearDecay(decay_steps, min_weight), decay_steps, min_weight)

    def steps(key: Array, size: int, groups: Array, num_envs: int) -> Array:
        q = _steps_to_plateau(decay_steps, min_weight, groups, num_envs)
        end = 1.0 - min_weight - (1.0 + (q - 1.0) * num_envs) / decay_steps
        triangle = q * (q - 1.0) * num_envs / (2.0 * decay_steps)
        part = choose(key, size, [triangle, jnp.maximum(end, 0.0) * q, min_weight * groups])
        x = below(fold(key, 1), size, jnp.where(part == 2, groups, q))
        y = below(fold(key, 2), size, q - 1)
        return jnp.where(part == 0, jnp.minimum(x, y), x)

    return spread(steps)


def relative_decay(decay_fraction: Number, min_weight: Number) -> Law:
    """Linear decay with T a fraction of what is stored, as ``LinearDecay(decay_fraction=...)`` on the host."""
    _check(lambda: LinearDecay("auto", min_weight, decay_fraction), decay_fraction, min_weight)

    def law(key: Array, batch_size: int, num_stored: Number, num_envs: int) -> Array:
        decay_steps = jnp.maximum(2.0, decay_fraction * jnp.asarray(num_stored, jnp.float32))
        return linear_decay(decay_steps, min_weight)(key, batch_size, num_stored, num_envs)

    return law


def linear_growth(decay_steps: Number, min_weight: Number) -> Law:
    """min(1, w + age / T) as a mixture: uniform on all, on the plateau, on the rise, and a rising triangle."""
    _check(lambda: LinearGrowth(decay_steps, min_weight), decay_steps, min_weight)

    def steps(key: Array, size: int, groups: Array, num_envs: int) -> Array:
        q = _steps_to_plateau(decay_steps, min_weight, groups, num_envs)
        triangle = q * (q - 1.0) * num_envs / (2.0 * decay_steps)
        plateau = (1.0 - min_weight) * (groups - q)
        part = choose(key, size, [triangle, q / decay_steps, min_weight * groups, plateau])
        start = jnp.where(part == 3, q, 0)
        x = start + below(fold(key, 1), size, jnp.where(part >= 2, groups, q) - start)
        y = below(fold(key, 2), size, q - 1)
        return jnp.where(part == 0, jnp.maximum(x, y + 1), x)

    return spread(steps)


def geometric_decay(rate: Number, min_weight: Number) -> Law:
    """max(w, (1 - rate)^age) as a mixture: a geometric law cut at the floor or the end, and uniform on the floor."""
    _check(lambda: GeometricDecay(rate, min_weight), rate, min_weight)
    loss = -jnp.log1p(-jnp.asarray(rate, jnp.float32))
    reach = jnp.where(min_weight > 0, -jnp.log(jnp.maximum(min_weight, 1e-38)) / loss, 2.0**31)

    def steps(key: Array, size: int, groups: Array, num_envs: int) -> Array:
        young = jnp.clip(jnp.ceil((reach - 1.0) / num_envs), 0.0, 2.0**30).astype(jnp.int32)
        young = jnp.minimum(young, groups)
        each = loss * num_envs
        mass = jnp.exp(-loss) * jnp.expm1(-each * young) / jnp.expm1(-each)
        part = choose(key, size, [mass, min_weight * (groups - young)])
        old = young + below(fold(key, 1), size, groups - young)
        return jnp.where(part == 0, geometric(fold(key, 2), size, each, young), old)

    return spread(steps)


def truncated_geometric(mean_age: Number) -> Law:
    """q^age with the q that gives the draws this mean age, as ``TruncatedGeometric`` on the host."""
    _check(lambda: TruncatedGeometric(mean_age), mean_age)

    def law(key: Array, batch_size: int, num_stored: Number, num_envs: int) -> Array:
        loss = log_loss(mean_age, jnp.asarray(num_stored, jnp.float32))

        def steps(key: Array, size: int, groups: Array, num_envs: int) -> Array:
            return geometric(key, size, loss * num_envs, groups)

        return spread(steps)(key, batch_size, num_stored, num_envs)

    return law


def law_of(schedule: Schedule, max_stored: int, num_envs: int = 1) -> Law:
    """The device's law of a host's schedule, for rings of up to `max_stored` transitions."""
    if type(schedule) is LinearDecay and schedule.decay_fraction is not None:
        return relative_decay(schedule.decay_fraction, schedule.min_weight)
    if type(schedule) is LinearDecay:
        return linear_decay(schedule.decay_steps, schedule.min_weight)
    if type(schedule) is GeometricDecay:
        return geometric_decay(schedule.rate, schedule.min_weight)
    if type(schedule) is TruncatedGeometric:
        return truncated_geometric(schedule.mean_age)
    if type(schedule) is LinearGrowth:
        return linear_growth(schedule.decay_steps, schedule.min_weight)
    if type(schedule) is Uniform:
        return uniform()
    if type(schedule) is Window:
        return window(schedule.steps)
    return table(schedule, max_stored, num_envs)


def _steps_to_plateau(decay_steps: Number, min_weight: Number, groups: Array, num_envs: int) -> Array:
    line = jnp.ceil(((1.0 - min_weight) * decay_steps - 1.0) / num_envs)
    return jnp.minimum(jnp.clip(line, 0.0, 2.0**30).astype(jnp.int32), groups)  # float32 would round large groups


def _check(make: Callable[[], object], *numbers: Number) -> None:
    """Refuse numbers that the host's schedule would refuse, unless they are traced and cannot be looked at."""
    if all(isinstance(number, (int, float)) for number in numbers):
        make()
