"""A schedule of the user's own: found by its name, made with its parameters, and written down as plain data."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

import numpy as np

from neoteny.errors import UsageError
from neoteny.replay.ages.ageing import Schedule, evaluate
from neoteny.replay.sampling import check_schedule_type
from neoteny.wording import did_you_mean

_AGES = np.array([1, 2, 3])
"""What a schedule is tried with, so that one that takes no array is refused before the run starts."""


def make_schedule(name: str, parameters: Mapping[str, Any]) -> Schedule:
    """The schedule that ``package.module:Class`` names, made with `parameters`.

    The current directory is searched first. What is not given is what the class has by default.
    """
    kind = _find(name)
    try:
        accepted = signature(kind).parameters.values()
    except (TypeError, ValueError) as error:
        raise UsageError(f"--replay {name}: {error}") from error
    takes = [p for p in accepted if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]
    names = [p.name for p in takes]
    unknown = [parameter for parameter in parameters if parameter not in names]
    if unknown and not any(p.kind is Parameter.VAR_KEYWORD for p in accepted):
        has = f"takes {', '.join(names)}" if names else "takes no parameters"
        raise UsageError(f"--replay {name} has no {', '.join(unknown)}: it {has}{did_you_mean(unknown[0], names)}")
    if missing := [p.name for p in takes if p.default is Parameter.empty and p.name not in parameters]:
        how = " ".join(f"--replay-arg {one}=VALUE" for one in missing)
        raise UsageError(f"--replay {name} needs {', '.join(missing)}, which it has no default for: add {how}")
    try:
        schedule = check_schedule_type(kind(**parameters))
    except (TypeError, ValueError) as error:
        raise UsageError(f"--replay {name}: {error}") from error
    try:
        evaluate(schedule, _AGES, num_stored=len(_AGES), clock=len(_AGES))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"--replay {name}: weight(age) must take an array of ages and return an array of weights, which fails "
            f"with: {error}"
        ) from error
    return schedule


def name_of(schedule: Any) -> tuple[str, dict[str, Any]]:
    """The name and the parameters that make `schedule` again, in another process too: a dataclass tells both."""
    kind = type(schedule)
    name = f"{kind.__module__}:{kind.__qualname__}"
    if getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind:
        raise UsageError(
            f"a run with replay={schedule!r} could not be resumed, because {kind.__qualname__} cannot be imported: "
            "define it at the top level of a module"
        )
    if dataclasses.is_dataclass(schedule):
        return name, {field.name: getattr(schedule, field.name) for field in dataclasses.fields(schedule) if field.init}
    if getattr(schedule, "__dict__", True):
        raise UsageError(
            f"a run with replay={schedule!r} could not be resumed, because its parameters are not known: make "
            f"{kind.__name__} a dataclass, or give replay={name!r} and replay_arg={{name: value}}"
        )
    return name, {}


def parameters_as_text(parameters: Mapping[str, Any] | Iterable[str] | str) -> tuple[str, ...]:
    """Parameters, or texts name=value, in one form: sorted by name, each value as JSON; equal if they are equal."""
    if not isinstance(parameters, Mapping):
        parameters = parameters_from_text([parameters] if isinstance(parameters, str) else parameters)
    return tuple(f"{name}={json.dumps(plain(name, parameters[name]))}" for name in sorted(parameters))


def parameters_from_text(texts: Iterable[str]) -> dict[str, Any]:
    """The parameters that texts of the form name=value give: numbers, true and false as in JSON, all else as text."""
    parameters: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--replay-arg must be name=value, such as steps=500, got {text!r}")
        if name in parameters:
            raise UsageError(f"--replay-arg gives {name} twice: give it once")
        parameters[name] = _value(value)
    return parameters


def _find(name: str) -> Any:
    module_name, _, class_name = name.partition(":")
    try:
        with _current_directory_first():
            module = import_module(module_name)
        if not hasattr(module, class_name) and module_name != "__main__":
            meant = did_you_mean(class_name, dir(module))
            raise UsageError(f"--replay {name}: {module_name} has no {class_name}{meant}")
        return getattr(module, class_name)
    except UsageError:
        raise
    except Exception as error:  # a user's module may raise anything
        hint = ""
        if module_name == "__main__":
            hint = " (a class of a script can only be used by that script: put it into a module)"
        elif isinstance(error, ModuleNotFoundError):
            hint = " (run where it is, or put its directory into PYTHONPATH)"
        raise UsageError(f"--replay {name}: {type(error).__name__}: {error}{hint}") from error


@contextmanager
def _current_directory_first() -> Iterator[None]:
    """As Python itself has it for a script, and not for an installed command."""
    directory = os.getcwd()
    sys.path.insert(0, directory)
    try:
        yield
    finally:
        sys.path.remove(directory)


def plain(name: str, value: Any) -> Any:
    """`value` as plain data of one form, or an error that says which parameter has none."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 500.0 and 500 are one parameter
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise UsageError(f"--replay-arg {name} must be a number, a text, true or false, got {value!r}")


def _value(text: str) -> Any:
    for read in (json.loads, int):  # int: 80_000
        try:
            return read(text)
        except ValueError:
            pass
    return text
