"""The replay buffer: a ring of transitions, and a sampler that says which to replay."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neoteny.replay import memory, saved
from neoteny.replay.ages.ageing import Floats, Ints, ages_of, concentration, warn_if_out_of_reach
from neoteny.replay.ages.schedules import Uniform
from neoteny.replay.batch import Batch
from neoteny.replay.drawing import Draw, Drawer
from neoteny.replay.frames import Frames, FrameStore, split_fields
from neoteny.replay.moving import MovingDrawer
from neoteny.replay.nstep import NEEDED, check_n_step, n_step
from neoteny.replay.priority import PrioritizedSampler, PriorityDrawer
from neoteny.replay.recent import RecentDraws
from neoteny.replay.sampling import AgeWeightedSampler, check_batch_size
from neoteny.replay.storage import Field, Layout, Ring, Rows, in_words


class Attachable(Protocol):
    """What a buffer asks of a sampler: to draw from its ring."""

    def attach(self, ring: Ring) -> Drawer:
        """What draws from `ring` by this sampler."""
        ...


class ReplayBuffer:
    """Transitions of named fields, replayed by their age, their priority, or both.

    capacity: transitions held, over all environments. fields: a shape (float32), a ``Field``, or for ``"obs"``
    stacked ``Frames``, by name; such as ``transition_fields(obs_shape, action_shape)``. sampler: which to
    replay, such as ``AgeWeightedSampler(LinearDecay())``. num_envs: transitions in each ``add``. n_step: how
    many rewards are summed, discounted by `gamma`; ``"discount"``, gamma^k, then comes with each batch (it
    does whenever gamma is given). seed: of the draws. check_finite: refuse NaN and infinity.

    n-step needs the fields reward, terminated and truncated; those, and every field whose name begins with
    ``next_``, are then of the last transition summed, all others of the first.
    """

    _recent: RecentDraws
    _by_age: AgeWeightedSampler | None
    _concentration: tuple[object, tuple[float, float]] | None

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Field | Frames | tuple[int, ...]],
        sampler: Attachable,
        *,
        num_envs: int = 1,
        n_step: int = 1,
        gamma: float | None = None,
        seed: int | None = None,
        check_finite: bool = True,
    ) -> None:
        frames, others = split_fields(fields)
        check_n_step(n_step, gamma, others)
        self.layout = Layout(others if gamma is None else {**others, "discount": Field()})
        pixels = FrameStore.num_bytes(frames, capacity, num_envs) if frames else 0
        priorities = 9 * capacity if isinstance(sampler, PrioritizedSampler) else 0
        memory.require(capacity * self.layout.width * 4 + pixels + priorities, f"a buffer of {capacity:,} transitions")
        self._ring = Ring(capacity, self.layout.width, num_envs)
        self._store = FrameStore(frames, capacity, num_envs) if frames else None
        self._scratch: Rows = np.zeros((num_envs, self.layout.width), np.float32)
        self._gamma = gamma
        self.n_step = n_step
        self.check_finite = check_finite
        self._use(sampler, seed)
        warn_if_out_of_reach(getattr(sampler, "schedule", None), capacity, stacklevel=2)

    def __len__(self) -> int:
        return self._ring.num_stored

    def __repr__(self) -> str:
        envs = f" of {self.num_envs} environments" if self.num_envs > 1 else ""
        stacked = None if self._store is None else self._store.field
        pixels = [in_words("obs", (stacked.stack, *stacked.shape), np.uint8)] if stacked else []
        returns = f", {self.n_step}-step" if self.n_step > 1 else ""
        return (
            f"ReplayBuffer({self.num_stored:,} of {self.capacity:,} transitions{envs}: "
            f"{', '.join([str(self.layout), *pixels])}{returns}; {self.sampler})"
        )

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

    def add(self, **values: ArrayLike) -> None:
        """Store one transition of each environment: every field, shape (num_envs, *field.shape).

        With one environment the leading axis may be left out. On an error nothing is stored.
        """
        if self._store is None:
            self._write(values, self._scratch)
            return
        if missing := [name for name in ("obs", "next_obs") if name not in values]:
            raise ValueError(f"a transition of frames has obs and next_obs; missing: {', '.join(missing)}")
        clock = self._ring.clock
        obs, next_obs = self._store.check(clock, values.pop("obs"), values.pop("next_obs"))
        self._write(values, self._scratch)
        terminated, truncated = (self.layout.unpack(self._scratch, name) for name in ("terminated", "truncated"))
        ended = (terminated != 0) | (truncated != 0)
        self._ring.forget_before(self._store.append(clock, obs, next_obs, ended))

    def extend(self, **values: ArrayLike) -> None:
        """Store many steps at once, the oldest first: every field, shape (steps, num_envs, *field.shape).

        With one environment its axis may be left out. On an error nothing is stored. Not for frames.
        """
        if self._store is not None:
            raise TypeError("a buffer of frames takes one step at a time: use add")
        arrays = {name: np.asarray(value) for name, value in values.items()}
        steps = min((len(np.atleast_1d(array)) for array in arrays.values()), default=0)
        for name, array in arrays.items():
            shape = self.layout.fields[name].shape if name in self.layout.fields else ()
            if array.shape not in ((steps, self.num_envs, *shape), (steps * self.num_envs, *shape)):
                raise ValueError(
                    f"{name!r} must have shape {(steps, self.num_envs, *shape)}, steps and environments first, "
                    f"got {array.shape}"
                )
            arrays[name] = array.reshape(steps * self.num_envs, *shape)
        self._write(arrays, np.zeros((steps * self.num_envs, self.layout.width), np.float32))

    def sample(self, batch_size: int, out: Rows | None = None, batches: int = 1) -> Batch:
        """Draw a batch, with replacement; its rows into `out` if given, else into a new array.

        batches: draw so many at once, one after the other in the rows; importance weights are each batch's own.
        """
        self._check_not_empty()
        check_batch_size(batch_size)
        draw = self._drawer.draw(self._rng, batch_size, batches)
        self._recent.note(draw.positions)
        return self._gather(draw, out)

    def sample_by_age(self, rng: np.random.Generator, batch_size: int) -> Batch:
        """Draw a batch by the sampler's age law alone, from a generator of the caller's; `sample` is not affected.

        A second batch, independent of what is drawn by ``sample``: priorities play no part, so it has no weights.
        """
        self._check_not_empty()
        check_batch_size(batch_size)
        schedule = getattr(self._drawer if isinstance(self._drawer, MovingDrawer) else self.sampler, "schedule", None)
        schedule = Uniform() if schedule is None else schedule
        if self._by_age is None or self._by_age.schedule != schedule:
            self._by_age = AgeWeightedSampler(schedule)
        ring = self._ring
        return self.gather(self._by_age.positions(rng, batch_size, ring.num_stored, ring.num_envs, ring.clock))

    def gather(self, positions: Ints) -> Batch:
        """The transitions at `positions` behind the head (0 the newest), n-step returns summed."""
        positions = np.asarray(positions, np.int64)
        if positions.size and not 0 <= positions.min() <= positions.max() < self.num_stored:
            first, last = positions.min(), positions.max()
            raise ValueError(f"positions must be in 0..{self.num_stored - 1}, got {first} to {last}")
        return self._gather(Draw(positions, self._ring.slots_of(positions)), None)

    def _gather(self, draw: Draw, out: Rows | None) -> Batch:
        ring = self._ring
        # mode: the default, "raise", would gather into a temporary and copy it.
        rows = ring.rows.take(draw.slots, axis=0, out=out, mode="wrap")
        further = None
        if self.n_step > 1:
            assert self._gamma is not None
            summed = n_step(ring, self.layout, draw.slots, self.n_step, self._gamma)
            for name, columns in self.layout.columns.items():
                if name in NEEDED or name.startswith("next_"):
                    rows[:, columns] = ring.rows[summed.last_slots, columns]
            rows[:, self.layout.columns["reward"].start] = summed.returns
            rows[:, self.layout.columns["discount"].start] = summed.discounts
            further = summed.further
        pixels = {} if self._store is None else self._store.observations(ring.clock - 1 - draw.positions, further)
        return Batch(rows, pixels, draw, self.layout, ring)

    def update_priorities(self, batch: Batch, errors: ArrayLike) -> None:
        """Tell a prioritised sampler the TD errors of a batch it drew, one for each transition.

        Of twin critics, the mean of both. Transitions overwritten since are passed over.
        """
        if not isinstance(self._drawer, PriorityDrawer):
            raise TypeError(f"{self.sampler} has no priorities to update; PrioritizedSampler has")
        self._drawer.update(batch, errors)

    def set_decay_steps(self, decay_steps: float) -> None:
        """Set the T of a sampler whose T moves: every draw from now on is by it. Part of the state."""
        if not isinstance(self._drawer, MovingDrawer):
            raise TypeError(f"{self.sampler} has no T that can be set; MovingDecaySampler has")
        self._drawer.set_decay_steps(decay_steps)

    @property
    def decay_steps(self) -> float | None:
        """The T that was set last; None if none was."""
        return self._drawer.decay_steps if isinstance(self._drawer, MovingDrawer) else None

    def with_sampler(self, sampler: Attachable, seed: int | None = None) -> ReplayBuffer:
        """Another sampler over the same transitions, with draws of its own; what either adds, both hold."""
        other = copy.copy(self)
        other._use(sampler, seed)
        warn_if_out_of_reach(getattr(sampler, "schedule", None), self.capacity, stacklevel=2)
        return other

    def law(self) -> Floats:
        """The probability of drawing each transition now, the newest first; linear in the buffer to compute."""
        self._check_not_empty()
        return self._drawer.law()

    def statistics(self) -> dict[str, float]:
        """What is being replayed: the age of recent draws, and how concentrated the present law is.

        ``age_mean``, ``age_p50``, ``age_p95``: of the last few thousand draws, in transitions (NaN before the
        first). ``effective_sample_size`` and ``entropy`` (nats): of the law; linear in the buffer to compute,
        and kept until it changes.
        """
        self._check_not_empty()
        ring = self._ring
        key = self._drawer.law_key()
        if self._concentration is None or self._concentration[0] != key:
            self._concentration = key, concentration(self._drawer.law())
        effective, entropy = self._concentration[1]
        ages = ages_of(self._recent.positions(), ring.num_envs)
        p50, p95 = np.percentile(ages, [50, 95]).tolist() if ages.size else (math.nan, math.nan)
        return {
            "age_mean": float(ages.mean()) if ages.size else math.nan,
            "age_p50": p50,
            "age_p95": p95,
            "effective_sample_size": effective,
            "entropy": entropy,
        }

    def cut(self) -> None:
        """End every environment's episode with its newest transition: what is added next does not follow it.

        For an environment that had to be restarted. The transition counts as truncated, so that values are
        bootstrapped from its next_obs and no n-step return runs on.
        """
        newest = self._ring.slots_of(np.arange(min(self.num_envs, self.num_stored)))
        if not newest.size:
            return
        if {"terminated", "truncated"} <= self.layout.columns.keys():
            terminated, truncated = (self.layout.columns[name].start for name in ("terminated", "truncated"))
            self.rows[newest, truncated] = np.where(
                self.rows[newest, terminated] == 0, 1.0, self.rows[newest, truncated]
            )
        if self._store is not None:
            self._ring.forget_before(self._store.cut(self.clock))

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

    def _check_not_empty(self) -> None:
        if self._ring.num_stored == 0:
            raise ValueError("nothing is stored yet: add transitions before sampling")

    def _use(self, sampler: Attachable, seed: int | None) -> None:
        self.sampler = sampler
        self._drawer = sampler.attach(self._ring)
        self._rng = np.random.default_rng(seed)
        self._by_age = None
        self._concentration = None
        self._recent = RecentDraws(self.capacity)

    def _write(self, values: Mapping[str, ArrayLike], rows: Rows) -> None:
        if self._gamma is not None:
            if "discount" in values:
                raise ValueError("with gamma the buffer makes the field 'discount' itself; leave it out of add")
            values = {**values, "discount": np.full(len(rows), self._gamma)}
        with np.errstate(over="ignore"):  # a float64 too large for float32 becomes inf, which is checked below
            self.layout.pack(values, rows)
        if self.check_finite:
            self.layout.check_finite(rows, self.num_envs)
        self._ring.append(rows)

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
