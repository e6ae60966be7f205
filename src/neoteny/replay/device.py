"""The same draws inside ``jit``: pure functions over a ring that lives on the device.

A law here is a function ``(key, batch_size, num_stored, num_envs) -> positions``, where num_stored may be
traced; ``linear_decay``, ``linear_growth`` and ``window`` also take traced numbers, so that a grid over T
and w_min is one program under ``vmap``. Probabilities are float32, positions are whole numbers drawn as
such, so nothing is lost at 10 million entries.

    ring = init(1_000_000, {"obs": jnp.zeros(3), "reward": jnp.zeros(())}, num_envs=4)
    ring = add(ring, {"obs": obs, "reward": reward})           # leaves (num_envs, ...)
    batch = sample(ring, key, 256, linear_decay(80_000, 0.1))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from neoteny.replay.ages.ageing import Schedule, evaluate, positive_total, uses
from neoteny.replay.ages.schedules import (
    GeometricDecay,
    LinearDecay,
    LinearGrowth,
    TruncatedGeometric,
    Uniform,
    Window,
)

Number = Any
"""A number, or a traced one."""
Law = Callable[[Array, int, Number, int], Array]


@partial(jax.tree_util.register_dataclass, data_fields=["data", "head", "num_stored"], meta_fields=["num_envs"])
@dataclass(frozen=True)
class DeviceRing:
    """Transitions on the device: `data` leaves (capacity, ...), the next slot to write, how many are held."""

    data: Any
    head: Array
    num_stored: Array
    num_envs: int

    @property
    def capacity(self) -> int:
        """How many transitions it holds when full."""
        return int(jax.tree.leaves(self.data)[0].shape[0])


def init(capacity: int, example: Any, num_envs: int = 1) -> DeviceRing:
    """An empty ring for transitions like `example`, a tree of arrays without a leading axis."""
    if num_envs < 1 or capacity < num_envs or capacity % num_envs:
        raise ValueError(f"capacity must be a multiple of num_envs >= 1, got {capacity} and {num_envs}")
    data = jax.tree.map(lambda leaf: jnp.zeros((capacity, *jnp.shape(leaf)), jnp.result_type(leaf)), example)
    return DeviceRing(data, jnp.int32(0), jnp.int32(0), num_envs)


def add(ring: DeviceRing, transitions: Any) -> DeviceRing:
    """The ring with one transition of each environment added: leaves (num_envs, ...)."""
    for leaf in jax.tree.leaves(transitions):
        if jnp.shape(leaf)[:1] != (ring.num_envs,):
            raise ValueError(f"an add brings {ring.num_envs} transitions, environments first, got {jnp.shape(leaf)}")
    data = jax.tree.map(
        lambda held, new: jax.lax.dynamic_update_slice_in_dim(held, new.astype(held.dtype), ring.head, 0),
        ring.data,
        transitions,
    )
    head = (ring.head + ring.num_envs) % ring.capacity
    return replace(ring, data=data, head=head, num_stored=jnp.minimum(ring.num_stored + ring.num_envs, ring.capacity))


def sample(ring: DeviceRing, key: Array, batch_size: int, law: Law) -> Any:
    """A batch drawn by `law`, with replacement.

    An empty ring cannot raise inside jit: it gives zeros. Add first.
    """
    slots = draw_slots(law, key, batch_size, ring.num_stored, ring.head, ring.capacity, ring.num_envs)
    return jax.tree.map(lambda held: held[slots], ring.data)


def draw_slots(
    law: Law, key: Array, batch_size: int, num_stored: Number, head: Number, capacity: int, num_envs: int = 1
) -> Array:
    """Slots of anybody's ring, int32, as ``AgeWeightedSampler.slots`` draws them on the host."""
    if getattr(law, "max_stored", capacity) < capacity:
        raise ValueError(f"this law's table is for {law.max_stored} transitions, the ring holds {capacity}")  # type: ignore[attr-defined]
    positions = law(key, batch_size, num_stored, num_envs)
    return jnp.asarray((head - 1 - positions) % capacity, jnp.int32)


def uniform() -> Law:
    """Every stored transition alike."""

    def law(key: Array, batch_size: int, num_stored: Number, num_envs: int) -> Array:
        return _below(key, batch_size, num_stored)

    return law


def window(steps: Number) -> Law:
    """Uniform over ages up to `steps`."""
    _check(lambda: Window(steps), steps)

    def law(key: Array, batch_size: int, num_stored: Number, num_envs: int) -> Array:
        whole = jnp.minimum(steps, num_stored).astype(jnp.int32)
        width = (1 + (whole - 1) // num_envs) * num_envs
        return _below(key, batch_size, jnp.minimum(width, num_stored))

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
        part = _choose(key, size, [triangle, jnp.maximum(end, 0.0) * q, min_weight * groups])
        x = _below(_fold(key, 1), size, jnp.where(part == 2, groups, q))
        y = _below(_fold(key, 2), size, q - 1)
        return jnp.where(part == 0, jnp.minimum(x, y), x)

    return _spread(steps)


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
        part = _choose(key, size, [triangle, q / decay_steps, min_weight * groups, plateau])
        start = jnp.where(part == 3, q, 0)
        x = start + _below(_fold(key, 1), size, jnp.where(part >= 2, groups, q) - start)
        y = _below(_fold(key, 2), size, q - 1)
        return jnp.where(part == 0, jnp.maximum(x, y + 1), x)

    return _spread(steps)


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
        part = _choose(key, size, [mass, min_weight * (groups - young)])
        old = young + _below(_fold(key, 1), size, groups - young)
        return jnp.where(part == 0, _geometric(_fold(key, 2), size, each, young), old)

    return _spread(steps)


def truncated_geometric(mean_age: Number) -> Law:
    """q^age with the q that gives the draws this mean age, as ``TruncatedGeometric`` on the host."""
    _check(lambda: TruncatedGeometric(mean_age), mean_age)

    def law(key: Array, batch_size: int, num_stored: Number, num_envs: int) -> Array:
        loss = _log_loss(mean_age, jnp.asarray(num_stored, jnp.float32))

        def steps(key: Array, size: int, groups: Array, num_envs: int) -> Array:
            return _geometric(key, size, loss * num_envs, groups)

        return _spread(steps)(key, batch_size, num_stored, num_envs)

    return law


_DIGIT = 256
_NEWTON_STEPS = 10


def _geometric(key: Array, size: int, loss: Array, end: Array) -> Array:
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
        low = digit(_fold(key, 5), loss, jnp.minimum(end, _DIGIT).astype(jnp.float32))
        middle = digit(_fold(key, 6), loss * _DIGIT, jnp.minimum(jnp.ceil(end / _DIGIT), _DIGIT))
        high = digit(_fold(key, 7), loss * _DIGIT**2, jnp.ceil(end / _DIGIT**2))
        return low + _DIGIT * middle + _DIGIT**2 * high

    def again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        key, drawn = carry
        key = _fold(key, 8)
        return key, jnp.where(drawn < end, drawn, draw(key))

    return jax.lax.while_loop(lambda carry: (carry[1] >= end).any(), again, (key, draw(key)))[1]


def _log_loss(mean_age: Number, n: Array) -> Array:
    """`schedules.log_loss` in float32, in units of the size: the mean's share of it is 1/x - 1/(e^x - 1), near enough.

    The discrete law's mean lies half a transition above that of the continuous one.
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
        u = _scale(jax.random.bits(_fold(key, 1), (size,), jnp.uint32), total)
        block = jnp.minimum(jnp.searchsorted(outer, u, side="right").astype(jnp.int32), last)
        held = jnp.where(block == last, part, inner[block, _BLOCK - 1])
        v = _scale(jax.random.bits(_fold(key, 2), (size,), jnp.uint32), held)
        step = jnp.zeros_like(block)
        for half in _HALVES:  # a binary search in each draw's own block
            step += jnp.where(inner[block, step + half - 1] <= v, half, 0)
        return jnp.minimum(block * _BLOCK + step, groups - 1)

    law = _spread(steps)
    law.max_stored = max_stored  # type: ignore[attr-defined]
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


def _spread(steps: Callable[[Array, int, Array, int], Array]) -> Law:
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
        return steps(key, size, groups, num_envs) * num_envs + _below(_fold(key, 3), size, num_envs)

    def again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        key, positions = carry
        key = _fold(key, 4)
        return key, jnp.where(positions < stored, positions, draw(key))

    return jax.lax.while_loop(lambda carry: (carry[1] >= stored).any(), again, (key, draw(key)))[1]


def _steps_to_plateau(decay_steps: Number, min_weight: Number, groups: Array, num_envs: int) -> Array:
    line = jnp.ceil(((1.0 - min_weight) * decay_steps - 1.0) / num_envs)
    return jnp.minimum(jnp.clip(line, 0.0, 2.0**30).astype(jnp.int32), groups)  # float32 would round large groups


def _choose(key: Array, size: int, masses: list[Array]) -> Array:
    """Which part of a mixture each draw comes from."""
    sums = jnp.cumsum(jnp.stack([jnp.asarray(mass, jnp.float32) for mass in masses]))
    u = jax.random.uniform(key, (size,)) * sums[-1]
    # A mass of 0 is never chosen, not even the last, where u might round up to the sum.
    return jnp.searchsorted(sums, jnp.minimum(u, jnp.nextafter(sums[-1], 0.0)), side="right")


def _below(key: Array, size: int, end: Number | Array) -> Array:
    """Whole numbers, uniform on 0 .. end-1; 0 where end < 1."""
    return jax.random.randint(key, (size,), 0, jnp.maximum(jnp.asarray(end, jnp.int32), 1))


def _check(make: Callable[[], object], *numbers: Number) -> None:
    """Refuse numbers that the host's schedule would refuse, unless they are traced and cannot be looked at."""
    if all(isinstance(number, (int, float)) for number in numbers):
        make()


def _fold(key: Array, number: int) -> Array:
    return jax.random.fold_in(key, number)


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
