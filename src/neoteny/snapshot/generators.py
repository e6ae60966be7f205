"""NumPy's random generators as plain data, and back.

A position in a saved state is an index into the generator's memory, which NumPy does not check: it is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_POSITIONS = {"PCG64": 0, "PCG64DXSM": 0, "MT19937": 624, "Philox": 4, "SFC64": 0}
"""The bit generators, and the largest position in the numbers that each has ready; 0: it has none ready."""


def restore_generator(state: dict[str, Any], current: Any) -> np.random.Generator:
    """The generator of a saved state: `current`, if it is of the same kind."""
    name = state["bit_generator"]
    _check(name, state)
    if type(current) is not np.random.Generator or type(current.bit_generator).__name__ != name:
        current = np.random.Generator(getattr(np.random, name)())
    current.bit_generator.state = state
    return current


def restore_random_state(state: dict[str, Any], current: Any) -> np.random.RandomState:
    """The same for NumPy's older RandomState."""
    name = state["bit_generator"]
    _check(name, state)
    if name != "MT19937":
        raise ValueError(f"a RandomState is of MT19937, got {name!r}")
    random = current if type(current) is np.random.RandomState else np.random.RandomState()
    random.set_state(state)
    return random


def _check(name: Any, state: dict[str, Any]) -> None:
    if name not in _POSITIONS:
        raise ValueError(f"a bit generator is one of {', '.join(_POSITIONS)}, got {name!r:.60}")
    position = {"MT19937": state["state"].get("pos"), "Philox": state.get("buffer_pos")}.get(name, 0)
    if type(position) is not int or not 0 <= position <= _POSITIONS[name]:
        raise ValueError(f"{name} has positions from 0 to {_POSITIONS[name]}, got {position!r:.60}")
    arrays = [*state["state"].values(), *state.values()]
    sizes = {"MT19937": {624}, "Philox": {2, 4}, "SFC64": {4}}.get(name, set())
    if any(isinstance(array, np.ndarray) and (array.ndim != 1 or array.size not in sizes) for array in arrays):
        raise ValueError(f"the state of a {name} has arrays of another size")
