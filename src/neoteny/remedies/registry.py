"""The remedies by name. To register one is one line here; its module is loaded when it is first asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from neoteny.errors import UsageError
from neoteny.remedies.config import RemedyConfig
from neoteny.wording import did_you_mean

REMEDIES = {
    "regrama": "neoteny.remedies.regrama:ReGraMa",
    "redo": "neoteny.remedies.redo:ReDo",
    "shrink-perturb": "neoteny.remedies.shrink_perturb:ShrinkPerturb",
    "injection": "neoteny.remedies.injection:Injection",
    "reset": "neoteny.remedies.reset:Reset",
}
"""What --remedy takes, and where its configuration is."""


def config_class(name: str) -> type[RemedyConfig]:
    """Return the configuration's class of the remedy called `name`."""
    if name not in REMEDIES:
        raise UsageError(f"--remedy must be one of {', '.join(REMEDIES)}, got {name!r}{did_you_mean(name, REMEDIES)}")
    module, _, kind = REMEDIES[name].partition(":")
    return getattr(import_module(module), kind)


def settings() -> dict[str, tuple[str, dataclasses.Field[Any]]]:
    """Return every setting of every remedy by its name, such as redo_every: the remedy, and the field."""
    return {
        config_class(name).setting(field.name): (name, field)
        for name in REMEDIES
        for field in dataclasses.fields(config_class(name))
    }


def from_settings(names: Iterable[str], given: Mapping[str, Any]) -> tuple[RemedyConfig, ...]:
    """Return the configurations of the remedies `names`, with these settings, such as {"redo_every": 500}.

    Raises UsageError for a remedy that there is not, and for a setting of one that is not named.
    """
    classes = {name: config_class(name) for name in names}
    known = settings()
    fields: dict[str, dict[str, Any]] = {name: {} for name in classes}
    for setting, value in given.items():
        name, field = known[setting]
        if name not in fields:
            raise UsageError(f"--{setting.replace('_', '-')} is for --remedy {name}, which is not asked for")
        fields[name][field.name] = value
    return tuple(classes[name](**own) for name, own in fields.items())


def checked(remedies: Any) -> tuple[RemedyConfig, ...]:
    """Return remedies as a tuple; raise UsageError for what is none, and for one that is there twice."""
    if isinstance(remedies, RemedyConfig):
        remedies = (remedies,)
    for remedy in remedies:
        if not isinstance(remedy, RemedyConfig):
            raise UsageError(f"a remedy must be a configuration from neoteny.remedies, such as ReDo(), got {remedy!r}")
    names = [remedy.name for remedy in remedies]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"--remedy {twice[0]} is given {names.count(twice[0])} times: give it once")
    return tuple(remedies)


def as_json(remedies: Iterable[RemedyConfig]) -> dict[str, dict[str, Any]]:
    """Return remedies as plain data, by name."""
    return {remedy.name: dataclasses.asdict(remedy) for remedy in remedies}


def from_json(data: Mapping[str, Mapping[str, Any]]) -> tuple[RemedyConfig, ...]:
    """Return remedies from what `as_json` gave."""
    return tuple(config_class(name)(**fields) for name, fields in data.items())


def as_settings(remedies: Iterable[RemedyConfig]) -> dict[str, Any]:
    """Return the settings of these remedies by name, as `from_settings` takes them."""
    return {
        remedy.setting(field.name): getattr(remedy, field.name)
        for remedy in remedies
        for field in dataclasses.fields(remedy)
    }
