"""The same draws inside ``jit``: pure functions over a ring that lives on the device.

A law here is a function ``(key, batch_size, num_stored, num_envs) -> positions``, where num_stored may be
traced; ``linear_decay``, ``linear_growth`` and ``window`` also take traced numbers, so that a grid over T
and w_min is one program under ``vmap``. Probabilities are float32, positions are whole numbers drawn as
such, so nothing is lost at 10 million entries.

    ring = init(1_000_000, {"obs": jnp.zeros(3), "reward": jnp.zeros(())}, num_envs=4)
    ring = add(ring, {"obs": obs, "reward": reward})           # leaves (num_envs, ...)
    batch = sample(ring, key, 256, linear_decay(80_000, 0.1))
"""

from neoteny.replay.device.drawing import Law, Number
from neoteny.replay.device.laws import (
    geometric_decay,
    law_of,
    linear_decay,
    linear_growth,
    relative_decay,
    truncated_geometric,
    uniform,
    window,
)
from neoteny.replay.device.ring import DeviceRing, add, draw_slots, init, sample
from neoteny.replay.device.tables import table

__all__ = [
    "DeviceRing",
    "Law",
    "Number",
    "add",
    "draw_slots",
    "geometric_decay",
    "init",
    "law_of",
    "linear_decay",
    "linear_growth",
    "relative_decay",
    "sample",
    "table",
    "truncated_geometric",
    "uniform",
    "window",
]
