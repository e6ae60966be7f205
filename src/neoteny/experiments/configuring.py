"""A run's configuration from a plan's flat settings, and a setting's value in the name of a method."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from neoteny.remedies.registry import NAMED_BY, from_settings
from neoteny.remedies.registry import settings as remedy_settings
from neoteny.settings.config import TrainConfig
from neoteny.settings.presets import complete, start_from


def in_a_name(value: Any) -> str:
    """A value of the grid in the name of a method."""
    if isinstance(value, tuple):
        return " ".join(map(in_a_name, value))
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)  # 1,234,567 and 1,234,568 must not share a name


def config_of(agent: str, preset: str, env: str, seed: int, steps: int, settings: Mapping[str, Any]) -> TrainConfig:
    """A run's configuration from flat settings, named as the flags of ``neoteny train`` are, with _ for -."""
    start = start_from(agent, preset, env, steps)
    parts: dict[str, Any] = {name: getattr(start, name) for name in ("agent", "replay", "plasticity")}
    homes = {field.name: part for part, value in parts.items() for field in dataclasses.fields(value)}
    changes: dict[str, dict[str, Any]] = {part: {} for part in (*parts, "")}
    numbers = {key: value for key, value in settings.items() if key in remedy_settings()}
    for key, value in settings.items():
        if key not in numbers and key not in NAMED_BY:
            changes[homes.get(key, "")][key] = value
    new_parts = {part: dataclasses.replace(value, **changes[part]) for part, value in parts.items()}
    named = [name for key in NAMED_BY for name in settings.get(key, ())]
    new_parts["remedies"] = from_settings(named or [remedy.name for remedy in start.remedies], numbers)
    # One maths thread each, as a sweep runs one process on each core; it is part of the result.
    return complete(dataclasses.replace(start, seed=seed, **{"threads": 1, **changes[""]}, **new_parts), preset)
