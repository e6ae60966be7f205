"""Matching: the number of one schedule that makes it as strong as another, so that their shapes can be compared."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from neoteny.replay.ages.ageing import Describing, Floats, Schedule, describe
from neoteny.replay.ages.schedules import (
    EmphasizeRecent,
    ExponentialDecay,
    GeometricDecay,
    LinearDecay,
    LinearGrowth,
    PolynomialDecay,
    TruncatedGeometric,
    Window,
)

By = Literal["mean_age", "newest_share", "effective_sample_size"]
_BISECTIONS = 100
_CLOSE = 1e-9
"""How near, relative to what is sought, the search ends."""


_POINTS = 60


def _spaced(weak: float, strong: float) -> Floats:
    return np.geomspace(weak, strong, _POINTS)


def _steps(size: int) -> Floats:
    return _spaced(1e6 * size, 1.5)


_NUMBERS: dict[type, tuple[str, Callable[[int], Floats]]] = {
    LinearDecay: ("decay_steps", _steps),
    LinearGrowth: ("decay_steps", _steps),
    ExponentialDecay: ("decay_steps", lambda size: _spaced(1e6 * size, 0.05)),
    PolynomialDecay: ("decay_steps", _steps),
    GeometricDecay: ("rate", lambda size: _spaced(1e-6 / size, 1.0 - 1e-9)),
    TruncatedGeometric: ("mean_age", lambda size: _spaced(size, 1.0 + 1e-9)),
    Window: ("steps", lambda size: _spaced(size, 1.0)),
    EmphasizeRecent: ("eta", lambda size: 1.0 - _spaced(1e-12, 0.999)),
}
"""Of each schedule the number that is searched for, and values of it for a buffer of a size, the weakest first.

With a floor the strength falls again at the far end, where all is floor: the weaker of two numbers is the one meant."""


def match(
    schedule: Schedule, *, like: Schedule, by: By = "mean_age", capacity: int | Sequence[int], num_envs: int = 1
) -> Any:
    """Return `schedule` with its one number changed so that it is as strong as `like` in a full buffer.

    The number is T of linear, exponential and polynomial schedules (or their fraction of what is stored), the rate of
    geometric decay, the mean age of `TruncatedGeometric`, the length of a window and eta of `EmphasizeRecent`; all
    others, such as min_weight, stay as they are. A window has whole steps, so it is matched to the nearest. With a
    floor two numbers can be as strong: the weaker is taken, or that of `like` if it is one of them.

    Args:
        schedule: one of ours.
        like: the schedule to match, of ours or of your own.
        by: the mean age of what is drawn, how much more often than under uniform replay the newest is drawn, or the
            effective sample size.
        capacity: transitions in the buffer. Several: on average over these, such as the sizes of a buffer that grows.
        num_envs: environments that filled it.

    Returns:
        a schedule of the same kind.

    Raises:
        ValueError: if no number of `schedule` reaches what `like` has.

    Example:
        >>> import neoteny
        >>> swd = neoteny.LinearDecay(80_000, 0.1)
        >>> geometric = neoteny.match(neoteny.TruncatedGeometric(), like=swd, by="mean_age", capacity=1_000_000)
        >>> round(geometric.mean_age) == round(swd.describe(capacity=1_000_000).mean_age)
        True
    """
    if by not in ("mean_age", "newest_share", "effective_sample_size"):
        raise ValueError(f"by must be mean_age, newest_share or effective_sample_size, got {by!r}")
    if type(schedule) not in _NUMBERS or not isinstance(schedule, Describing):
        known = ", ".join(kind.__name__ for kind in _NUMBERS)
        raise ValueError(f"match searches the number of {known}, got {schedule!r}")
    field, values_for = _NUMBERS[type(schedule)]
    if isinstance(schedule, LinearDecay) and schedule.uses:
        field, values_for = "decay_fraction", lambda size: _spaced(1e6, 2.0 / size)
    sizes = np.atleast_1d(capacity).tolist()
    if not sizes:
        raise ValueError("capacity must be a number of transitions, or several, got an empty list")

    def strength(one: Schedule) -> float:
        return float(np.mean([getattr(describe(one, capacity=size, num_envs=num_envs), by) for size in sizes]))

    aim = strength(like)

    def changed(value: float) -> Any:
        return dataclasses.replace(schedule, **{field: float(value)})  # type: ignore[type-var]

    def beyond(value: float) -> float:
        return strength(changed(value)) / aim - 1.0

    own = getattr(like, field, None) if type(like) is type(schedule) else None
    if isinstance(own, (int, float)) and abs(beyond(own)) < _CLOSE:
        return changed(own)
    weak, over = math.nan, math.nan
    reached = []
    for strong in values_for(max(sizes)):
        now = beyond(strong)
        reached.append((1.0 + now) * aim)
        if now == 0.0 or now * over < 0.0:
            return changed(_between(beyond, weak, strong, over, now))
        weak, over = strong, now
    raise ValueError(
        f"{type(schedule).__name__} in a buffer of {_listed(sizes)} has a {by} from {min(reached):g} to "
        f"{max(reached):g}, and {like} has {aim:g}"
    )


def _listed(sizes: Sequence[int]) -> str:
    """One size, or the range of several."""
    return f"{sizes[0]:,}" if len(sizes) == 1 else f"{min(sizes):,} to {max(sizes):,}"


def _between(beyond: Callable[[float], float], low: float, high: float, at_low: float, at_high: float) -> float:
    """Where a function is 0 between two values at which its signs differ, by bisection; or as near as it comes."""
    if at_high == 0.0:
        return high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        now = beyond(middle)
        if abs(now) < _CLOSE or middle in (low, high):
            return middle
        low, high, at_low = (middle, high, now) if now * at_low > 0.0 else (low, middle, at_low)
    return min((low, high), key=lambda value: abs(beyond(value)))
