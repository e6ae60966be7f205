"""The numbers of a schedule, checked: each function raises ValueError if one is not what it must be."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def require(schedule: object, name: str, allowed: Callable[[float], bool], allowed_in_words: str) -> None:
    """Refuse a field that is no number, or not one that is allowed."""
    value = getattr(schedule, name)
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float, np.integer, np.floating))
        or not allowed(float(value))
    ):
        raise ValueError(f"{type(schedule).__name__}: {name} must be {allowed_in_words}, got {value!r}")


def require_positive(schedule: object, name: str) -> None:
    """Refuse a field that is not above 0, or so small or large that sums overflow."""
    require(schedule, name, lambda value: 0 < value < math.inf, "a finite number > 0")
    # Beyond, closed forms divide infinities, and on the device, in float32, zeros.
    require(schedule, name, lambda value: 1e-30 <= value <= 1e30, "from 1e-30 to 1e30")


def require_unit(schedule: object, name: str) -> None:
    """Refuse a field that is not from 0 to 1."""
    require(schedule, name, lambda value: 0 <= value <= 1, "a number in [0, 1]")
