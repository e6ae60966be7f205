"""T from drift (experimental, ours): the largest T that draws little of what is far from what would be done now."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from neoteny.replay.ages.ageing import Floats, Ints

ALLOWED = 0.1
"""How much more of the draws may be far off than of the newest transitions."""
SMOOTHING = 0.9
"""The share of the T before in the next."""
SHORTEST = 0.01
"""The least T, over what is stored; the largest is what is stored."""
_TRIED = 400
"""Values of T that are tried: each 1.2% below the one before."""


def shares_of_ranges(bounds: Ints, reach: ArrayLike) -> Floats:
    """The share of draws in each range of age under the weights max(0, 1 - age / reach), in closed form.

    Args:
        bounds: of the ranges, (ranges + 1,): range r is of the ages bounds[r] + 1 to bounds[r + 1].
        reach: the ages at which weights end, each >= 2, (reaches,).

    Returns:
        (reaches, ranges), each row of which adds up to 1.
    """
    reach = np.asarray(reach, np.float64)[:, None]
    counted = np.minimum(bounds, np.ceil(reach) - 1.0)
    sums = counted - counted * (counted + 1.0) / (2.0 * reach)
    return np.diff(sums, axis=1) / sums[:, -1:]


def decay_steps_from_drift(bounds: Ints, far: ArrayLike, min_weight: float) -> float:
    """The largest T, from a hundredth of what is stored to all of it, that draws little that is far off.

    That is: at most 0.1 more of its draws are far off than of the newest range. What w_min adds is left out of the
    count, since it is drawn evenly from all ages whatever T is: the rest is max(0, 1 - age / ((1 - w_min) T)).

    Args:
        bounds: of the ranges of age, (ranges + 1,), as `shares_of_ranges` takes them; the last is what is stored.
        far: the share of each range that is far off, (ranges,).
        min_weight: w_min.

    Returns:
        T in transitions; the least if none draws so little.
    """
    far = np.asarray(far, np.float64)
    num_stored = float(bounds[-1])
    tried = np.geomspace(num_stored, SHORTEST * num_stored, _TRIED)
    drawn = shares_of_ranges(bounds, np.maximum(2.0, (1.0 - min_weight) * tried)) @ far
    within = drawn <= far[0] + ALLOWED + 1e-12
    return float(tried[np.argmax(within)] if within.any() else tried[-1])


def moved(before: float | None, measured: float, num_stored: int) -> float:
    """The next T: 0.9 of the one before and 0.1 of what was measured, from N / 100 to N and at least 2.

    Args:
        before: the T until now; None before the first measurement, which is then taken as it is.
        measured: what `decay_steps_from_drift` found.
        num_stored: N.
    """
    following = measured if before is None else SMOOTHING * before + (1.0 - SMOOTHING) * measured
    return max(2.0, min(float(num_stored), max(SHORTEST * num_stored, following)))
