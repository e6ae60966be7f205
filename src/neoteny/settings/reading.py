"""Configurations from plain data, as a run's record and a plan have it: each value is what its annotation asks for."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, get_args

from neoteny.errors import UsageError
from neoteny.remedies.config import RemedyConfig
from neoteny.remedies.registry import config_class, from_settings, setting_types
from neoteny.settings.types import field_types, fitted


def made(kind: type, values: Any, where: str = "") -> Any:
    """A dataclass of these values, each of which is what its annotation asks for."""
    hints = field_types(kind)
    if not isinstance(values, dict):
        raise UsageError(f"{where.removesuffix('.')} must be a table, got {values!r}")
    if unknown := sorted(values.keys() - hints.keys()):
        raise UsageError(f"there is no setting {where}{unknown[0]}")
    if missing := [f.name for f in dataclasses.fields(kind) if f.name not in values and _is_required(f)]:
        raise UsageError(f"{where}{missing[0]} is missing")
    return kind(**{name: _fit(f"{where}{name}", value, hints[name]) for name, value in values.items()})


def made_remedies(data: dict[str, Any]) -> tuple[RemedyConfig, ...]:
    """Take the remedies out of a configuration's plain data, also as they were written when they were interventions."""
    written = data.pop("remedies", {})
    if not isinstance(written, dict):
        raise UsageError(f"remedies must be a table, got {written!r}")
    remedies = tuple(made(config_class(name), values, f"remedies.{name}.") for name, values in written.items())
    plasticity = data.get("plasticity", {})
    if not isinstance(plasticity, dict) or "intervention" not in plasticity:
        return remedies
    probes = {name: value for name, value in plasticity.items() if name == "probe_every"}
    settings = {name: value for name, value in plasticity.items() if name not in ("intervention", "probe_every")}
    data["plasticity"] = probes
    names = _fit("plasticity.intervention", plasticity["intervention"], tuple[str, ...])
    kinds = setting_types()
    if unknown := sorted(settings.keys() - kinds.keys()):
        raise UsageError(f"there is no setting plasticity.{unknown[0]}")
    numbers = {
        name: _fit(f"plasticity.{name}", value, kinds[name]) for name, value in settings.items() if value is not None
    }
    return (*remedies, *from_settings(names, numbers))


def _is_required(setting: dataclasses.Field) -> bool:
    return setting.default is dataclasses.MISSING and setting.default_factory is dataclasses.MISSING


def _fit(name: str, value: Any, kind: Any) -> Any:
    if value == math.inf and float in (kind, *get_args(kind)):  # which Python may give: checkpoint_every, to make none
        return value
    try:
        return fitted(value, kind)
    except TypeError as error:
        raise UsageError(f"{name} {error}") from error
