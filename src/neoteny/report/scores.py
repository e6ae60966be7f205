"""Runs as they were: what each returned over training, what was measured beside it, and its score."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neoteny.errors import UsageError, missing_extra
from neoteny.report.foreign import Rows, read_csv, read_evaluations
from neoteny.training.config import TrainConfig
from neoteny.training.run import read_config, read_lines, read_metrics

if TYPE_CHECKING:
    import pandas

LAST = 0.1
"""A run's score is its mean return over this last share of its evaluations,"""
AT_LEAST = 3
"""and over at least so many of them."""

Series = tuple[np.ndarray, np.ndarray]
"""Steps, and a value at each."""
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
    probe/network/measure (on the fixed probe batch)."""
    seconds: float = math.nan
    steps_per_second: float = math.nan
    peak_mb: float = math.nan
    source: str = ""


def late(values: np.ndarray) -> float:
    """The mean over the last tenth of `values`, and over at least 3 of them."""
    count = max(AT_LEAST, math.ceil(LAST * len(values) - 1e-9))
    return float(np.mean(values[-count:]))


def full_measure(records: Sequence[Record], measure: str) -> str:
    """A measure with its batch: network/measure is of the training batch, or of the probe batch if only that has it."""
    known = {name for record in records for name in record.series}
    named = (measure, f"batch/{measure}", f"probe/{measure}")
    return next((name for name in named if name in known), measure)


def scores_of(records: Sequence[Record], measure: str = "score") -> Scores:
    """The score of every finished run, or its late value of another measure, in the order of the seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        _, values = (record.steps, record.returns) if measure == "score" else record.series.get(measure, ((), ()))
        if record.done and len(values):
            found.setdefault(record.method, {}).setdefault(record.task, []).append(late(np.asarray(values)))
    return {method: {task: np.array(many) for task, many in tasks.items()} for method, tasks in found.items()}


def read_runs(paths: Sequence[Path], names: Mapping[Path, str] | None = None) -> list[Record]:
    """The runs in directories, evaluations.npz of SB3 and tidy .csv files.

    names: what to call each run, by its directory; no other runs are then read. Without it a run is called by its
    agent, replay and interventions, and by the settings in which it differs from others of that name.
    """
    if names is not None:
        found = [(path, method) for path, method in names.items() if (path / "config.json").exists()]
        return _distinct([_read(path, *read_config(path), method) for path, method in found])
    records: list[Record] = []
    ours: dict[Path, tuple[TrainConfig, dict[str, Any]]] = {}
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no {path}: name a directory of runs, a .csv file or an evaluations.npz")
        if path.suffix == ".csv":
            records += [_foreign(rows) for rows in read_csv(path)]
            continue
        for archive in sorted(path.rglob("evaluations.npz")) if path.is_dir() else [path]:
            records.append(_foreign(read_evaluations(archive)))
        for config in sorted(path.rglob("config.json")) if path.is_dir() else []:
            if (config.parent / "metrics.jsonl").exists():
                ours[config.parent.resolve()] = read_config(config.parent)
    called = _names({path: config for path, (config, _) in ours.items()})
    records += [_read(path, config, facts, called[path]) for path, (config, facts) in ours.items()]
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


def _read(path: Path, config: TrainConfig, facts: dict[str, Any], method: str) -> Record:
    lines = read_metrics(path)
    evaluated = any(line.get("eval_return") is not None for line in lines)
    steps, returns = _column(lines, "eval_return" if evaluated else "episode_return")
    timing = read_lines(path / "timing.jsonl")
    speeds = [line["steps_per_second"] for line in timing if "steps_per_second" in line]
    return Record(
        method,
        config.env,
        config.seed,
        steps,
        returns,
        evaluated=evaluated,
        done=(path / "DONE").exists(),
        series=_series(lines),
        seconds=_seconds(timing),
        steps_per_second=float(np.median(speeds)) if speeds else math.nan,
        peak_mb=max((line["peak_resident_mb"] for line in timing if line.get("peak_resident_mb")), default=math.nan),
        source=str(path),
    )


def _seconds(timing: list[dict[str, Any]]) -> float:
    """Over all lives of a run; the clock of each begins at 0."""
    ends = [before["seconds"] for before, line in itertools.pairwise(timing) if "life" in line]
    return sum(ends) + timing[-1]["seconds"] if timing else math.nan


def _column(lines: list[dict[str, Any]], name: str) -> Series:
    known = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
    return np.array([step for step, _ in known], np.int64), np.array([value for _, value in known], np.float64)


def _series(lines: list[dict[str, Any]]) -> dict[str, Series]:
    """Ages, and each measure of each network on each batch."""
    names = {name for line in lines for name in line if name.startswith(("age_", "probe/", "batch/"))}
    return {name: _column(lines, name) for name in sorted(names) if name.count("/") in (0, 2)}


def _names(configs: Mapping[Path, TrainConfig]) -> dict[Path, str]:
    """agent-replay+interventions, and where two runs of a seed would share that, what sets them apart."""
    plain = {
        path: "+".join([f"{config.agent_name}-{config.replay.replay}", *config.plasticity.intervention])
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
    return {**data.pop("agent"), **data.pop("replay"), **data.pop("plasticity"), **data}


def _distinct(records: list[Record]) -> list[Record]:
    seen: dict[tuple[str, str, int], Record] = {}
    for record in records:
        key = (record.method, record.task, record.seed)
        if key in seen:
            raise UsageError(
                f"{seen[key].source} and {record.source} are both {record.method} on {record.task} with seed "
                f"{record.seed}: give only one of them"
            )
        seen[key] = record
    return [replace(record, source=Path(record.source).name) for record in records]
