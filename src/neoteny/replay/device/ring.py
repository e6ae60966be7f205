"""A ring of transitions on the device: pure functions that add to it and draw from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from neoteny.replay.device.drawing import Law, Number


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
