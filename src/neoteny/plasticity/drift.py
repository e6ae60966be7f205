"""Drift: how far what was done at each age is from what would be done now.

Ages are cut into ranges, a few transitions of each are looked at, and an agent says of each how far its action is from
what the present policy would do (`TrainableNetwork.drift`). Here is what is made of those distances. NumPy alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

RANGES = 16
"""Ranges of age, spaced evenly by their logarithm."""
SAMPLES = 32
"""Transitions that are looked at in each."""
LEAST = 80
"""Transitions that must be stored: with fewer, ranges would be empty."""
USUAL = 0.95
"""The share of the newest range's distances that count as usual."""

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
