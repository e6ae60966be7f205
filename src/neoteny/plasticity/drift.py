"""Drift: how far what was done at each age is from what would be done now.

Ages are cut into ranges, a few transitions of each are looked at, and an agent says of each how far its action is from
what the present policy would do (`TrainableNetwork.drift`). Here is what is made of those distances. NumPy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RANGES = 16
"""Ranges of age, spaced evenly by their logarithm."""
SAMPLES = 32
"""Transitions that are looked at in each."""
LEAST = 80
"""Transitions that must be stored: with fewer, ranges would be empty."""
MOST = 10**15
"""What no buffer holds: a log that says more is damaged."""
LARGEST = 1e100
"""A logged number beyond it counts as infinite: a mean of two such would overflow."""
USUAL = 0.95
"""The share of the newest range's distances that count as usual."""

LATE = 0.25
"""The last share of a run's measurements, over which drift is taken by its median."""

Floats = NDArray[np.float64]


def age_ranges(num_stored: int) -> NDArray[np.int64]:
    """The bounds of the ranges, (RANGES + 1,): range r is of the ages bounds[r] + 1 to bounds[r + 1].

    The newest range is of 32 ages, or of a sixteenth of what is stored if that is less.
    """
    if num_stored < LEAST:
        raise ValueError(f"num_stored must be >= {LEAST}, got {num_stored}")
    upper = np.geomspace(min(SAMPLES, num_stored / RANGES), num_stored, RANGES)
    return np.r_[0, np.floor(upper * (1 + 1e-12)).astype(np.int64)]


def middle_ages(num_stored: int) -> Floats:
    """An age in the middle of each range, by its logarithm, (RANGES,)."""
    bounds = age_ranges(num_stored)
    return np.sqrt((bounds[:-1] + 1.0) * bounds[1:])


def far_share(distances: Any) -> Floats:
    """The share of each range that is far off: beyond the 95th percentile of the newest range.

    Where no distance at all is beyond it, as when more than 5% of the newest disagree and more than to disagree is not
    possible, those that reach it are far off.

    Args:
        distances: (ranges, samples), the newest range first.

    Returns:
        from 0 to 1, (ranges,).
    """
    distances = np.asarray(distances, np.float64)
    limit, largest = np.quantile(distances[0], USUAL), distances.max()
    far = distances > limit if limit < largest else (distances == largest) & (distances > distances.min())
    return far.mean(axis=1)


class Curve(NamedTuple):
    """The drift of each range of age late in a run, (RANGES,) each but for the first."""

    num_stored: int
    """At the last measurement, by which the ages are told."""
    ages: Floats
    """In the middle of each range."""
    means: Floats
    """The mean distance of what was looked at."""
    far: Floats
    """The share that is far off."""


def named(num_stored: int, means: Any, far: Any) -> dict[str, float]:
    """A measurement as it is logged: ``drift_stored``, and for each range ``drift/00`` and ``drift_far/00`` on."""
    return {
        "drift_stored": num_stored,
        **{f"drift/{index:02}": float(mean) for index, mean in enumerate(means)},
        **{f"drift_far/{index:02}": float(share) for index, share in enumerate(far)},
    }


def late_curve(series: Mapping[str, Any]) -> Curve | None:
    """The median of the last quarter of a run's measurements, by their names in the log; None if there are none.

    Ranges are told apart by their number, and their ages are those of the last measurement.
    """
    late = {name: _late(series[name]) for name in named(0, range(RANGES), range(RANGES)) if name in series}
    if len(late) <= 2 * RANGES or any(not values.size for values in late.values()):
        return None
    num_stored = int(late["drift_stored"][-1])
    if not LEAST <= num_stored <= MOST:
        return None
    means, far = (
        np.array([np.median(late[f"{name}/{index:02}"]) for index in range(RANGES)]) for name in ("drift", "drift_far")
    )
    return Curve(num_stored, middle_ages(num_stored), means, far)


def _late(values: Any) -> Floats:
    """The last quarter of what is finite and not beyond LARGEST, and at least one."""
    numbers = np.array([np.nan if value is None else value for value in values], np.float64)
    numbers = numbers[np.abs(numbers) <= LARGEST]
    return numbers[-max(1, round(LATE * len(numbers))) :]
