"""What a smaller scale of a plan changes, in words: found by comparing every setting of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from neoteny.report.scores import flat

if TYPE_CHECKING:
    from neoteny.experiments.plan import PlannedRun

APART = ("env", "seed")
"""Settings that are said in words of their own."""
FEW = 3
"""Methods that are left out by name; of more their number is said."""
NAMES = {"total_timesteps": "steps"}


def differences(full: Sequence[PlannedRun], smaller: Sequence[PlannedRun]) -> str:
    """Everything in which the runs of a smaller scale differ from those of the whole plan."""
    return ", ".join([*_apart(full, smaller), *_settings(full, smaller)])


def _apart(full: Sequence[PlannedRun], smaller: Sequence[PlannedRun]) -> Iterator[str]:
    """Tasks, seeds and methods."""
    tasks, fewer_tasks = (list(dict.fromkeys(run.config.env for run in runs)) for runs in (full, smaller))
    if tasks != fewer_tasks:
        yield f"{', '.join(fewer_tasks)} instead of {', '.join(tasks) if len(tasks) < 3 else f'{len(tasks)} tasks'}"
    seeds, fewer_seeds = (len({run.config.seed for run in runs}) for runs in (full, smaller))
    if seeds != fewer_seeds:
        yield f"{fewer_seeds} seed{'s' * (fewer_seeds != 1)} instead of {seeds}"
    methods, kept = ({run.method: None for run in runs} for runs in (full, smaller))
    missing = [method for method in methods if method not in kept]
    if len(missing) > FEW:
        yield f"{len(kept)} method{'s' * (len(kept) != 1)} instead of {len(methods)}"
    elif missing:
        yield f"no method {_listed(missing)}"


def _settings(full: Sequence[PlannedRun], smaller: Sequence[PlannedRun]) -> Iterator[str]:
    before, after = _values(full), _values(smaller)
    for key in dict.fromkeys([*before, *after]):
        old, now = before.get(key, []), after.get(key, [])
        name = NAMES.get(key, key.replace("_", " "))
        new, dropped = [value for value in now if value not in old], [value for value in old if value not in now]
        if new and not old:
            yield f"{name} {_listed(new)} instead of the default"
        elif new:
            yield f"{name} {_listed(new)} {f'instead of {_listed(dropped)}' if dropped else 'as well'}"
        elif dropped:
            yield f"no {name} {_listed(dropped)}"


def _values(runs: Sequence[PlannedRun]) -> dict[str, list[Any]]:
    """Every value that each setting has in these runs, if it has one."""
    by_setting: dict[str, list[Any]] = {}
    for run in runs:
        settings = flat(run.config)
        for key, value in settings.items():
            values = by_setting.setdefault(key, [])
            if key not in APART and value is not None and value not in values:
                values.append(value)
    return by_setting


def _listed(values: Sequence[Any]) -> str:
    return " and ".join(in_words(value) for value in values)


def in_words(value: Any) -> str:
    """A setting's value as a person reads it: 5,000, or 256-128 for widths."""
    if isinstance(value, tuple):
        return "-".join(map(in_words, value)) or "none"
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
