"""Runs as they were: what each returned over training, what was measured beside it, and its score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neoteny.errors import UsageError, missing_extra
from neoteny.remedies.registry import as_settings
from neoteny.report.archive import History, Series, is_archive, read_history, run_name, runs_in
from neoteny.report.foreign import Rows, plain_name, read_csv, read_evaluations
from neoteny.settings.config import TrainConfig

if TYPE_CHECKING:
    import pandas

LAST = 0.1
"""A run's score is its mean return over this last share of its evaluations,"""
AT_LEAST = 3
"""and over at least so many of them."""
MEAN = "mean_return"
"""The measure that is the mean of all evaluations of a run; in a world that changes the last ones are of one level."""
LARGEST = 1e100
"""A return beyond it counts as infinite: sums of squares of such returns overflow."""

Scores = dict[str, dict[str, np.ndarray]]
"""By method and task, a number for each seed."""


@dataclass(frozen=True, eq=False)
class Record:
    """One run: its name in figures, its returns, and what else is known of it."""

    method: str
    task: str
    seed: int
    steps: np.ndarray
    returns: np.ndarray
    evaluated: bool = True
    """Whether these are evaluations, or for want of them the returns of training's own episodes."""
    done: bool = True
    series: Mapping[str, Series] = field(default_factory=dict)
    """Other metrics over training: sampled ages, and plasticity as batch/network/measure (on the training batch) and
    probe/network/measure (on the fixed probe batch) and replay/network/measure (on what the replay contains)."""
    seconds: float = math.nan
    steps_per_second: float = math.nan
    peak_mb: float = math.nan
    length: int = 0
    """Steps that it was to make; 0 if that is not known."""
    source: str = ""
    made_by: str = ""
    """The version of neoteny that made it: its commit, or its number where no commit is known."""

    @property
    def name(self) -> str:
        """What a person calls this run."""
        return f"{self.method} on {self.task} with seed {self.seed}"

    @property
    def not_finite(self) -> int:
        """How many of its returns are not finite."""
        return int((~finite(self.returns)).sum())

    def late(self, measure: str = "score") -> float | None:
        """The score of a finished run, its mean return, or its late value of another measure; NaN if that is not
        finite, None if it has none."""
        values = np.asarray(self.returns if measure in ("score", MEAN) else self.series.get(measure, ((), ()))[1])
        if not (self.done and len(values)):
            return None
        if measure == MEAN:
            return float(np.mean(values)) if finite(values).all() else math.nan
        return late(values)


def finite(values: np.ndarray) -> np.ndarray:
    """Which of these numbers statistics can be made of: neither NaN nor infinite, nor beyond `LARGEST`."""
    return np.abs(values) <= LARGEST


def late(values: np.ndarray) -> float:
    """The mean over the last tenth of `values`, and over at least 3 of them; NaN if one of these is not finite."""
    last = values[-max(AT_LEAST, math.ceil(LAST * len(values) - 1e-9)) :]
    return float(np.mean(last)) if finite(last).all() else math.nan


def full_measure(records: Sequence[Record], measure: str) -> str:
    """A measure with what it is on: the training batch, or the probe batch or the replay if only that has it."""
    known = {name for record in records for name in record.series}
    named = (measure, f"batch/{measure}", f"probe/{measure}", f"replay/{measure}")
    return next((name for name in named if name in known), measure)


def scores_of(records: Sequence[Record], measure: str = "score") -> Scores:
    """The score of every finished run, or its late value of another measure, in the order of the seeds.

    Those that are not finite are left out, and `left_out` names their runs.
    """
    by_method: dict[str, dict[str, list[float]]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        value = record.late(measure)
        if value is not None and math.isfinite(value):
            by_method.setdefault(record.method, {}).setdefault(record.task, []).append(value)
    return {method: {task: np.array(many) for task, many in tasks.items()} for method, tasks in by_method.items()}


def left_out(records: Sequence[Record], measure: str = "score") -> list[Record]:
    """The finished runs whose score, or late value of another measure, is not finite."""
    return [record for record in records if (value := record.late(measure)) is not None and math.isnan(value)]


def read_runs(paths: Sequence[Path], names: Mapping[Path, str] | None = None) -> list[Record]:
    """The runs in directories, archives of runs, evaluations.npz of SB3 and tidy .csv files.

    names: what to call each run, by its directory or archive; no other runs are then read. Without it a run is called
    by its agent, replay and remedies, and by the settings in which it differs from others of that name. A run that
    is there with its archive is read once.
    """
    if names is not None:
        return _distinct([_record(path, read_history(path), method) for path, method in names.items()])
    records: list[Record] = []
    ours: dict[Path, History] = {}
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no {path}: name a directory of runs, a .csv file or an evaluations.npz")
        if path.suffix == ".csv":
            records += [_foreign(rows) for rows in read_csv(path)]
            continue
        inside = (file for file in sorted(path.rglob("*.npz")) if file.name == "evaluations.npz")  # broken links, too
        for evaluations in inside if path.is_dir() else [path]:
            if not is_archive(evaluations):
                records.append(_foreign(read_evaluations(evaluations)))
        ours |= {run.resolve(): read_history(run) for run in runs_in(path)}
    directories = {run_name(path) for path in ours if path.is_dir()}
    ours = {path: one for path, one in ours.items() if path.is_dir() or run_name(path) not in directories}
    called = _names({path: history.config for path, history in ours.items()})
    records += [_record(path, history, called[path]) for path, history in ours.items()]
    if not records:
        raise UsageError(f"there are no runs in {', '.join(map(str, paths))}: name the directory that holds them")
    return _distinct(records)


def load_runs(*paths: str | Path) -> pandas.DataFrame:
    """What runs returned, as a tidy table: method, task, seed, step, return.

    paths: directories of runs, here or of SB3 (evaluations.npz), and .csv files with those columns.
    """
    try:
        import pandas
    except ImportError as error:
        raise missing_extra("load_runs", "report", error) from error
    rows = [
        (record.method, record.task, record.seed, int(step), float(value))
        for record in read_runs([Path(path) for path in paths])
        for step, value in zip(record.steps, record.returns, strict=True)
    ]
    return pandas.DataFrame(rows, columns=["method", "task", "seed", "step", "return"])


def _foreign(rows: Rows) -> Record:
    return Record(rows.method, rows.task, rows.seed, rows.steps, rows.returns, source=rows.source)


def _record(path: Path, history: History, method: str) -> Record:
    """Return the record of a run, from its directory or its archive at `path`."""
    steps, returns = _evaluations(history)
    evaluated = len(steps) > 0
    if not evaluated:
        steps, returns = history.episodes
    timing = {name: math.nan if value is None else value for name, value in history.timing.items()}
    return Record(
        plain_name(method, "method", str(path)),
        plain_name(history.config.env, "task", str(path)),
        history.config.seed,
        steps,
        returns,
        evaluated=evaluated,
        done=history.done,
        series={name: series for name, series in history.series.items() if _shown(name)},
        seconds=timing["seconds"],
        steps_per_second=timing["steps_per_second"],
        peak_mb=timing["peak_resident_mb"],
        length=history.config.total_timesteps,
        source=str(path),
        made_by=made_by(history.facts),
    )


def _evaluations(history: History) -> Series:
    """Every evaluation of a run, with NaN for those that were not finite, of which a history has only the number.

    They are where the configuration asks for one and none is; if it does not fit, they count as the last ones.
    """
    steps, returns = history.evaluations
    missing, config = history.not_finite, history.config
    every, envs = max(config.eval_every or 0, config.num_envs), config.num_envs
    due = np.empty(0, np.int64)
    if config.eval_every and -(-config.total_timesteps // envs) * envs // every == len(steps) + missing:
        due = -(-every * np.arange(1, len(steps) + missing + 1) // envs) * envs
    absent = np.setdiff1d(due, steps)
    if len(absent) != missing:
        absent = np.full(missing, config.total_timesteps)
    steps, returns = np.r_[steps, absent], np.r_[returns, np.full(missing, np.nan)]
    order = np.argsort(steps, kind="stable")
    return steps[order], returns[order]


def _shown(name: str) -> bool:
    """Return whether a report shows a series: ages, drift, and each measure of each network on each batch."""
    parts = name.split("/")
    return name.startswith(("age_", "drift")) or (len(parts) == 3 and parts[0] in ("probe", "batch", "replay"))


def made_by(facts: Mapping[str, Any]) -> str:
    """Return which version of neoteny made a run, from what its config.json says."""
    sources = [facts.get("source") or {}, *facts.get("resumed_by", ())]
    commits = [f"{one['commit'][:12]}{' with changes' * bool(one['changed'])}" for one in sources if one.get("commit")]
    return " then ".join(dict.fromkeys(commits)) or facts.get("versions", {}).get("neoteny", "")


def _names(configs: Mapping[Path, TrainConfig]) -> dict[Path, str]:
    """agent-replay+remedies, and where two runs of a seed would share that, what sets them apart."""
    plain = {
        path: "+".join([f"{config.agent_name}-{config.replay.replay}", *(remedy.name for remedy in config.remedies)])
        for path, config in configs.items()
    }
    groups: dict[tuple[str, str, int], list[Path]] = {}
    for path, name in plain.items():
        groups.setdefault((name, configs[path].env, configs[path].seed), []).append(path)
    apart: dict[str, set[str]] = {}
    for (name, _, _), paths in groups.items():
        settings = [flat(configs[path]) for path in paths]
        apart.setdefault(name, set()).update(key for key in settings[0] if len({str(one[key]) for one in settings}) > 1)
    called = {}
    for path, name in plain.items():
        words = [f"{key} {value}" for key, value in flat(configs[path]).items() if key in apart[name]]
        called[path] = ", ".join([name, *words])
    return called


def flat(config: TrainConfig) -> dict[str, Any]:
    """Every setting of a run, by the name of its flag."""
    data = asdict(config)
    del data["remedies"]
    remedies = {"remedy": tuple(remedy.name for remedy in config.remedies), **as_settings(config.remedies)}
    return {**data.pop("agent"), **data.pop("replay"), **data.pop("plasticity"), **remedies, **data}


def _distinct(records: list[Record]) -> list[Record]:
    seen: dict[tuple[str, str, int], Record] = {}
    for record in records:
        key = (record.method, record.task, record.seed)
        if key in seen:
            raise UsageError(f"{seen[key].source} and {record.source} are both {record.name}: give only one of them")
        seen[key] = record
    return [replace(record, source=Path(record.source).name) for record in records]
