"""A MuJoCo simulation as plain data, and back.

MuJoCo believes every index in a model: a wrong one ends the process. So nothing of a saved state that MuJoCo uses as an
index, a size or a type is ever written into a simulation. A model's whole numbers stay those of the environment that
was just made, and a state that has others is refused; a simulation's whole numbers are computed again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Large arrays that no step changes, and pointers.
_STATIC = ("_", "mesh_", "tex_", "skin_", "bvh_", "oct_", "plugin_data")
_REPORTED = {"eq_active": 1, "solver_niter": 1 << 20, "solver_nnz": 1 << 30}
"""Whole numbers of a simulation that nothing is looked up by, and the largest of each."""
_ENUMS = {"integrator": "mjtIntegrator", "cone": "mjtCone", "jacobian": "mjtJacobian", "solver": "mjtSolver"}
_FLAGS = {"disableflags": "mjtDisableBit", "enableflags": "mjtEnableBit"}
_ITERATIONS = 10_000
"""Of a solver, at most."""


def has_delays(data: Any) -> bool:
    """Whether the simulation remembers earlier signals: among those it has indices, as floating-point numbers."""
    return getattr(data, "history", np.empty(0)).size > 0


def save_simulation(data: Any) -> dict[str, Any]:
    """All arrays: observations and rewards read what the last sub-step left, and tasks write into the model."""
    return {
        "model": _pack(_fields(data.model, np.ndarray)),
        "options": [_settings(part) for part in (data.model.opt, data.model.stat)],
        "data": _pack(_data_arrays(data)),
        "scalars": _scalars(data),
    }


def restore_simulation(data: Any, state: dict[str, Any]) -> None:
    """Make a simulation go on as the saved one; ValueError if the state is not one of this model."""
    import mujoco  # type: ignore[import-untyped]

    if has_delays(data):
        raise ValueError("its MuJoCo model delays actuators or sensors, whose state is not restored")
    model = _unpack(state["model"], arrays := _fields(data.model, np.ndarray))
    for name, saved in model.items():
        if arrays[name].dtype.kind != "f" and not np.array_equal(saved, arrays[name]):
            raise ValueError(f"its MuJoCo model has another {name} than the environment that was made here")
        if not np.isfinite(saved[np.isfinite(arrays[name])]).all():
            raise ValueError(f"{name} of its MuJoCo model is not finite")
    parts = (data.model.opt, data.model.stat)
    settings = [_checked(part, saved) for part, saved in zip(parts, state["options"], strict=True)]
    kept = _unpack(state["data"], _data_arrays(data))
    kept = {name: saved for name, saved in kept.items() if saved.dtype.kind == "f" or _is_reported(name, saved)}
    scalars = _same_numbers(_scalars(data), state["scalars"])
    for name, saved in model.items():
        if arrays[name].dtype.kind == "f":
            arrays[name][...] = saved
    for part, found in zip(parts, settings, strict=True):
        for name, value in found.items():
            setattr(part, name, value)
    _write(kept, data)
    # dm_control steps with mj_step2 first, which goes on from the contacts and constraints that mj_step1 left. They
    # follow from what was just set; what else mj_step1 changes is set once more.
    try:
        mujoco.mj_step1(data.model, data)
    except mujoco.FatalError as error:
        raise ValueError(f"MuJoCo does not go on from its state: {error}") from error
    _write(kept, data)
    for name, value in scalars.items():
        setattr(data, name, value)


def _scalars(data: Any) -> dict[str, Any]:
    flags = [name for name in dir(data) if name.startswith("flg_")]  # which of its arrays are up to date
    return {name: getattr(data, name) for name in ("time", *flags)}


def _is_reported(name: str, saved: np.ndarray) -> bool:
    return name in _REPORTED and saved.min() >= 0 and saved.max() <= _REPORTED[name]


def _write(saved: dict[str, np.ndarray], data: Any) -> None:
    for name, array in saved.items():
        getattr(data, name)[...] = array


def _checked(part: Any, saved: dict[str, Any]) -> dict[str, Any]:
    """Saved options of a model, or its statistics: numbers that MuJoCo can work with."""
    found = _same_numbers(_settings(part), saved)
    for name, value in found.items():
        if isinstance(value, int) and not isinstance(value, bool) and not _is_option(name, value):
            raise ValueError(f"{name} of its MuJoCo model is {value:,}")
    if found.get("timestep", 1) <= 0:
        raise ValueError(f"timestep of its MuJoCo model is {found['timestep']}")
    return found


def _is_option(name: str, value: int) -> bool:
    import mujoco

    if name in _ENUMS:
        return value in [int(one) for one in getattr(mujoco, _ENUMS[name]).__members__.values()]
    if name in _FLAGS:
        bits = [int(bit) for bit in getattr(mujoco, _FLAGS[name]).__members__.values()]
        return 0 <= value < 2 * max(bit for bit in bits if bit.bit_count() == 1)
    return 0 <= value <= (2**31 - 1 if name == "disableactuator" else _ITERATIONS)


def _same_numbers(mine: dict[str, Any], saved: Any) -> dict[str, Any]:
    """`saved`, if it has the names of `mine`, and for each a number of the same type or an array of the same shape."""
    if saved.keys() != mine.keys():
        raise ValueError("this is the state of another version of MuJoCo")
    for name, value in mine.items():
        if type(saved[name]) is not type(value) or np.shape(saved[name]) != np.shape(value):
            raise ValueError(f"{name} of its MuJoCo model is {saved[name]!r:.60}")
        if not np.isfinite(saved[name]).all():
            raise ValueError(f"{name} of its MuJoCo model is not finite")
    return dict(saved)


def _fields(struct: Any, *kinds: type) -> dict[str, Any]:
    found = {name: getattr(struct, name) for name in dir(struct) if not name.startswith(_STATIC)}
    return {name: value for name, value in found.items() if isinstance(value, kinds)}


def _settings(struct: Any) -> dict[str, Any]:
    found = _fields(struct, int, float, np.ndarray)
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in found.items()}


def _data_arrays(data: Any) -> dict[str, np.ndarray]:
    """The arrays that stay in their place; a new MjData has no others yet, or lets NumPy make them up."""
    import mujoco

    new = _fields(mujoco.MjData(data.model), np.ndarray)
    return {name: getattr(data, name) for name, array in new.items() if array.size and not array.flags.owndata}


def _pack(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Hundreds of small arrays as one for each dtype."""
    packed = {}
    for dtype in sorted({str(array.dtype) for array in arrays.values()}):
        names = [name for name, array in arrays.items() if array.dtype == dtype]
        values = np.concatenate([arrays[name].ravel() for name in names])
        packed[dtype] = {"sizes": [[name, arrays[name].size] for name in names], "values": values}
    return packed


def _unpack(packed: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The saved arrays by name, of the shapes of `arrays`."""
    expected = _pack(arrays)
    found = {}
    for dtype in expected.keys() | packed.keys():
        mine, saved = expected.get(dtype), packed.get(dtype)
        if mine is None or saved is None or mine["sizes"] != saved["sizes"]:
            raise ValueError("this is the state of another MuJoCo model, or of another version of MuJoCo")
        values, start = saved["values"], 0
        if values.dtype != dtype or values.shape != mine["values"].shape:
            raise ValueError(f"its MuJoCo model has other numbers of {dtype}")
        for name, size in mine["sizes"]:
            found[name] = values[start : start + size].reshape(arrays[name].shape)
            start += size
    return found
