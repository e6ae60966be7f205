"""Ageing: what a schedule is, what its weights may be, and what they do to a buffer.

A schedule is anything with ``weight(age)``: ages in, weights out, elementwise. Ages count transitions and
the newest is 1 (``docs/glossary.md``). Weights need not sum to one.

A schedule that also needs the buffer's size or the clock says so with ``uses``, a tuple of
``"num_stored"`` and ``"clock"``, and receives them as keyword arguments. Its table of weights is then
rebuilt, at a cost linear in the buffer, whenever what it uses has changed since the last draw.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Schedule(Protocol):
    """What a schedule is: ``weight(age)``, the weight of each age, of its shape; asked of any age from 1 on."""

    @property
    def weight(self) -> Callable[..., Any]:
        """A method of the age, and of what ``uses`` names."""
        ...


class Describing:
    """What our own schedules inherit: ``describe``, ``fresh_share``, ``effective_sample_size``. A user's may, too."""

    weight: Callable[..., Any]

    def describe(self, *, capacity: int, num_envs: int = 1) -> Description:
        """What this schedule does to a full buffer of `capacity` transitions."""
        return describe(self, capacity=capacity, num_envs=num_envs)

    def fresh_share(self, size: int, newest: int = 1) -> float:
        """The share of draws that go to the `newest` of `size` held: sum_{a <= newest} w(a) / sum_{a <= size} w(a).

        The coefficient of the fresh term in Theorem 3 of SWD (ICLR 2026), which is 1 / size under uniform replay. In
        closed form, for one environment (`neoteny.replay.ages.sums`). Linear decay, while size > T: for the newest
        (1 - 1/T) / (T (1 - w_min)^2 / 2 + w_min size), up to terms of 1/T. With w_min > 0 it falls as 1 / size
        still, at most 1 / w_min times as large.
        """
        from neoteny.replay.ages.sums import weight_sums  # which knows the schedules, which inherit from this

        if not 1 <= newest <= size:
            raise ValueError(f"newest must be from 1 to size, {size}, got {newest}")
        total = positive_total(self, weight_sums(self, size, size).weights, size)
        return weight_sums(self, newest, size).weights / total

    def effective_sample_size(self, size: int) -> float:
        """1 / sum(p^2) of `size` transitions, in closed form, for one environment: (sum w)^2 / sum w^2."""
        from neoteny.replay.ages.sums import weight_sums

        if size < 1:
            raise ValueError(f"size must be >= 1, got {size}")
        weights, squares = weight_sums(self, size, size)
        return positive_total(self, weights, size) ** 2 / squares


@dataclass(frozen=True)
class Description:
    """What a schedule does to a full buffer."""

    schedule: object
    capacity: int
    num_envs: int
    newest_share: float
    """The probability of drawing one of the newest transitions, over the same under uniform replay."""
    mean_age: float
    """The mean age of what is drawn, in transitions."""
    uniform_mean_age: float
    """The same under uniform replay."""
    effective_sample_size: float
    """1 / sum(p ** 2): how many transitions uniform replay would need for the same variance."""
    entropy: float
    """-sum(p log p), in nats."""
    floor_mass: float
    """The share of draws that go to transitions held at min_weight (0 for a schedule without one)."""

    def __str__(self) -> str:
        each = f" from {self.num_envs} environments" if self.num_envs > 1 else ""
        return "\n".join(
            [
                f"{self.schedule} over {self.capacity:,} transitions{each}",
                f"  newest transition    {self.newest_share:.2f} x as often as under uniform replay",
                f"  mean age             {self.mean_age:,.0f} transitions (uniform {self.uniform_mean_age:,.0f})",
                f"  effective sample     {self.effective_sample_size:,.0f} transitions "
                f"({self.effective_sample_size / self.capacity:.1%} of the buffer)",
                f"  drawn from the floor {self.floor_mass:.1%}",
            ]
        )


def describe(schedule: Schedule, *, capacity: int, num_envs: int = 1) -> Description:
    """What `schedule`, ours or a user's, does to a full buffer of `capacity` transitions."""
    if num_envs < 1 or capacity < num_envs:
        raise ValueError(f"capacity must be at least num_envs >= 1, got {capacity} and {num_envs}")
    ages = ages_of(np.arange(capacity), num_envs)
    weights = evaluate(schedule, ages, num_stored=capacity, clock=capacity)
    p = normalise(schedule, weights)
    floor = getattr(schedule, "min_weight", None)
    effective, entropy = concentration(p)
    return Description(
        schedule=schedule,
        capacity=capacity,
        num_envs=num_envs,
        newest_share=float(p[0] * capacity),
        mean_age=float(p @ ages),
        uniform_mean_age=float(ages.mean()),
        effective_sample_size=effective,
        entropy=entropy,
        floor_mass=float(p[weights == floor].sum()) if floor is not None else 0.0,
    )


def concentration(probabilities: Floats) -> tuple[float, float]:
    """A law's effective sample size 1 / sum(p ** 2), and its entropy -sum(p log p) in nats."""
    p = probabilities[probabilities > 0]
    return float(1.0 / (p * p).sum()), float(-(p * np.log(p)).sum())


def ages_of(positions: Ints, num_envs: int) -> Ints:
    """The age of the item `position` places behind the newest: 1 + (position // num_envs) * num_envs."""
    return 1 + (positions // num_envs) * num_envs


def evaluate(schedule: Schedule, ages: Ints, *, num_stored: int, clock: int | None) -> Floats:
    """`schedule`'s weights of `ages`, checked: of their shape, finite and not negative."""
    known = {"num_stored": num_stored, "clock": clock}
    asked = uses(schedule)
    if clock is None and "clock" in asked:
        raise ValueError(f"{schedule} uses the clock: pass clock=, the number of transitions ever added")
    weights = np.asarray(schedule.weight(ages, **{name: known[name] for name in asked}), np.float64)
    if weights.shape != ages.shape:
        raise ValueError(
            f"{schedule}.weight must return one weight for each age: shape {ages.shape}, got {weights.shape}"
        )
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(f"{schedule}.weight must be finite and >= 0, got {weights[first]} at age {ages[first]}")
    return weights


def normalise(schedule: Schedule, weights: Floats) -> Floats:
    """The probabilities that `weights` stand for; an error if they are all 0."""
    return weights / positive_total(schedule, float(weights.sum()), len(weights))


def positive_total(schedule: object, total: float, num_stored: int) -> float:
    """`total`, or an error if nothing could ever be drawn."""
    if not total > 0:
        raise ValueError(
            f"{schedule} gives every one of the {num_stored} stored transitions weight 0; at least one must be above 0"
        )
    return total


def warn_if_out_of_reach(schedule: object, capacity: int, stacklevel: int) -> None:
    """Warn if `schedule` still changes at ages that a buffer of `capacity` transitions never holds."""
    reach = getattr(schedule, "reach", math.inf)
    if capacity < reach < math.inf:
        warnings.warn(
            f"{schedule} still changes up to age {reach:,.0f}, and this buffer forgets at {capacity:,}: "
            f"choose a shorter schedule or a larger capacity",
            stacklevel=stacklevel + 1,
        )


def uses(schedule: Schedule) -> tuple[str, ...]:
    """What a schedule asks for beyond the age: a tuple of ``"num_stored"`` and ``"clock"``."""
    asked = tuple(getattr(schedule, "uses", ()))
    unknown = set(asked) - {"num_stored", "clock"}
    if unknown:
        raise ValueError(f"{schedule}.uses may hold 'num_stored' and 'clock', got {sorted(unknown)}")
    return asked
