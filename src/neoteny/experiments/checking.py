"""A plan's file checked whole before anything starts: every key, and the kind of every value, with the file's line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args, get_origin, get_type_hints

from neoteny.agents.configs import AGENTS
from neoteny.errors import UsageError
from neoteny.experiments.source import Keys, Source, dotted
from neoteny.experiments.work import reason
from neoteny.remedies.registry import NAMED_BY, setting_types
from neoteny.replay.registry import make_sampler
from neoteny.report.verdict import Claim
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.settings.presets import NAMES
from neoteny.settings.types import fitted
from neoteny.wording import did_you_mean

SHAPE: dict[str, Any] = {
    "title": str,
    "paper": str,
    "agent": str,
    "preset": str,
    "environments": tuple[str, ...],
    "steps": int,
    "seeds": tuple[int, ...],
    "settings": dict[str, Any],
    "methods": dict[str, dict[str, Any]],
    "grid": dict[str, list[Any]],
    "claims": list[dict[str, Any]],
}
"""What a plan may have."""
_REQUIRED = ("title", "agent", "environments", "steps", "seeds", "methods")
_ELSEWHERE = {"env": "environments", "seed": "seeds", "total_timesteps": "steps"}
"""What a run has and no setting may be, since these keys of the plan give it."""
_IN_A_PLAN = {"replay_arg": dict[str, Any] | tuple[str, ...]}
"""Settings that a plan may write as a table, where the command line has name=value."""


def shaped(data: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """`data` with every key that a plan's file has at its top holding the kind of value that it should."""
    around = {**SHAPE, "includes": tuple[str, ...], "laptop": dict[str, Any]}
    found = _table(data, around, (), source)
    if "laptop" in found:
        found["laptop"] = _table(found["laptop"], {**SHAPE, "reduced": str}, ("laptop",), source)
    return found


def checked(data: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """What a plan says at one scale, every value as its setting takes it, or an error that names the key."""
    if unknown := [key for key in data if key not in SHAPE]:
        raise source.wrong(
            unknown[:1],
            f"it has {', '.join(unknown)}, which no plan has: it may have {', '.join((*SHAPE, 'laptop'))}"
            f"{did_you_mean(unknown[0], SHAPE)}",
        )
    if missing := [key for key in _REQUIRED if key not in data]:
        raise source.wrong((), f"it lacks {', '.join(missing)}: every plan has {', '.join(_REQUIRED)}")
    if not data["methods"]:
        raise source.wrong(("methods",), "methods is empty: it must hold at least one")
    if data["steps"] < 1:
        raise source.wrong(("steps",), f"steps must be >= 1, got {data['steps']}")
    _one_of(data["agent"], AGENTS, "agent", source)
    _one_of(data.get("preset", "swd-paper"), NAMES[data["agent"]], "preset", source)
    takes = settings_of(data["agent"])

    def check(settings: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
        for name in settings:
            _check_name(name, takes, data["agent"], (*keys, name), source)
        return _table(settings, takes, keys, source)

    methods = {method: check(own, ("methods", method)) for method, own in data["methods"].items()}
    grid: dict[str, Sequence[Any]] = {}
    for name, values in data.get("grid", {}).items():
        keys = ("grid", name)
        _check_name(name, takes, data["agent"], keys, source)
        grid[name] = [_value(value, takes[name], keys, source, "each value of ") for value in values]
        _check_different(grid[name], keys, source)
    for key in ("environments", "seeds"):
        _check_different(data[key], (key,), source)
    return {**data, "settings": check(data.get("settings", {}), ("settings",)), "methods": methods, "grid": grid}


def settings_of(agent: str) -> dict[str, Any]:
    """Every setting of an agent's runs, which are the flags of ``neoteny train``, and its annotation."""
    own = get_type_hints(TrainConfig)
    apart = ("agent", "replay", "plasticity", "remedies", *_ELSEWHERE)
    found = {name: own[name] for name in own if name not in apart}
    for part in (AGENTS[agent], ReplayConfig, PlasticityConfig):
        found |= get_type_hints(part)
    found |= dict.fromkeys(NAMED_BY, tuple[str, ...]) | setting_types()
    return found | {name: kind for name, kind in _IN_A_PLAN.items() if name in found}


def check_replay(config: TrainConfig) -> None:
    """Refuse a replay that there is not, or that does not take the numbers given; a user's own is imported and made."""
    replay = config.replay
    if replay.capacity < config.num_envs:
        raise UsageError(f"--capacity must be at least --num-envs, {config.num_envs}, got {replay.capacity}")
    if replay.n_step < 1:
        raise UsageError(f"--n-step must be >= 1, got {replay.n_step}")
    try:
        make_sampler(replay.replay, replay.replay_sampler, config.default_decay_steps(), replay.numbers())
    except UsageError:
        raise
    except Exception as error:  # whatever a user's own module does wrong
        raise UsageError(f"--replay {replay.replay}: {reason(error)}") from error


def where(sentence: str, places: Mapping[str, Keys], otherwise: Keys) -> Keys:
    """The place of the setting that a sentence speaks of, by its flag or by its name.

    The replay and the remedy come last, as a sentence that names them speaks of their numbers.
    """
    words = [
        word.removeprefix("--").replace("-", "_") for word in re.findall(r"--[a-z-]+|[a-z]+(?:_[a-z]+)+", sentence)
    ]
    named = sorted((word for word in words if word in places), key=lambda word: word in ("replay", *NAMED_BY))
    return places[named[0]] if named else otherwise


def in_a_plans_words(sentence: str) -> str:
    """A sentence about flags as one about a plan's keys."""
    named = re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda found: found[1].replace("-", "_"), sentence)
    return named.replace("total_timesteps", "steps")


def _table(values: Mapping[str, Any], kinds: Mapping[str, Any], keys: Keys, source: Source) -> dict[str, Any]:
    return {name: _value(value, kinds.get(name, Any), (*keys, name), source) for name, value in values.items()}


def _value(value: Any, kind: Any, keys: Keys, source: Source, which: str = "") -> Any:
    """`value` as `kind` asks for it; of tables and of lists of tables, each value in turn."""
    inner = get_args(kind)[-1] if get_args(kind) else Any
    if get_origin(kind) is dict and isinstance(value, dict):
        return {name: _value(one, inner, (*keys, name), source) for name, one in value.items()}
    if kind is SHAPE["claims"] and isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return [_table(one, get_type_hints(Claim), (*keys, index), source) for index, one in enumerate(value)]
    try:
        return fitted(value, kind)
    except TypeError as error:
        raise source.wrong(keys, f"{which}{dotted(keys)} {error}") from error


def _check_name(name: str, takes: Mapping[str, Any], agent: str, keys: Keys, source: Source) -> None:
    if name in _ELSEWHERE:
        raise source.wrong(keys, f"{dotted(keys)} is no setting: a plan gives it as {_ELSEWHERE[name]}")
    if name not in takes:
        raise source.wrong(
            keys,
            f"there is no setting {dotted(keys)}: settings are the flags of neoteny train {agent}, with _ for -"
            f"{did_you_mean(name, takes)}",
        )


def _check_different(values: Sequence[Any], keys: Keys, source: Source) -> None:
    if not values:
        raise source.wrong(keys, f"{dotted(keys)} is empty: it must hold at least one")
    for index, value in enumerate(values):
        if value in values[:index]:
            raise source.wrong(keys, f"{dotted(keys)} has {value!r} twice: name each once")


def _one_of(value: str, known: Iterable[str], key: str, source: Source) -> None:
    if value not in known:
        raise source.wrong(
            (key,), f"{key} must be one of {', '.join(known)}, got {value!r}{did_you_mean(value, known)}"
        )
