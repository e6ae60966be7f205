"""Samplers: which stored transitions to replay, from four numbers about the ring and nothing else.

``AgeWeightedSampler`` draws the exact law at the price of uniform replay. ``ReferenceSampler`` and
``BucketedSampler`` are the paper's own two, to compare with. All have the same methods, and need no buffer
of ours: a ring is ``num_stored`` transitions in ``capacity`` slots, ``head`` the next slot to be written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, Protocol

import numpy as np

from neoteny.replay.ages.ageing import Floats, Ints, Schedule, ages_of, evaluate, normalise, uses
from neoteny.replay.ages.closed_forms import GeometricLaw, LinearDecayLaw, LinearGrowthLaw, WindowLaw
from neoteny.replay.ages.laws import Law
from neoteny.replay.ages.schedules import (
    EmphasizeRecent,
    ExponentialDecay,
    GeometricDecay,
    LinearDecay,
    LinearGrowth,
    TruncatedGeometric,
    Uniform,
    Window,
)
from neoteny.replay.ages.tables import EmphasizeRecentLaw, SizedTableLaw, TableLaw
from neoteny.replay.drawing import AgeDrawer, Drawer
from neoteny.replay.storage import Ring, slots_of


class Sampler(Protocol):
    """Draws of transitions by their age."""

    schedule: Schedule
    draws_ahead: bool = False
    """Whether many batches may be drawn at once from a full ring, because its law no longer changes."""

    def positions(
        self, rng: np.random.Generator, batch_size: int, num_stored: int, num_envs: int = 1, clock: int | None = None
    ) -> Ints:
        """Draw `batch_size` positions, with replacement: 0 the newest transition, num_stored - 1 the oldest."""
        ...

    def probabilities(self, num_stored: int, num_envs: int = 1, clock: int | None = None) -> Floats:
        """The probability of each position under the law that ``positions`` draws from."""
        ...

    def slots(
        self,
        rng: np.random.Generator,
        batch_size: int,
        *,
        num_stored: int,
        head: int,
        capacity: int,
        num_envs: int = 1,
        clock: int | None = None,
        drops_early: bool = False,
    ) -> Ints:
        """Draw `batch_size` slots of anybody's ring buffer, with replacement.

        rng: where the randomness comes from. num_stored: transitions held. head: the next slot to be
        written. capacity: slots in all. num_envs: how many transitions each vector step wrote, side by
        side. clock: transitions ever added; a schedule that uses it needs it. drops_early: a ring that is not
        full may have its head anywhere, because it drops transitions before it is full or did not start at
        slot 0; without this such a head is an error. Returns int64, shape (batch_size,).
        """
        check_ring(num_stored, head, capacity, num_envs, drops_early)
        check_batch_size(batch_size)
        return slots_of(self.positions(rng, batch_size, num_stored, num_envs, clock), head, capacity)

    def pairs(
        self,
        rng: np.random.Generator,
        batch_size: int,
        *,
        pos: int,
        full: bool,
        length: int,
        num_envs: int,
        clock: int | None = None,
    ) -> tuple[Ints, Ints]:
        """Draw `batch_size` index pairs (row, env) of a two-dimensional ring: arrays [length, num_envs, ...].

        SB3's and CleanRL's buffers are such rings: one row for each vector step. pos: the next row to be written.
        full: whether it has gone around. length: rows in all (SB3: ``buffer_size``). clock: as in ``slots``, in
        transitions. With ``rows, envs = sampler.pairs(...)`` a batch is ``observations[rows, envs]``.
        """
        if not 0 <= pos < length:
            raise ValueError(f"pos, the next row to be written, must be in 0..{length - 1}, got {pos}")
        slots = self.slots(
            rng,
            batch_size,
            num_stored=(length if full else pos) * num_envs,
            head=pos * num_envs,
            capacity=length * num_envs,
            num_envs=num_envs,
            clock=clock,
        )
        return np.divmod(slots, num_envs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.schedule})"

    def attach(self, ring: Ring) -> Drawer:
        """What draws from a buffer's `ring` by this sampler."""
        return AgeDrawer(self, ring)


class AgeWeightedSampler(Sampler):
    """Exact draws under any schedule.

    Constant time a draw for linear decay and growth, geometric and exponential decay, uniform and window; logarithmic
    for the rest, from one table built once (a schedule that ``uses`` the size or the clock: built again when they
    change).

    schedule: the weight of each age. decay_steps, min_weight: instead of it T, in transitions, and what old ones keep,
    of max(w_min, 1 - age / T); without any of them the paper's numbers. decay_steps="auto" makes T a tenth of what is
    stored, and decay_fraction another fraction of it.
    """

    def __init__(
        self,
        schedule: Schedule | None = None,
        *,
        decay_steps: float | Literal["auto"] | None = None,
        min_weight: float | None = None,
        decay_fraction: float | None = None,
    ) -> None:
        self.schedule = schedule_of(schedule, decay_steps, min_weight, decay_fraction=decay_fraction)
        self.draws_ahead = "clock" not in uses(self.schedule)
        self._laws: dict[int, Law] = {}

    def positions(
        self, rng: np.random.Generator, batch_size: int, num_stored: int, num_envs: int = 1, clock: int | None = None
    ) -> Ints:
        return self._law(num_envs).positions(rng, batch_size, num_stored, clock)

    def probabilities(self, num_stored: int, num_envs: int = 1, clock: int | None = None) -> Floats:
        return self._law(num_envs).pmf(num_stored, clock)

    def _law(self, num_envs: int) -> Law:
        law = self._laws.get(num_envs)
        if law is None:
            law = self._laws[num_envs] = law_of(self.schedule, num_envs)
        return law


class ReferenceSampler(Sampler):
    """The paper's exact sampler: SWD (ICLR 2026), Algorithm 1 as printed, with any schedule for its line 3.

    Every weight is computed anew for every batch: O(num_stored).
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = check_schedule_type(schedule)

    def positions(
        self, rng: np.random.Generator, batch_size: int, num_stored: int, num_envs: int = 1, clock: int | None = None
    ) -> Ints:
        return rng.choice(num_stored, size=batch_size, p=self.probabilities(num_stored, num_envs, clock))

    def probabilities(self, num_stored: int, num_envs: int = 1, clock: int | None = None) -> Floats:
        ages = ages_of(np.arange(num_stored), num_envs)
        weights = evaluate(self.schedule, ages, num_stored=num_stored, clock=clock)
        return normalise(self.schedule, weights)


class BucketedSampler(Sampler):
    """The paper's approximation (appendix on bucket sampling): buckets of about equal length, then uniform.

    A bucket's mass is the weight of its median transition times its length. Departs from the paper in
    cutting by age: cut by slot, a wrapped ring has its newest and oldest in one bucket. Buckets differ by
    at most one transition, so that none is left over. With `cached` the buckets are computed only when the
    size has changed, instead of for every batch.
    """

    def __init__(self, schedule: Schedule, buckets: int = 2_000, cached: bool = False) -> None:
        if buckets < 1:
            raise ValueError(f"BucketedSampler: buckets must be >= 1, got {buckets}")
        self.schedule = check_schedule_type(schedule)
        self.buckets = buckets
        self.cached = cached
        self._built: tuple[tuple[int, int, int | None], Ints, Floats] | None = None

    def positions(
        self, rng: np.random.Generator, batch_size: int, num_stored: int, num_envs: int = 1, clock: int | None = None
    ) -> Ints:
        edges, sums = self._table(num_stored, num_envs, clock)
        bucket: Ints = np.searchsorted(sums, rng.random(batch_size) * sums[-1], side="right")
        return rng.integers(edges[bucket], edges[bucket + 1])

    def probabilities(self, num_stored: int, num_envs: int = 1, clock: int | None = None) -> Floats:
        edges, sums = self._table(num_stored, num_envs, clock)
        lengths = np.diff(edges)
        return np.repeat(np.diff(sums, prepend=0.0) / sums[-1] / lengths, lengths)

    def _table(self, num_stored: int, num_envs: int, clock: int | None) -> tuple[Ints, Floats]:
        """The positions at which the buckets begin, and the prefix sums of their masses."""
        key = (num_stored, num_envs, clock if "clock" in uses(self.schedule) else 0)
        if self.cached and self._built is not None and self._built[0] == key:
            return self._built[1:]
        buckets = min(self.buckets, num_stored)
        edges = np.arange(buckets + 1) * num_stored // buckets
        medians = (edges[:-1] + edges[1:]) // 2
        weights = evaluate(self.schedule, ages_of(medians, num_envs), num_stored=num_stored, clock=clock)
        sums = np.cumsum(normalise(self.schedule, weights * np.diff(edges)))
        self._built = (key, edges, sums)
        return edges, sums


SAMPLERS: dict[str, Callable[[Schedule], Sampler]] = {
    "exact": AgeWeightedSampler,
    "reference": ReferenceSampler,
    "bucketed": BucketedSampler,
}
"""The samplers by name."""


def law_of(schedule: Schedule, num_envs: int) -> Law:
    """The law of `schedule` for rings filled by `num_envs` environments."""
    # By exact type: a subclass may have its own weight, which these closed forms would not know.
    if type(schedule) is LinearDecay:
        return LinearDecayLaw(schedule, num_envs)
    if type(schedule) is LinearGrowth:
        return LinearGrowthLaw(float(schedule.decay_steps), float(schedule.min_weight), num_envs)
    if type(schedule) is GeometricDecay or type(schedule) is ExponentialDecay or type(schedule) is TruncatedGeometric:
        return GeometricLaw(schedule, num_envs)
    if type(schedule) is Uniform:
        return WindowLaw(math.inf, num_envs)
    if type(schedule) is Window:
        return WindowLaw(float(schedule.steps), num_envs)
    if type(schedule) is EmphasizeRecent:
        return EmphasizeRecentLaw(schedule, num_envs)
    return SizedTableLaw(schedule, num_envs) if uses(schedule) else TableLaw(schedule, num_envs)


def check_ring(num_stored: int, head: int, capacity: int, num_envs: int, drops_early: bool = False) -> None:
    """Refuse four numbers that describe no ring, or an empty one."""
    if num_envs < 1:
        raise ValueError(f"num_envs must be >= 1, got {num_envs}")
    if not 0 < num_stored <= capacity:
        empty = "nothing is stored yet: add transitions before sampling" if num_stored == 0 else ""
        raise ValueError(empty or f"num_stored must be in 1..capacity={capacity}, got {num_stored}")
    if not 0 <= head < capacity:
        raise ValueError(f"head, the next slot to be written, must be in 0..{capacity - 1}, got {head}")
    if num_stored < capacity and head != num_stored and not drops_early:
        raise ValueError(
            f"a ring that holds {num_stored} of {capacity} transitions writes slot {num_stored} next, got head={head}: "
            "correct one of them, or pass drops_early=True if this ring drops transitions before it is full or did not "
            "start at slot 0"
        )


def check_batch_size(batch_size: int) -> None:
    """Refuse a batch of nothing."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1, got {batch_size}")


def schedule_of(
    schedule: Schedule | None,
    decay_steps: float | Literal["auto"] | None,
    min_weight: float | None,
    called: str = "schedule",
    decay_fraction: float | None = None,
) -> Schedule:
    """Return `schedule` if it is given, else SWD's linear decay with the numbers that are.

    Args:
        schedule: a schedule of ours or the user's own.
        decay_steps: T, in transitions; "auto" for a tenth of what is stored.
        min_weight: what old transitions keep.
        called: what the caller's argument for a schedule is called.
        decay_fraction: T as a fraction of what is stored, instead of decay_steps.
    """
    numbers = {"decay_steps": decay_steps, "min_weight": min_weight, "decay_fraction": decay_fraction}
    decay_numbers: dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}
    if schedule is None:
        return LinearDecay(**decay_numbers)
    if decay_numbers:
        raise ValueError(
            f"{called}={schedule!r} has its own numbers: leave out {' and '.join(decay_numbers)}, or leave out {called}"
        )
    return check_schedule_type(schedule)


def check_schedule_type(schedule: Schedule) -> Schedule:
    """`schedule`, or an error if it is not one (a class instead of its instance, a name)."""
    if isinstance(schedule, type) or not callable(getattr(schedule, "weight", None)):
        raise TypeError(f"a schedule is an object with weight(age), such as LinearDecay(); got {schedule!r}")
    return schedule
