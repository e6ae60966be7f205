"""Replays by name, with their numbers: what ``--replay`` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from neoteny.errors import UsageError
from neoteny.replay import users
from neoteny.replay.ages.ageing import Schedule
from neoteny.replay.ages.schedules import (
    EmphasizeRecent,
    ExponentialDecay,
    GeometricDecay,
    InverseAge,
    LinearDecay,
    LinearGrowth,
    PolynomialDecay,
    TruncatedGeometric,
    Uniform,
    Window,
)
from neoteny.replay.combined import CombinedSampler
from neoteny.replay.drawing import Attachable
from neoteny.replay.moving import MovingDecaySampler
from neoteny.replay.priority import PrioritizedSampler
from neoteny.replay.sampling import SAMPLERS
from neoteny.wording import did_you_mean

_LINEAR = {"decay_steps": "decay_steps", "min_weight": "min_weight"}
_RELATIVE = {**_LINEAR, "decay_fraction": "decay_fraction"}
_FADED = partial(GeometricDecay, rate=1e-4, min_weight=0.1)
"""DR.Q's fading of priorities: clip(0.9999^age, 0.1, 1)."""
PER_NUMBERS = {"per_alpha": "alpha", "per_beta": "beta", "per_beta_step": "beta_step"}
"""The numbers of prioritised replay: what each is called outside, and in the sampler."""


@dataclass(frozen=True)
class Named:
    """A schedule that has a name, and its numbers: what each is called outside, and in the schedule."""

    schedule: Callable[..., Any] | None
    numbers: Mapping[str, str]
    prioritised: bool = False
    combined: bool = False


REPLAYS: dict[str, Named] = {
    "uniform": Named(Uniform, {}),
    "swd": Named(LinearDecay, _RELATIVE),
    "swa": Named(LinearGrowth, _LINEAR),
    "exponential": Named(ExponentialDecay, {**_LINEAR, "decay_tau": "tau"}),
    "polynomial": Named(PolynomialDecay, {**_LINEAR, "decay_power": "power", "decay_clip": "clip"}),
    "geometric": Named(GeometricDecay, {"decay_rate": "rate", "min_weight": "min_weight"}),
    "truncated-geometric": Named(TruncatedGeometric, {"mean_age": "mean_age"}),
    "inverse-age": Named(InverseAge, {}),
    "ere": Named(EmphasizeRecent, {"ere_eta": "eta", "ere_c_min": "c_min"}),
    "window": Named(Window, {"window_steps": "steps"}),
    "combined": Named(Uniform, {}, combined=True),
    "per": Named(None, {}, prioritised=True),
    "swd-per": Named(LinearDecay, _RELATIVE, prioritised=True),
    "faded-per": Named(_FADED, {"decay_rate": "rate", "min_weight": "min_weight"}, prioritised=True),
}
"""Every replay by its name."""


def numbers_of(named: Named) -> dict[str, str]:
    """Every number that a replay takes: what it is called outside, and inside."""
    return {**named.numbers, **(PER_NUMBERS if named.prioritised else {})}


def make_sampler(name: str, sampler: str, default_decay_steps: float, numbers: Mapping[str, Any]) -> Attachable:
    """The sampler called `name`, or of a user's schedule as ``package.module:Class``, with the numbers given.

    sampler: exact, bucketed or reference. default_decay_steps: the T of a schedule of ours that has one, if none is
    given; a user's schedule has its own defaults. A number that this replay does not have is an error, not ignored.
    """
    if ":" in name:
        return _by_age(sampler, users.make_schedule(name, numbers))
    if name not in REPLAYS:
        choices = f"{', '.join(REPLAYS)}, or package.module:Class{did_you_mean(name, REPLAYS)}"
        raise UsageError(f"there is no replay {name!r}: choose from {choices}")
    named = REPLAYS[name]
    known = numbers_of(named)
    if unknown := sorted(set(numbers) - set(known)):
        takes = f"takes {', '.join(_flag(n) for n in known)}" if known else "takes no numbers"
        raise UsageError(f"--replay {name} has no {', '.join(map(_flag, unknown))}: it {takes}")
    arguments = {field: numbers[number] for number, field in named.numbers.items() if number in numbers}
    if "decay_steps" in named.numbers and "decay_fraction" not in arguments:
        arguments.setdefault("decay_steps", default_decay_steps)
    if arguments.get("decay_steps") == "drift":
        return _moved_by_drift(name, sampler, arguments)
    try:
        schedule = named.schedule(**arguments) if named.schedule else None
        if (named.prioritised or named.combined) and sampler != "exact":
            raise UsageError(f"--replay {name} has only --replay-sampler exact, got {sampler}")
        if named.combined:
            return CombinedSampler(schedule)
        if named.prioritised:
            return PrioritizedSampler(schedule, **{PER_NUMBERS[n]: numbers[n] for n in PER_NUMBERS if n in numbers})
    except ValueError as error:
        raise UsageError(str(error)) from error
    assert schedule is not None
    return _by_age(sampler, schedule)


def _moved_by_drift(name: str, sampler: str, arguments: Mapping[str, Any]) -> Attachable:
    if name != "swd" or sampler != "exact":
        raise UsageError(
            f"--decay-steps drift is for --replay swd with --replay-sampler exact, got {name} with {sampler}"
        )
    if "decay_fraction" in arguments:
        raise UsageError(f"give --decay-steps or --decay-fraction, got drift and {arguments['decay_fraction']}")
    try:
        return MovingDecaySampler(**{field: value for field, value in arguments.items() if field == "min_weight"})
    except ValueError as error:
        raise UsageError(str(error)) from error


def name_and_numbers(schedule: Schedule) -> tuple[str, dict[str, Any]]:
    """What makes `schedule` again by ``make_sampler``: of ours its name, of a user's ``package.module:Class``."""
    kind: Any = type(schedule)
    for name, named in REPLAYS.items():
        if kind is named.schedule and not (named.prioritised or named.combined):
            return name, {n: users.plain(n, getattr(schedule, field)) for n, field in named.numbers.items()}
    return users.name_of(schedule)


def _by_age(sampler: str, schedule: Schedule) -> Attachable:
    if sampler not in SAMPLERS:
        raise UsageError(f"--replay-sampler is one of {', '.join(SAMPLERS)}, got {sampler!r}")
    return SAMPLERS[sampler](schedule)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
