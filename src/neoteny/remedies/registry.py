"""The remedies by name. To register one is one line here; its module is loaded when it is first asked for."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, cast, get_type_hints

from neoteny.errors import UsageError
from neoteny.remedies.config import RemedyConfig
from neoteny.wording import did_you_mean

REMEDIES = {
    "regrama": "neoteny.remedies.regrama:ReGraMa",
    "redo": "neoteny.remedies.redo:ReDo",
    "shrink-perturb": "neoteny.remedies.shrink_perturb:ShrinkPerturb",
    "injection": "neoteny.remedies.injection:Injection",
    "reset": "neoteny.remedies.reset:Reset",
    "continual-backprop": "neoteny.remedies.continual_backprop:ContinualBackprop",
    "chain": "neoteny.remedies.chain:Chain",
    "pfo": "neoteny.remedies.pfo:PFO",
    "l2-init": "neoteny.remedies.l2_init:L2Init",
    "parseval": "neoteny.remedies.parseval:Parseval",
    "upgd": "neoteny.remedies.upgd:UPGD",
    "adam-rel": "neoteny.remedies.adam_rel:AdamRel",
    "optimiser-reset": "neoteny.remedies.optimiser_reset:OptimiserReset",
    "nap": "neoteny.remedies.nap:NaP",
    "growth": "neoteny.remedies.growth:Growth",
}
"""What --remedy takes, and where its configuration is."""
NAMED_BY = ("remedy", "intervention")
"""The setting, and without its dashes the flag, that names remedies; and what it was called at first."""


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


def setting_types() -> dict[str, Any]:
    """Return the annotation of every setting of every remedy, by its name."""
    return {setting: get_type_hints(config_class(name))[field.name] for setting, (name, field) in settings().items()}


def field_docs(kind: type[RemedyConfig]) -> dict[str, str]:
    """Return the docstring of each field of a configuration's class, from its source."""
    body = cast("ast.ClassDef", ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]).body
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def from_settings(names: Iterable[str], values: Mapping[str, Any]) -> tuple[RemedyConfig, ...]:
    """Return the configurations of the remedies `names`, with these settings, such as {"redo_every": 500}.

    Raises UsageError for a remedy that there is not, one that is named twice, and a setting of one that is not named.
    """
    names = tuple(names)
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--remedy {name} is given {names.count(name)} times: give it once")
    classes = {name: config_class(name) for name in names}
    known = settings()
    fields: dict[str, dict[str, Any]] = {name: {} for name in classes}
    for setting, value in values.items():
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
    if len(names) > 1 and (alone := [remedy.name for remedy in remedies if remedy.alone]):
        other = next(name for name in names if name != alone[0])
        raise UsageError(f"--remedy {alone[0]} changes the networks' shapes, which no other follows: drop {other}")
    if len(optimisers := [remedy.name for remedy in remedies if remedy.kind == "optimiser"]) > 1:
        raise UsageError(
            f"--remedy {optimisers[0]} and --remedy {optimisers[1]} both decide how the optimiser steps: choose one"
        )
    return tuple(remedies)


def as_json(remedies: Iterable[RemedyConfig]) -> dict[str, dict[str, Any]]:
    """Return remedies as plain data, by name."""
    return {remedy.name: dataclasses.asdict(remedy) for remedy in remedies}


def as_settings(remedies: Iterable[RemedyConfig]) -> dict[str, Any]:
    """Return the settings of these remedies by name, as `from_settings` takes them."""
    return {
        remedy.setting(field.name): getattr(remedy, field.name)
        for remedy in remedies
        for field in dataclasses.fields(remedy)
    }
