"""The replay buffer: a ring of transitions, and a sampler that says which to replay."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from neoteny.replay.ageing import Ints, ages_of, concentration
from neoteny.replay.nstep import NEEDED, n_step
from neoteny.replay.sampling import Sampler, check_batch_size, check_ring, slots_of
from neoteny.replay.storage import Field, Layout, Ring, Rows

_AHEAD = 8_192
"""How many draws are made at once from a full buffer: the calls into NumPy are shared among their batches."""

_RECENT = 8_192
"""Over how many of the last draws the sampled age is reported."""


class Batch(Mapping[str, NDArray[Any]]):
    """A sampled batch: ``batch["obs"]`` and so on are views into the one packed array ``batch.rows``."""

    __slots__ = ("_layout", "_num_envs", "positions", "rows", "slots")

    def __init__(self, rows: Rows, slots: Ints, positions: Ints, layout: Layout, num_envs: int) -> None:
        self.rows = rows
        self.slots = slots
        self.positions = positions
        self._layout = layout
        self._num_envs = num_envs

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._layout.unpack(self.rows, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout.fields)

    def __len__(self) -> int:
        return len(self._layout.fields)

    @property
    def ages(self) -> Ints:
        """The age of each transition when it was drawn."""
        return ages_of(self.positions, self._num_envs)


class ReplayBuffer:
    """Transitions of named fields, replayed by their age.

    capacity: transitions held, over all environments. fields: a shape (float32) or a ``Field`` for each
    name, such as ``transition_fields(obs_shape, action_shape)``. sampler: which to replay, such as
    ``AgeWeightedSampler(LinearDecay())``. num_envs: transitions in each ``add``. n_step: how many rewards
    are summed, discounted by `gamma`; ``"discount"``, gamma^k, then comes with each batch (it does
    whenever gamma is given). seed: of the draws. check_finite: refuse NaN and infinity.

    n-step needs the fields reward, terminated and truncated; those, and every field whose name begins with
    ``next_``, are then of the last transition summed, all others of the first.
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Field | tuple[int, ...]],
        sampler: Sampler,
        *,
        num_envs: int = 1,
        n_step: int = 1,
        gamma: float | None = None,
        seed: int | None = None,
        check_finite: bool = True,
    ) -> None:
        self._gamma = _check_n_step(n_step, gamma, fields)
        if gamma is not None:
            fields = {**fields, "discount": Field()}
        self.layout = Layout(fields)
        self.sampler = sampler
        self.n_step = n_step
        self.check_finite = check_finite
        self._ring = Ring(capacity, self.layout.width, num_envs)
        self._rng = np.random.default_rng(seed)
        self._scratch: Rows = np.zeros((num_envs, self.layout.width), np.float32)
        self._ahead: Ints = np.zeros(0, np.int64)
        self._recent: Ints = np.full(_RECENT, -1)
        self._recent_at = 0
        self._concentration: tuple[tuple[int, int], tuple[float, float]] | None = None
        _warn_if_out_of_reach(sampler, capacity)

    def __len__(self) -> int:
        return self._ring.num_stored

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
    def rows(self) -> Rows:
        """The packed ring itself, in the order of slots; not a copy."""
        return self._ring.rows

    @property
    def clock(self) -> int:
        """How many transitions were ever added."""
        return self._ring.clock

    def add(self, **values: ArrayLike) -> None:
        """Store one transition of each environment: every field, shape (num_envs, *field.shape).

        With one environment the leading axis may be left out. On an error nothing is stored.
        """
        self._write(values, self._scratch)

    def extend(self, **values: ArrayLike) -> None:
        """Store many steps at once, the oldest first: every field, shape (steps, num_envs, *field.shape).

        With one environment its axis may be left out. On an error nothing is stored.
        """
        arrays = {name: np.asarray(value) for name, value in values.items()}
        steps = len(next(iter(arrays.values()))) if arrays else 0
        for name, array in arrays.items():
            field = self.layout.fields.get(name, Field())
            if array.shape not in ((steps, self.num_envs, *field.shape), (steps * self.num_envs, *field.shape)):
                raise ValueError(
                    f"{name!r} must have shape {(steps, self.num_envs, *field.shape)}, steps and environments "
                    f"first, got {array.shape}"
                )
            arrays[name] = array.reshape(steps * self.num_envs, *field.shape)
        self._write(arrays, np.zeros((steps * self.num_envs, self.layout.width), np.float32))

    def _write(self, values: Mapping[str, ArrayLike], rows: Rows) -> None:
        if self._gamma is not None:
            values = {**values, "discount": np.full(len(rows), self._gamma)}
        with np.errstate(over="ignore"):  # a float64 too large for float32 becomes inf, which is checked below
            self.layout.pack(values, rows)
        if self.check_finite:
            self.layout.check_finite(rows, self.num_envs)
        self._ring.append(rows)

    def with_sampler(self, sampler: Sampler, seed: int | None = None) -> ReplayBuffer:
        """Another sampler over the same transitions, with draws of its own; what either adds, both hold."""
        other = copy.copy(self)
        other.sampler = sampler
        other._rng = np.random.default_rng(seed)
        other._ahead, other._concentration = np.zeros(0, np.int64), None
        other._recent, other._recent_at = np.full(_RECENT, -1), 0
        return other

    def sample(self, batch_size: int, out: Rows | None = None) -> Batch:
        """Draw a batch, with replacement; into the rows `out` if given, else into a new array."""
        ring = self._ring
        check_ring(ring.num_stored, ring.head, ring.capacity, ring.num_envs)
        positions = self._draw(batch_size)
        slots = slots_of(positions, ring.head, ring.capacity)
        return Batch(self.gather(slots, out), slots, positions, self.layout, ring.num_envs)

    def gather(self, slots: Ints, out: Rows | None = None) -> Rows:
        """The packed rows of `slots`, n-step returns summed."""
        # mode: the default, "raise", would gather into a temporary and copy it.
        rows = self._ring.rows.take(slots, axis=0, out=out, mode="wrap")
        if self.n_step > 1:
            assert self._gamma is not None
            summed = n_step(self._ring, self.layout, slots, self.n_step, self._gamma)
            for name, columns in self.layout.columns.items():
                if name in NEEDED or name.startswith("next_"):
                    rows[:, columns] = self._ring.rows[summed.last_slots, columns]
            rows[:, self.layout.columns["reward"].start] = summed.returns
            rows[:, self.layout.columns["discount"].start] = summed.discounts
        return rows

    def statistics(self) -> dict[str, float]:
        """What is being replayed: the age of recent draws, and how concentrated the present law is.

        ``age_mean``, ``age_p50``, ``age_p95``: of the last few thousand draws, in transitions (NaN before the
        first). ``effective_sample_size`` and ``entropy`` (nats): of the law; linear in the buffer to
        compute, and kept until its size changes.
        """
        ring = self._ring
        check_ring(ring.num_stored, ring.head, ring.capacity, ring.num_envs)
        key = (ring.num_stored, 0 if self.sampler.draws_ahead else ring.clock)
        if self._concentration is None or self._concentration[0] != key:
            law = self.sampler.probabilities(ring.num_stored, ring.num_envs, ring.clock)
            self._concentration = key, concentration(law)
        effective, entropy = self._concentration[1]
        ages = ages_of(self._recent[self._recent >= 0], ring.num_envs)
        mean = float(ages.mean()) if ages.size else math.nan
        p50, p95 = np.percentile(ages, [50, 95]).tolist() if ages.size else (math.nan, math.nan)
        return {
            "age_mean": mean,
            "age_p50": p50,
            "age_p95": p95,
            "effective_sample_size": effective,
            "entropy": entropy,
        }

    def state(self) -> dict[str, Any]:
        """Everything: arrays, numbers and JSON, such that after ``restore`` the next sample is the same bits."""
        ring = self._ring
        return {
            **self._shape(),
            "rows": ring.rows[: ring.num_stored].copy(),
            "head": ring.head,
            "num_stored": ring.num_stored,
            "clock": ring.clock,
            "rng": self._rng.bit_generator.state,
            "ahead": self._ahead.copy(),
            "recent": self._recent.copy(),
            "recent_at": self._recent_at,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become the buffer that `state` was taken from; refused, and nothing changed, if of another shape."""
        for name, mine in self._shape().items():
            if state[name] != mine:
                raise ValueError(f"this buffer's {name} is {mine}, the state's is {state[name]}")
        ring = self._ring
        self._rng.bit_generator.state = state["rng"]
        ring.rows[: state["num_stored"]] = state["rows"]
        ring.head, ring.num_stored, ring.clock = state["head"], state["num_stored"], state["clock"]
        self._ahead = np.array(state["ahead"], np.int64)
        self._recent = np.array(state["recent"], np.int64)
        self._recent_at = state["recent_at"]

    def _shape(self) -> dict[str, Any]:
        return {
            "capacity": self.capacity,
            "num_envs": self.num_envs,
            "fields": self.layout.describe(),
            "n_step": self.n_step,
            "gamma": self._gamma,
        }

    def _draw(self, batch_size: int) -> Ints:
        check_batch_size(batch_size)
        ring = self._ring
        if ring.num_stored == ring.capacity and self.sampler.draws_ahead:
            if len(self._ahead) < batch_size:
                self._ahead = self._new_draws(max(batch_size, _AHEAD))
            positions, self._ahead = self._ahead[:batch_size], self._ahead[batch_size:]
        else:
            positions = self._new_draws(batch_size)
        count = min(batch_size, _RECENT)
        if self._recent_at + count > _RECENT:
            self._recent_at = 0
        self._recent[self._recent_at : self._recent_at + count] = positions[:count]
        self._recent_at += count
        return positions

    def _new_draws(self, size: int) -> Ints:
        ring = self._ring
        return self.sampler.positions(self._rng, size, ring.num_stored, ring.num_envs, ring.clock)


def _check_n_step(n_step: int, gamma: float | None, fields: Mapping[str, object]) -> float | None:
    if n_step < 1:
        raise ValueError(f"n_step must be >= 1, got {n_step}")
    if gamma is not None and not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be in [0, 1], got {gamma}")
    if n_step > 1:
        if gamma is None:
            raise ValueError(f"n_step={n_step} needs gamma, the discount of each further reward")
        if missing := [name for name in NEEDED if name not in fields]:
            raise ValueError(f"n_step={n_step} needs the fields {', '.join(NEEDED)}; missing: {', '.join(missing)}")
    if gamma is not None and "discount" in fields:
        raise ValueError("with gamma the buffer makes the field 'discount' itself; leave it out of fields")
    return gamma


def _warn_if_out_of_reach(sampler: Sampler, capacity: int) -> None:
    reach = getattr(sampler.schedule, "reach", math.inf)
    if capacity < reach < math.inf:
        warnings.warn(
            f"{sampler.schedule} still changes up to age {reach:,.0f}, and this buffer forgets at {capacity:,}: "
            f"choose a shorter schedule or a larger capacity",
            stacklevel=3,
        )
