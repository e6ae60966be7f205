"""An environment's whole state amid an episode, as plain data, for another process to go on from exactly there."""

from __future__ import annotations

import functools
import types
from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from neoteny.snapshot.generators import restore_generator, restore_random_state
from neoteny.snapshot.physics import has_delays, restore_simulation, save_simulation

# Classes whose attributes are known to be all of their state: as environments and wrappers, and as attributes of those.
# A subclass of one lives in its author's module, not here.
_TRUSTED = tuple(
    "gymnasium.envs.classic_control. gymnasium.envs.toy_text. gymnasium.envs.mujoco. gymnasium.wrappers. "
    "neoteny. ale_py. shimmy. minatar.".split()
)
_HELPERS = ("gymnasium.wrappers.", "dm_control.rl.control.", "dm_control.suite.", "minatar.environment")
# What is the same in all environments that are made the same way, or is there for a screen.
_CONSTANTS = frozenset(
    "env spec metadata _metadata _cached_spec _saved_kwargs _ezpickle_args _ezpickle_kwargs env_type _action_set "
    "render_kwargs viewer mujoco_renderer P desc render_mode fullpath width height camera_name camera_id frame_skip "
    "observation_structure _main_body _n_sub_steps _step_limit _max_episode_steps _action_space _observation_space "
    "noop_max screen_size terminal_on_life_loss grayscale_obs grayscale_newaxis scale_obs _game _game_mode "
    "_game_difficulty _frameskip _obs_type sound_obs continuous continuous_action_threshold "
    "_disable_render_order_enforcing".split()
)
# Functions are taken to keep no state.
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial, np.ufunc)
_CONSTANT_TYPES = (gym.Space, EnvSpec, type, types.ModuleType, np.dtype, *_FUNCTIONS)
_CONSTANT_NAMES = ("pygame.", "dm_env.specs.", "mujoco._structs.MjModel")  # a model is saved with its MjData
_CLOCK = frozenset({"episode_start_time", "time_queue"})  # of RecordEpisodeStatistics: times of this process
_NUMBERS = (bool, int, float, np.number, np.bool_)
# What reading a state raises if it does not have the form that saving gives it: a stranger may have made it.
_UNFIT = (KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError)


class Unsavable(Exception):
    """Why an environment's state cannot be saved, in one sentence."""


def save(env: gym.Env) -> dict[str, Any]:
    """All that decides how `env` goes on: dicts, lists, strings, numbers, None and arrays of numbers, nothing else."""
    layers = [{"class": _name(layer), "state": _save_layer(layer)} for layer in _layers(env)]
    return {"id": _id(env), "layers": layers}


def restore(env: gym.Env, state: dict[str, Any]) -> None:
    """Make `env`, which was made like the saved one and has been reset, go on exactly as the saved one does."""
    try:
        _restore_layers(env, state)
    except _UNFIT as error:
        raise ValueError(f"its environment's state cannot be restored ({type(error).__name__}: {error})") from error


def _restore_layers(env: gym.Env, state: dict[str, Any]) -> None:
    layers = _layers(env)
    here = [_id(env), *map(_name, layers)]
    saved = [state["id"], *(one["class"] for one in state["layers"])]
    if saved != here:
        raise ValueError(f"the state of {_chain(saved)} cannot be restored into {_chain(here)}")
    for layer, one in zip(layers, state["layers"], strict=True):
        attributes = dict(one["state"])
        if ("get_state()" in attributes) != _opts_in(type(layer)):
            raise ValueError(f"the state of a {_name(layer)} is not what its get_state() gives")
        if "get_state()" in attributes:
            layer.set_state(_decode(attributes.pop("get_state()")))
        _restore_attributes(layer, attributes)


def _layers(env: Any) -> list[Any]:
    return [env, *_layers(env.env)] if isinstance(env, gym.Wrapper) else [env]


def _id(env: gym.Env) -> str | None:
    return None if env.unwrapped.spec is None else env.unwrapped.spec.id


def _name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _chain(names: list[Any]) -> str:
    return f"{names[0] or 'an environment'} ({' over '.join(name.rpartition('.')[2] for name in names[1:])})"


def _save_layer(layer: Any) -> dict[str, Any]:
    name = _name(layer)
    if _opts_in(type(layer)):
        state = {"get_state()": _encode(layer.get_state(), f"{name}.get_state()")}
        if isinstance(generator := vars(layer).get("_np_random"), np.random.Generator):
            state["_np_random"] = _encode(generator, name)
        return state
    if not name.startswith(_TRUSTED):
        raise Unsavable(f"{name} cannot be saved: give it get_state() and set_state(state) of arrays and JSON")
    return {} if name == "gymnasium.wrappers.common.PassiveEnvChecker" else _save_attributes(layer, name)


def _opts_in(kind: type) -> bool:
    """Whether a class, not what it wraps, has both methods; MujocoEnv's set_state(qpos, qvel) is not the one."""
    methods = [getattr(kind, name, None) for name in ("get_state", "set_state")]
    return all(method and not str(getattr(method, "__module__", "")).startswith("gymnasium.") for method in methods)


def _save_attributes(owner: Any, where: str) -> dict[str, Any]:
    clock = _CLOCK if where.endswith(".RecordEpisodeStatistics") else frozenset()
    return {
        name: _encode_attribute(value, f"{where}.{name}")
        for name, value in vars(owner).items()
        if not (name in clock or _is_constant(owner, name) or isinstance(value, _CONSTANT_TYPES))
        and not _name(value).startswith(_CONSTANT_NAMES)
    }


def _is_constant(owner: Any, name: str) -> bool:
    """Whether an attribute is the same in all that are made the same way; the rules of a MinAtar game are its env."""
    return name in _CONSTANTS and not (name == "env" and _name(owner) == "minatar.environment.Environment")


def _restore_attributes(owner: Any, state: dict[str, Any]) -> None:
    attributes = vars(owner)  # not setattr: a property's setter may do more
    for name, value in state.items():
        if _is_constant(owner, name):  # as they were made here, whatever an older version saved
            continue
        of_class, current = getattr(type(owner), name, None), attributes.get(name)
        if callable(of_class) or hasattr(of_class, "__get__") or isinstance(current, _CONSTANT_TYPES):
            raise ValueError(f"{name} of a {_name(owner)} is no part of its state")
        restored = _decode(value, current)
        if not _agree(current, restored):
            raise ValueError(f"{name} of a {_name(owner)} is {restored!r:.60}, and was made as {current!r:.60}")
        attributes[name] = restored


def _agree(current: Any, new: Any) -> bool:
    """Whether `new` can have been what `current` became: into some arrays an emulator writes, whatever their size."""
    if current is None or new is None:
        return True
    current, new = _without_axes(current), _without_axes(new)
    if isinstance(current, np.ndarray) and isinstance(new, np.ndarray):
        alike = current.dtype == new.dtype or current.dtype.kind == new.dtype.kind == "f"
        return alike and current.shape == new.shape
    if isinstance(current, np.ndarray):  # MountainCar makes a tuple of its vector
        return current.ndim == 1 and isinstance(new, (list, tuple)) and len(new) == len(current)
    if isinstance(current, deque):
        return (
            type(new) is deque
            and new.maxlen == current.maxlen
            and all(_agree(current[0], one) for one in new if current)
        )
    if isinstance(current, list) and any(isinstance(one, np.ndarray) for one in current):
        return type(new) is list and len(new) == len(current) and all(map(_agree, current, new))
    for kinds in (_NUMBERS, (str,), (dict,), (list, tuple, np.ndarray)):
        if isinstance(current, kinds):
            return isinstance(new, kinds)
    return True


def _without_axes(value: Any) -> Any:
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _encode_attribute(value: Any, where: str) -> Any:
    """As `_encode`, and also what is native or has attributes of its own, which is restored in place."""
    name = _name(value)
    if (data := _mjdata(value)) is not None:
        if has_delays(data):
            raise Unsavable(f"{where} cannot be saved: its model delays actuators or sensors")
        return {"kind": "mujoco", "class": name, **save_simulation(data)}
    if name == "ale_py._ale_py.ALEInterface":
        return {"kind": "ale", "class": name, "state": _save_ale(value, where)}
    if name.startswith(_HELPERS):
        return {"kind": "object", "class": name, "attributes": _save_attributes(value, where)}
    return _encode(value, where)


def _encode(value: Any, where: str) -> Any:
    """JSON and arrays of numbers as they are, everything else as a dict that names its kind."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is np.ndarray and value.dtype.kind in "biufc":
        return value.copy(order="K")
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return {"kind": "scalar", "value": np.array(value)}
    if kind is np.str_:
        return {"kind": "text", "value": str(value)}
    if kind is bytes:
        return {"kind": "bytes", "value": np.frombuffer(value, np.uint8).copy()}
    if kind is list:
        return [_encode(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if kind is tuple:
        return {"kind": "tuple", "items": _encode(list(value), where)}
    if kind is deque:
        return {"kind": "deque", "items": _encode(list(value), where), "maxlen": value.maxlen}
    if kind is dict:  # its keys need not be strings
        return {"kind": "dict", "items": [[_encode(k, where), _encode(v, f"{where}[{k!r}]")] for k, v in value.items()]}
    if kind is np.random.Generator:
        return {"kind": "generator", "state": _encode(value.bit_generator.state, where)}
    if kind is np.random.RandomState:
        return {"kind": "random_state", "state": _encode(value.get_state(legacy=False), where)}
    raise Unsavable(
        f"{where} cannot be saved, it is a {_name(value)}: give its environment or wrapper get_state() and "
        "set_state(state) of arrays and JSON"
    )


def _decode(state: Any, current: Any = None) -> Any:
    """What was encoded; `current`, which has its place, is changed and kept if it is native or others may hold it."""
    if isinstance(state, np.ndarray):
        return state.copy(order="K")
    if isinstance(state, list):
        return [_decode(item) for item in state]
    if not isinstance(state, dict):
        return state
    match state["kind"]:
        case "scalar":
            return state["value"][()]
        case "text":
            return np.str_(state["value"])
        case "bytes":
            return state["value"].tobytes()
        case "tuple":
            return tuple(_decode(state["items"]))
        case "deque":
            return deque(_decode(state["items"]), state["maxlen"])
        case "dict":
            return {_decode(key): _decode(value) for key, value in state["items"]}
        case "generator":
            return restore_generator(_decode(state["state"]), current)
        case "random_state":
            return restore_random_state(_decode(state["state"]), current)
    if _name(current) != state["class"]:
        raise ValueError(f"the state of a {state['class']} cannot be restored into a {_name(current)}")
    match state["kind"]:
        case "mujoco":
            restore_simulation(_mjdata(current), state)
        case "ale":
            _restore_ale(current, state["state"])
        case "object":
            _restore_attributes(current, state["attributes"])
    return current


def _save_ale(ale: Any, where: str) -> np.ndarray:
    if ale.getFloat("repeat_action_probability") > 0:
        raise Unsavable(
            f"{where} cannot be saved, the emulator does not tell which action it would repeat: make it with "
            "repeat_action_probability=0 and wrap it in gymnasium.wrappers.StickyAction"
        )
    if ale.getBool("sound_obs"):
        raise Unsavable(
            f"{where} cannot be saved, the emulator keeps its sound to itself: make it with sound_obs=False"
        )
    return np.frombuffer(ale.cloneState(include_rng=True).serialize(), np.uint8).copy()


def _restore_ale(ale: Any, state: np.ndarray) -> None:
    """Give the emulator a state. It checks little of it, which SECURITY.md says."""
    from ale_py import ALEState

    try:
        ale.restoreState(ALEState(state.astype(np.uint8, casting="safe").tobytes()))
    except (SystemError, RuntimeError) as error:
        raise ValueError(f"the emulator does not take its state: {error}") from error


def _mjdata(value: Any) -> Any:
    """The MjData that `value` is or, if it is a physics of dm_control, steps: nothing else in that changes."""
    if _name(value).startswith("dm_control.suite."):
        from dm_control.mujoco.engine import Physics

        return value.data.ptr if isinstance(value, Physics) else None
    return value if _name(value) == "mujoco._structs.MjData" else None
