"""What a replay buffer is made of, and its state: saved as plain data, checked, and put back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neoteny.replay import saved
from neoteny.replay.ages.ageing import Ints
from neoteny.replay.drawing import Attachable, Drawer
from neoteny.replay.frames import FrameStore
from neoteny.replay.recent import RecentDraws
from neoteny.replay.storage import Layout, Ring, Rows


class SavedBuffer:
    """The parts of a `ReplayBuffer`, what it holds by number, and its whole state."""

    layout: Layout
    n_step: int
    check_finite: bool
    sampler: Attachable
    _ring: Ring
    _store: FrameStore | None
    _gamma: float | None
    _drawer: Drawer
    _rng: np.random.Generator
    _recent: RecentDraws

    @property
    def capacity(self) -> int:
        """How many transitions it holds when full."""
        return self._ring.capacity

    @property
    def num_envs(self) -> int:
        """How many transitions each ``add`` writes."""
        return self._ring.num_envs

    @property
    def num_stored(self) -> int:
        """How many transitions it holds now."""
        return self._ring.num_stored

    @property
    def head(self) -> int:
        """The next slot to be written."""
        return self._ring.head

    @property
    def clock(self) -> int:
        """How many transitions were ever added."""
        return self._ring.clock

    @property
    def rows(self) -> Rows:
        """The packed ring itself, in the order of slots; not a copy."""
        return self._ring.rows

    @property
    def first_needed(self) -> int:
        """The number of the oldest transition that is part of the state: held, or a frame of one that is."""
        oldest = self._ring.oldest
        return oldest if self._store is None else self._store.first_needed(oldest)

    @property
    def bytes_per_transition(self) -> int:
        """What ``transitions`` gives for each."""
        pixels = 0 if self._store is None else math.prod(self._store.field.shape) + 5
        return self.layout.width * 4 + pixels

    def transitions(self, first: int, stop: int) -> dict[str, NDArray[Any]]:
        """Copies of the transitions numbered first to stop - 1, counted from the first ever added, as arrays."""
        numbers = np.arange(first, stop)
        arrays: dict[str, NDArray[Any]] = {"rows": self.rows[numbers % self.capacity]}
        return arrays if self._store is None else {**arrays, **self._store.transitions(numbers)}

    def put(self, first: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Put back what ``transitions`` gave, numbered from `first`, after ``restore``; the oldest first.

        Refused, and nothing changed, if it cannot be that: see ``restore``.
        """
        numbers = self._check_saved(first, arrays, self.first_needed, self.clock)
        self.rows[numbers % self.capacity] = arrays["rows"]
        if self._store is not None:
            self._store.put(numbers, arrays)

    def _check_saved(self, first: int, arrays: Mapping[str, NDArray[Any]], least: int, stop: int) -> Ints:
        """The numbers of saved transitions from `first` on, which lie from `least` to stop - 1."""
        rows = saved.array(arrays, "rows", np.float32, (None, self.layout.width))
        numbers = np.arange(first, first + len(rows))
        if numbers.size and not least <= first <= first + len(rows) <= stop:
            raise ValueError(
                f"the saved 'rows' must be of transitions {least} to {stop - 1}, got {first} to {first + len(rows) - 1}"
            )
        self.layout.check_saved(rows, self.num_envs, self.check_finite)
        if self._store is not None:
            self._store.check_saved(numbers, arrays)
        return numbers

    def state(self, transitions: bool = True) -> dict[str, Any]:
        """Everything: arrays, numbers and JSON, such that after ``restore`` the next sample is the same bits.

        transitions: if not, they are left out, to be kept and ``put`` back apart.
        """
        ring = self._ring
        state = {
            **self._shape(),
            "clock": ring.clock,
            "oldest": ring.oldest,
            "rng": self._rng.bit_generator.state,
            "drawer": self._drawer.state(),
            "store": None if self._store is None else self._store.state(ring.clock),
            **self._recent.state(),
        }
        if transitions:
            state["first"] = self.first_needed
            state["transitions"] = self.transitions(self.first_needed, ring.clock)
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become the buffer that `state` was taken from.

        Refused, and nothing changed, if it cannot be the state of a buffer like this: of another shape, dtype or
        sampler, or with draws that are not held. A NaN or infinity is refused unless check_finite is False.
        """
        for name, mine in self._shape().items():
            if saved.part(state, name) != mine:
                raise ValueError(f"this buffer's {name} is {mine}, the state's is {state[name]}")
        ring, store = self._ring, self._store
        clock = saved.whole(state, "clock", 0)
        oldest = saved.whole(state, "oldest", max(0, clock - ring.capacity), clock)
        if clock % ring.num_envs:
            raise ValueError(f"the saved 'clock' must be a multiple of num_envs={ring.num_envs}, got {clock}")
        rng = saved.generator(state, "rng", self._rng)
        recent = self._recent.restored(state)
        frames = saved.part(state, "store")
        if store is None and frames is not None:
            raise ValueError("the saved 'store' is of frames, and this buffer holds none")
        restore_store = None if store is None else store.restored(frames)
        if "transitions" in state:
            first = oldest if store is None else store.first_needed(oldest)
            saved.whole(state, "first", first, first)
            numbers = self._check_saved(first, state["transitions"], first, clock)
            if len(numbers) != clock - first:
                raise ValueError(f"the saved 'rows' must be {clock - first}, one a transition, got {len(numbers)}")
        before = ring.clock, ring.oldest, ring.restored
        ring.clock, ring.oldest, ring.restored = clock, oldest, ring.restored + 1
        try:
            self._drawer.restore(saved.part(state, "drawer"))
        except Exception:
            ring.clock, ring.oldest, ring.restored = before
            raise
        self._rng.bit_generator.state = rng
        self._recent = recent
        if restore_store is not None:
            restore_store(clock)
        if "transitions" in state:
            self.put(first, state["transitions"])

    def _shape(self) -> dict[str, Any]:
        return {
            "capacity": self.capacity,
            "num_envs": self.num_envs,
            "fields": self.layout.describe(),
            "frames": None if self._store is None else [*self._store.field.shape, self._store.field.stack],
            "finals": None if self._store is None else self._store.num_finals,
            "n_step": self.n_step,
            "gamma": self._gamma,
            "sampler": re.sub(r" at 0x[0-9a-f]+", "", repr(self.sampler)),
        }
