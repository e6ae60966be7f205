"""The replay buffer: a ring of transitions, and a sampler that says which to replay."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from neoteny.replay import memory
from neoteny.replay.ages.ageing import Floats, Ints, ages_of, concentration, warn_if_out_of_reach
from neoteny.replay.ages.schedules import Uniform
from neoteny.replay.batch import Batch
from neoteny.replay.drawing import Attachable, Draw
from neoteny.replay.frames import Frames, FrameStore, split_fields
from neoteny.replay.moving import MovingDrawer
from neoteny.replay.nstep import NEEDED, check_n_step, n_step
from neoteny.replay.priority import PrioritizedSampler, PriorityDrawer
from neoteny.replay.recent import RecentDraws
from neoteny.replay.sampling import AgeWeightedSampler, check_batch_size
from neoteny.replay.saved_buffer import SavedBuffer
from neoteny.replay.storage import Field, Layout, Ring, Rows, in_words
from neoteny.replay.tensors import Convert, Kind, converter


class ReplayBuffer(SavedBuffer):
    """Transitions of named fields, replayed by their age, their priority, or both.

    capacity: transitions held, over all environments. fields: a shape (float32), a ``Field``, or for ``"obs"``
    stacked ``Frames``, by name; such as ``transition_fields(obs_shape, action_shape)``. sampler: which to
    replay, such as ``AgeWeightedSampler(LinearDecay())``. num_envs: transitions in each ``add``. n_step: how
    many rewards are summed, discounted by `gamma`; ``"discount"``, gamma^k, then comes with each batch (it
    does whenever gamma is given). seed: of the draws. check_finite: refuse NaN and infinity.

    n-step needs the fields reward, terminated and truncated; those, and every field whose name begins with
    ``next_``, are then of the last transition summed, all others of the first.
    """

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

    def sample(self, batch_size: int, out: Rows | None = None, batches: int = 1, as_: Kind = "numpy") -> Batch:
        """Draw a batch, with replacement.

        Args:
            batch_size: how many transitions.
            out: the array for the batch's rows; a new one if not given.
            batches: draw so many batches at once, one after the other in the rows; importance weights are each
                batch's own.
            as_: what ``batch["obs"]`` and so on are: "numpy" arrays, or "torch" or "jax" tensors. torch's share the
                batch's memory; JAX's are copies, except of pixels.
        """
        convert = None if as_ == "numpy" else converter(as_, out is not None)
        self._check_not_empty()
        check_batch_size(batch_size)
        draw = self._drawer.draw(self._rng, batch_size, batches)
        self._recent.note(draw.positions)
        return self._gather(draw, out, convert)

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

    def _gather(self, draw: Draw, out: Rows | None, convert: Convert | None = None) -> Batch:
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
        return Batch(rows, pixels, draw, self.layout, ring, convert)

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
