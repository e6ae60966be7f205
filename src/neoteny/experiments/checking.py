"""A plan's file checked whole before anything starts: every key, and the kind of every value, with the file's line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args, get_origin

from neoteny.agents.configs import AGENTS, SACConfig
from neoteny.errors import UsageError
from neoteny.experiments.limits import check_count, check_number, check_plain, few
from neoteny.experiments.source import Keys, Source, dotted
from neoteny.experiments.work import reason
from neoteny.remedies.registry import NAMED_BY, setting_types
from neoteny.replay.registry import make_sampler
from neoteny.report.verdict import Claim
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig
from neoteny.settings.presets import NAMES
from neoteny.settings.types import field_types, fitted, shown
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
SMALLER = ("laptop", "quick")
"""The scales beside the full one: tables of what they replace, or the name of the plan that is carried out instead."""
_REQUIRED = ("title", "agent", "environments", "steps", "seeds", "methods")
_NEEDED = {"title": "say in a few words what the plan asks", "methods": "it must hold at least one"}
_ELSEWHERE = {"env": "environments", "seed": "seeds", "total_timesteps": "steps"}
"""What a run has and no setting may be, since these keys of the plan give it."""
_IN_A_PLAN = {"replay_arg": dict[str, Any] | tuple[str, ...]}
"""Settings that a plan may write as a table, where the command line has name=value."""


def shaped(data: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """`data` with every key that a plan's file has at its top holding the kind of value that it should."""
    check_plain(data, source)
    named = [scale for scale in SMALLER if isinstance(data.get(scale), str)]
    around = {**SHAPE, "includes": tuple[str, ...]} | {scale: dict[str, Any] for scale in SMALLER if scale not in named}
    table = _table(data, around, (), source)
    for scale in SMALLER:
        if scale in table and scale not in named:
            table[scale] = _table(table[scale], {**SHAPE, "reduced": str}, (scale,), source)
    return table


def checked(data: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """What a plan says at one scale, every value as its setting takes it, or an error that names the key."""
    if unknown := [key for key in data if key not in SHAPE]:
        raise source.wrong(
            unknown[:1],
            f"it has {few(unknown)}, which no plan has: it may have {', '.join((*SHAPE, *SMALLER))}"
            f"{did_you_mean(unknown[0], SHAPE)}",
        )
    if missing := [key for key in _REQUIRED if key not in data]:
        raise source.wrong((), f"it lacks {', '.join(missing)}: every plan has {', '.join(_REQUIRED)}")
    for key in ("title", "methods"):
        if not (data[key].strip() if key == "title" else data[key]):
            raise source.wrong((key,), f"{key} is empty: {_NEEDED[key]}")
    if "" in data["methods"]:
        raise source.wrong(("methods", ""), "a method has no name: give it one")
    if data["steps"] < 1:
        raise source.wrong(("steps",), f"steps must be >= 1, got {data['steps']}")
    check_number("steps", data["steps"], ("steps",), source)
    for seed in data["seeds"]:
        check_number("seeds", seed, ("seeds",), source)
    _one_of(data["agent"], AGENTS, ("agent",), source)
    _one_of(data.get("preset", "swd-paper"), NAMES[data["agent"]], ("preset",), source)
    takes = settings_of(data["agent"])

    def check(settings: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
        for name in settings:
            _check_name(name, takes, data["agent"], (*keys, name), source)
        table = _table(settings, takes, keys, source)
        for name, value in table.items():
            check_number(name, value, (*keys, name), source)
        return table

    def check_method(own: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
        """A method may start from a preset of its own."""
        settings = check({name: value for name, value in own.items() if name != "preset"}, keys)
        if "preset" not in own:
            return settings
        preset = _table({"preset": own["preset"]}, {"preset": str}, keys, source)
        _one_of(preset["preset"], NAMES[data["agent"]], (*keys, "preset"), source)
        return {**preset, **settings}

    common = check(data.get("settings", {}), ("settings",))
    methods = {method: check_method(own, ("methods", method)) for method, own in data["methods"].items()}
    grid: dict[str, Sequence[Any]] = {}
    for name, values in data.get("grid", {}).items():
        keys = ("grid", name)
        _check_name(name, takes, data["agent"], keys, source)
        grid[name] = [_value(value, takes[name], keys, source, "each value of ") for value in values]
        for value in grid[name]:
            check_number(name, value, keys, source)
        _check_different(grid[name], keys, source)
        for place, own in (("settings", common), *((f"methods.{method}", own) for method, own in methods.items())):
            if name in own:
                raise source.wrong(keys, f"{name} is in {place} and in the grid, which would replace it: leave one out")
    for key in ("environments", "seeds"):
        _check_different(data[key], (key,), source)
    check_count({"seeds": data["seeds"], "environments": data["environments"], "methods": methods}, grid, source)
    return {**data, "settings": common, "methods": methods, "grid": grid}


def checked_includes(data: dict[str, Any], source: Source) -> dict[str, Any]:
    """What a plan says that includes others, or an error."""
    named = [scale for scale in SMALLER if isinstance(data.get(scale), str)]
    if unknown := [key for key in data if key not in ("title", "paper", "includes", "claims", *named)]:
        raise source.wrong(
            unknown[:1],
            "it includes other plans, so it has only a title, claims and what the paper says beside them; it also has "
            f"{few(unknown)}",
        )
    if not data.get("title", "").strip():
        raise source.wrong(("title",), f"title is empty: {_NEEDED['title']}")
    _check_different(data["includes"], ("includes",), source)
    return data


def settings_of(agent: str) -> dict[str, Any]:
    """Every setting of an agent's runs, which are the flags of ``neoteny train``, and its annotation."""
    own = field_types(TrainConfig)
    apart = ("agent", "replay", "plasticity", "remedies", *_ELSEWHERE)
    kinds = {name: own[name] for name in own if name not in apart}
    for part in (AGENTS[agent], ReplayConfig, PlasticityConfig):
        kinds |= field_types(part)
    kinds |= dict.fromkeys(NAMED_BY, tuple[str, ...]) | setting_types()
    return kinds | {name: kind for name, kind in _IN_A_PLAN.items() if name in kinds}


def check_config(config: TrainConfig) -> None:
    """Refuse settings that do not go together, and a replay that cannot be made; a user's own is imported and made."""
    replay, agent = config.replay, config.agent
    if replay.capacity < config.num_envs:
        raise UsageError(f"--capacity must be at least --num-envs, {config.num_envs}, got {replay.capacity}")
    if not 1 <= replay.n_step <= replay.capacity:
        most = f"in 1..{replay.capacity:,}, the capacity" if replay.n_step > 1 else ">= 1"
        raise UsageError(f"--n-step must be {most}, got {replay.n_step:,}")
    if config.keep_checkpoints > config.total_timesteps:
        most = f"the run's {config.total_timesteps:,} steps"
        raise UsageError(f"--keep-checkpoints must be at most {most}, got {config.keep_checkpoints:,}")
    if isinstance(agent, SACConfig) and agent.log_std_min >= agent.log_std_max:
        raise UsageError(f"--log-std-min must be less than --log-std-max, {agent.log_std_max}, got {agent.log_std_min}")
    try:
        make_sampler(replay.replay, replay.replay_sampler, config.default_decay_steps(), replay.numbers())
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's own module does wrong
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
    named = re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda match: match[1].replace("-", "_"), sentence)
    return named.replace("total_timesteps", "steps")


def _table(values: Mapping[str, Any], kinds: Mapping[str, Any], keys: Keys, source: Source) -> dict[str, Any]:
    return {name: _value(value, kinds.get(name, Any), (*keys, name), source) for name, value in values.items()}


def _value(value: Any, kind: Any, keys: Keys, source: Source, which: str = "") -> Any:
    """`value` as `kind` asks for it; of tables and of lists of tables, each value in turn."""
    inner = get_args(kind)[-1] if get_args(kind) else Any
    if get_origin(kind) is dict and isinstance(value, dict):
        return {name: _value(one, inner, (*keys, name), source) for name, one in value.items()}
    if kind is SHAPE["claims"] and isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return [_table(one, field_types(Claim), (*keys, index), source) for index, one in enumerate(value)]
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
    seen = set()
    for value in values:
        known = repr(value) if isinstance(value, dict) else value  # a table of replay_arg
        if known in seen:
            raise source.wrong(keys, f"{dotted(keys)} has {shown(value)} twice: name each once")
        seen.add(known)


def _one_of(value: str, known: Iterable[str], keys: Keys, source: Source) -> None:
    if value not in known:
        raise source.wrong(
            keys, f"{dotted(keys)} must be one of {', '.join(known)}, got {shown(value)}{did_you_mean(value, known)}"
        )
