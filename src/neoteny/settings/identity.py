"""What makes two runs the same run: a canonical form of a configuration, and the id made from it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from neoteny.envs import frames_per_step
from neoteny.errors import UsageError
from neoteny.replay.priority import PrioritizedSampler
from neoteny.replay.registry import PER_NUMBERS, REPLAYS
from neoteny.settings.config import TrainConfig

ALWAYS = ("env", "seed", "total_timesteps")
"""Settings that are part of every id, whatever their value."""
WITHOUT_EFFECT = ("log_every", "checkpoint_every", "keep_checkpoints", "wandb", "device")
"""Settings that change what is written or where, and not the result."""
MAY_CHANGE = ("total_timesteps", "stop_at_return", "checkpoint_every", "keep_checkpoints", "on_nan", "wandb")
"""Settings that a resumed run may have other than before."""


def run_id(config: TrainConfig, own_parts: dict[str, str] | None = None) -> str:
    """Return eight letters that equal configurations share.

    Args:
        config: the run's configuration.
        own_parts: descriptions of an environment or a network of the user's own, which no setting names.
    """
    text = json.dumps({**canonical(config), **(own_parts or {})}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def canonical(config: TrainConfig) -> dict[str, Any]:
    """Return the settings that make a configuration what it is, one value for each way of writing the same number.

    A setting at its default is left out, so that a setting added later does not change the ids of earlier runs. For the
    same reason a default must not be changed: give the new value a name of its own, such as a preset.
    """
    plain = TrainConfig(config.env, type(config.agent)(), threads=1)
    settings = {name: getattr(config, name) for name in ALWAYS}
    settings |= {"agent": config.agent_name, "replay": config.replay.replay}
    whole = dataclasses.replace(config, threads=config.num_threads, action_repeat=_own_repeat(config))
    settings |= _differing(whole, plain, {"agent", "replay", "plasticity", "remedies", *WITHOUT_EFFECT, *ALWAYS})
    settings |= _differing(config.agent, plain.agent, set())
    settings |= _differing(config.replay, plain.replay, set(), _replay_defaults(config))
    settings |= _differing(config.plasticity, plain.plasticity, set())
    settings |= _of_remedies(config)
    return {name: _one_form(value) for name, value in settings.items()}


def changed_settings(was: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Each setting of `was`, a configuration as JSON, that is another one `now`: its name, then and now.

    Without those that a resumed run may change. A setting that is in `now` alone came with a later version.
    """
    before, after = _flat(was), _flat(now)
    for name, value in before.items():
        if name not in MAY_CHANGE and after.get(name) != value:
            yield name, value, after.get(name)


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    parts = {name: value for name, value in config.items() if isinstance(value, dict)}
    inner = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()}
    return {**{name: value for name, value in config.items() if name not in parts}, **inner}


def own_parts(config: TrainConfig, facts: dict[str, Any]) -> dict[str, str]:
    """Return what makes a run another one than its settings say: the user's own parts, or a length that was changed."""
    environment = facts["environment"]
    own = {name: environment[name] for name in ("make_env", "network") if environment.get(name)}
    planned = environment.get("horizon", config.total_timesteps)
    return own if planned == config.total_timesteps else {**own, "horizon": str(planned)}


def describe_own(make_env: Any, env: Any, network: Any) -> dict[str, str]:
    """Return descriptions of what the user gave instead of names: their environment and their network.

    Args:
        make_env: the user's function, or None.
        env: one environment that it made.
        network: the user's Flax module, or None.
    """
    own = {}
    if make_env is not None:
        spec = getattr(env, "spec", None)
        name = _describe_function(inspect.unwrap(make_env))
        kind = f"{type(env.unwrapped).__module__}:{type(env.unwrapped).__qualname__}"
        spaces = f"{env.observation_space}, {env.action_space}"
        own["make_env"] = _without_addresses(f"{name} -> {env} {kind} {getattr(spec, 'kwargs', {})} {spaces}")
    if network is not None:
        own["network"] = describe_network(network)
    return own


def _describe_function(function: Any) -> str:
    """Return a function's name, and the values that tell it from another of the same name, such as two lambdas."""
    if isinstance(function, functools.partial):
        return f"{_describe_function(function.func)} {function.args} {function.keywords}"
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', repr(function))}"
    code = getattr(function, "__code__", None)
    if code is None:
        return name
    enclosed = [cell.cell_contents for cell in function.__closure__ or ()]
    constants = [value for value in code.co_consts if isinstance(value, (bool, int, float, str))]
    return f"{name} {code.co_names} {constants} {enclosed} {function.__defaults__}"


def describe_network(network: Any) -> str:
    """Return a network's repr without memory addresses, which change from process to process."""
    return _without_addresses(repr(network))


def check_same_network(directory: Path, recorded: str | None, network: Any) -> None:
    """Refuse another network than the one that a run was trained with."""
    described = None if network is None else describe_network(network)
    if described == recorded:
        return
    if described is None:
        raise UsageError(f"{directory} was trained with a network of your own: give it with network=... in Python")
    if recorded is None:
        raise UsageError(f"{directory} was trained with the agent's own network: leave out network=")
    raise UsageError(
        f"{directory} was trained with another network, {_in_a_line(recorded)}, got {_in_a_line(described)}"
    )


def _in_a_line(text: str) -> str:
    return " ".join(text.split())


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _differing(config: Any, plain: Any, besides: set[str], defaults: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the fields of a dataclass that are neither as in `plain` nor at a default that is written as None."""
    differing = {}
    for name in (field.name for field in dataclasses.fields(config) if field.name not in besides):
        value = _one_form(getattr(config, name))
        usual = [
            _one_form(getattr(plain, name)),
            *(_one_form(known[name]) for known in [defaults or {}] if name in known),
        ]
        if value not in usual:
            differing[name] = value
    return differing


def _own_repeat(config: TrainConfig) -> int | None:
    """Return the action repeat, or None if it is the one that the environment has by default."""
    usual = config.env.startswith("ALE/") or config.action_repeat == frames_per_step(config.env, None)
    return None if usual else config.action_repeat


def _replay_defaults(config: TrainConfig) -> dict[str, Any]:
    """Return what the numbers of a replay are where they are not given."""
    named = REPLAYS.get(config.replay.replay)
    if named is None:  # a schedule of the user's own, whose code an id must not run
        return {}
    defaults = _defaults_of(named.schedule, named.numbers) if named.schedule else {}
    if named.prioritised:
        defaults |= _defaults_of(PrioritizedSampler, PER_NUMBERS)
    return {**defaults, "decay_steps": config.default_decay_steps()}


def _defaults_of(kind: Any, numbers: Mapping[str, str]) -> dict[str, Any]:
    """Return the defaults of what takes these numbers, by the names that they have as settings."""
    accepted = inspect.signature(kind).parameters
    return {number: accepted[field].default for number, field in numbers.items()}


def _of_remedies(config: TrainConfig) -> dict[str, Any]:
    """Return the remedies by name, and their settings that differ from the defaults."""
    if not config.remedies:
        return {}
    planned = config.planned_updates(config.total_timesteps)
    names = [remedy.name for remedy in config.remedies]
    return {"intervention": names} | {  # the name that remedies had when the first ids were made
        remedy.setting(field): value for remedy in config.remedies for field, value in remedy.canonical(planned).items()
    }


def _one_form(value: Any) -> Any:
    """Return a value as JSON has it, whole numbers as integers: 1, 1.0 and numpy's 1 are the same setting."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return [_one_form(part) for part in value]
    if isinstance(value, dict):
        return {str(key): _one_form(part) for key, part in value.items()}
    number = float(value)
    return int(number) if number.is_integer() else number
