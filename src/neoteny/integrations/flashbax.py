"""flashbax: its item buffer with age-weighted draws, a variant that replaces ``sample``.

    buffer = make_age_weighted_item_buffer(1_000_000, 256, 256, decay_steps=80_000)
    state = buffer.init(transition)
    state = jax.jit(buffer.add, donate_argnums=0)(state, transition)
    batch = jax.jit(buffer.sample)(state, key).experience

``init``, ``add``, ``sample`` and ``can_sample`` are pure functions over flashbax's own state, as ever.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp

from neoteny.errors import missing_extra
from neoteny.replay import device
from neoteny.replay.ages.ageing import Schedule
from neoteny.replay.sampling import schedule_of

try:
    from flashbax import utils
    from flashbax.buffers.item_buffer import make_item_buffer
    from flashbax.buffers.trajectory_buffer import TrajectoryBufferSample
except ImportError as error:
    raise ImportError(str(missing_extra(__name__, "flashbax", error)), name=error.name) from error


def make_age_weighted_item_buffer(
    max_length: int,
    min_length: int,
    sample_batch_size: int,
    add_sequences: bool = False,
    add_batches: bool = False,
    *,
    num_envs: int | None = None,
    decay_steps: float | Literal["auto"] | None = None,
    min_weight: float | None = None,
    age_weight: Schedule | None = None,
    decay_fraction: float | None = None,
) -> Any:
    """flashbax's ``make_item_buffer``, sampling by an exact law of age, with replacement.

    num_envs: with add_batches, how many items each batch brings, one of each environment; they share an age.
    decay_steps, min_weight: T, in items, and what old ones keep, of max(w_min, 1 - age / T); T may be
    "auto", a tenth of what is stored, or another decay_fraction of it. age_weight:
    instead of these, any schedule of ours, or your own of the age alone.

    Where both batches and sequences are added, (num_envs, time, ...), `add` stores them step after step, and not
    environment after environment as flashbax does: position in the ring is age.
    """
    num_envs = _check_num_envs(num_envs, add_batches)
    buffer = make_item_buffer(max_length, min_length, sample_batch_size, add_sequences, add_batches)
    schedule = schedule_of(age_weight, decay_steps, min_weight, "age_weight", decay_fraction)
    law = device.law_of(schedule, max_length, num_envs)

    def add(state: Any, batch: Any) -> Any:
        if add_batches:
            brought = utils.get_tree_shape_prefix(batch)[0]
            if brought != num_envs:
                raise ValueError(
                    f"a batch must bring num_envs={num_envs} items, one of each environment, got {brought}"
                )
            if add_sequences:  # flashbax flattens the two axes in the order in which it finds them
                batch = jax.tree.map(_time_first, batch)
        return buffer.add(state, batch)

    def sample(state: Any, rng_key: Any) -> Any:
        stored = jnp.where(state.is_full, max_length, state.current_index)
        slots = device.draw_slots(law, rng_key, sample_batch_size, stored, state.current_index, max_length, num_envs)
        return TrajectoryBufferSample(experience=jax.tree.map(lambda items: items[0, slots], state.experience))

    return buffer.replace(add=add, sample=sample)


def _time_first(leaf: Any) -> Any:
    """(envs, time, ...) with the steps one after another when both axes are flattened."""
    return jnp.swapaxes(leaf, 0, 1).reshape(leaf.shape)


def _check_num_envs(num_envs: int | None, add_batches: bool) -> int:
    if not add_batches:
        if num_envs not in (None, 1):
            raise ValueError(f"num_envs={num_envs} environments are added in batches: say add_batches=True")
        return 1
    if num_envs is None:
        raise ValueError(
            "add_batches=True adds one item of each environment: say num_envs=, how many, which share an age"
        )
    if num_envs < 1:
        raise ValueError(f"num_envs must be >= 1, got {num_envs}")
    return num_envs
