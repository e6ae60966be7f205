"""Saved states: what is read from one is checked before any of it is used; what is wrong is one sentence."""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def part(state: Mapping[str, Any], name: str) -> Any:
    """What `state` has under `name`."""
    if not isinstance(state, Mapping) or name not in state:
        raise ValueError(f"the saved replay has no {name!r}: it is not a state of this buffer")
    return state[name]


def whole(state: Mapping[str, Any], name: str, least: int, most: int | None = None) -> int:
    """A whole number from `least` to `most`."""
    value = part(state, name)
    numeric = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not numeric or value < least or (most is not None and value > most):
        allowed = f">= {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"the saved {name!r} must be a whole number {allowed}, got {reprlib.repr(value)}")
    return int(value)


def real(state: Mapping[str, Any], name: str, least: float, most: float) -> float:
    """A number from `least` to `most`."""
    value = part(state, name)
    if not isinstance(value, (float, np.floating)) or not least <= value <= most:
        raise ValueError(f"the saved {name!r} must be a number from {least:g} to {most:g}, got {reprlib.repr(value)}")
    return float(value)


def array(
    state: Mapping[str, Any],
    name: str,
    dtype: DTypeLike,
    shape: tuple[int | None, ...],
    least: float | None = None,
    most: float | None = None,
) -> NDArray[Any]:
    """An array of `dtype` and `shape` (None: of any length), its values from `least` to `most`; not a copy."""
    value = part(state, name)
    kind = np.dtype(dtype)
    if not isinstance(value, np.ndarray) or value.dtype.kind != kind.kind or not np.can_cast(value.dtype, kind):
        got = value.dtype if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise ValueError(f"the saved {name!r} must be an array of {kind}, got {got}")
    if len(value.shape) != len(shape) or any(
        want is not None and have != want for have, want in zip(value.shape, shape, strict=True)
    ):
        sides = ", ".join("any" if side is None else str(side) for side in shape)
        raise ValueError(f"the saved {name!r} must have the shape ({sides}), got {value.shape}")
    if value.size and least is not None and not value.min() >= least:  # not: a NaN is refused
        raise ValueError(f"the saved {name!r} must be at least {least:g}, got {value.min()}")
    if value.size and most is not None and not value.max() <= most:
        raise ValueError(f"the saved {name!r} must be at most {most:g}, got {value.max()}")
    return value.astype(kind, copy=False)


def generator(state: Mapping[str, Any], name: str, like: np.random.Generator) -> Any:
    """The state of a generator of the kind of `like`."""
    value = part(state, name)
    tried = copy.deepcopy(like).bit_generator
    try:
        tried.state = value
        same = tried.state == value
    except (ValueError, TypeError, KeyError, OverflowError):
        same = False
    if not same:
        raise ValueError(f"the saved {name!r} is not the state of a {type(tried).__name__} generator")
    return value
