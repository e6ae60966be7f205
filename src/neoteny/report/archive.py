"""Archives: finished runs as small text files that belong in git, and that are read back without running any code.

An archived run is one file of JSON lines, ``<env>/<agent>-<replay>/<seed>-<id>.jsonl``: a header with the whole
configuration and where the run was made, its evaluations, then a line for each series of metrics. Every line ends with
a checksum, and the last one counts them, so a damaged or edited file is refused with the line that is wrong.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neoteny.errors import UsageError
from neoteny.runs.files import write
from neoteny.runs.run import read_config, read_lines, read_metrics
from neoteny.settings.config import TrainConfig

FORMAT = 1
POINTS = 100
"""Points of a series at most: a run's file stays near 100 KB."""
DIGITS = 5
"""Digits of a series' values. Returns are kept as they are."""
_HEADER = "neoteny archive"
_NAME = re.compile(r"\d+-[0-9a-f]{8}\.jsonl")
"""How an archive's file is named, by which one whose first bytes are lost is still known."""

Series = tuple[np.ndarray, np.ndarray]
"""Steps, and a value at each."""


@dataclass(frozen=True, eq=False)
class History:
    """What a report needs to know of one run, from its directory or from an archive of it."""

    config: TrainConfig
    facts: dict[str, Any]
    """What config.json says: environment, versions, source."""
    done: bool
    evaluations: Series
    episodes: Series
    """Returns of training's own episodes; of a long run, means over equal parts."""
    not_finite: int
    """Evaluations whose mean return was NaN or infinite, which are left out."""
    eval_returns: tuple[tuple[float, ...], ...]
    """The return of each episode of each evaluation."""
    series: dict[str, Series]
    """Every other metric over training; of a long run, means over equal parts."""
    timing: dict[str, float | None]
    """seconds, steps_per_second and peak_resident_mb."""


def runs_in(place: Path) -> list[Path]:
    """Return the runs in a directory: their directories, and the archives of runs. An archive alone is one, too."""
    if not place.is_dir():
        return [place] if is_archive(place) else []
    directories = [path.parent for path in place.rglob("config.json") if (path.parent / "metrics.jsonl").exists()]
    return [*sorted(directories), *archived_in(place).values()]


def archived_in(place: Path) -> dict[str, Path]:
    """Return the archives in a directory by the names of their runs; none if there is no such directory.

    Every one of them is checked, since it counts as a finished run: a damaged one raises a UsageError.
    """
    archives: dict[str, Path] = {}
    for path in sorted(place.rglob("*.jsonl")) if place.is_dir() else []:
        if not (is_archive(path) or _NAME.fullmatch(path.name)):
            continue
        _read_parts(path)
        other = archives.setdefault(run_name(path), path)
        if other != path and other.read_bytes() != path.read_bytes():
            raise UsageError(f"{other} and {path} are different archives of the same run: keep one of them")
    return archives


def run_name(path: Path) -> str:
    """Return a run's name, <env>/<agent>-<replay>/<seed>-<id>, from where its directory or archive is."""
    return "/".join(path.resolve().with_suffix("" if path.suffix == ".jsonl" else path.suffix).parts[-3:])


def read_history(path: Path) -> History:
    """Return the history of a run, from its directory or its archive."""
    return read_archive(path) if is_archive(path) else read_run(path, *read_config(path))


def thin(steps: np.ndarray, values: np.ndarray) -> Series:
    """Return a series of at most `POINTS` points: means over equal numbers of neighbours, each at its last step."""
    size = max(1, math.ceil(len(values) / POINTS))
    starts = np.arange(0, len(values), size)
    means = [float(f"{values[start : start + size].mean():.{DIGITS}g}") for start in starts]
    return steps[np.minimum(starts + size, len(values)) - 1], np.array(means, np.float64)


def read_run(directory: Path, config: TrainConfig, facts: dict[str, Any]) -> History:
    """Return the history of the run in a directory, whose config.json is read already."""
    lines = read_metrics(directory)
    names = {name for line in lines for name, value in line.items() if isinstance(value, (int, float))}
    names -= {"step", "eval_return", "episode_return"}
    evaluated = [line for line in lines if line.get("eval_return") is not None]
    timing = read_lines(directory / "timing.jsonl")
    speeds = [line["steps_per_second"] for line in timing if "steps_per_second" in line]
    peaks = [line["peak_resident_mb"] for line in timing if line.get("peak_resident_mb")]
    return History(
        config,
        facts,
        done=(directory / "DONE").exists(),
        evaluations=_column(lines, "eval_return"),
        episodes=thin(*_column(lines, "episode_return")),
        not_finite=sum("eval_return" in line for line in lines) - len(evaluated),
        eval_returns=tuple(tuple(line.get("eval_returns", ())) for line in evaluated),
        series={name: thin(*_column(lines, name)) for name in sorted(names)},
        timing={
            "seconds": _seconds(timing),
            "steps_per_second": float(np.median(speeds)) if speeds else None,
            "peak_resident_mb": max(peaks, default=None),
        },
    )


def _column(lines: list[dict[str, Any]], name: str) -> Series:
    known = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
    return np.array([step for step, _ in known], np.int64), np.array([value for _, value in known], np.float64)


def _seconds(timing: list[dict[str, Any]]) -> float | None:
    """Return the seconds of all lives of a run; the clock of each begins at 0."""
    ends = [before["seconds"] for before, line in itertools.pairwise(timing) if "life" in line]
    return sum(ends) + timing[-1]["seconds"] if timing else None


def write_archive(path: Path, run: str, history: History, digests: dict[str, str]) -> None:
    """Write the archive of a run.

    Args:
        path: the file.
        run: the run's directory under runs/, which names it.
        history: what is known of it.
        digests: of its last checkpoint and its metrics.jsonl, by name.
    """
    steps, returns = history.evaluations
    parts: list[dict[str, Any]] = [
        {_HEADER: FORMAT, "run": run, **history.facts, "timing": history.timing, "digests": digests},
        {
            "evaluations": steps.tolist(),
            "returns": returns.tolist(),
            "not_finite": history.not_finite,
            "episodes": history.eval_returns,
        },
    ]
    known: dict[bytes, str] = {}
    for name, (steps, values) in {"episode_return": history.episodes, **history.series}.items():
        if steps.tobytes() not in known:
            known[steps.tobytes()] = f"steps {len(known) + 1}"
            parts.append({"steps": known[steps.tobytes()], "values": steps.tolist()})
        parts.append({"series": name, "at": known[steps.tobytes()], "values": values.tolist()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, "".join(f"{line}\n" for line in _with_end([_sealed(part) for part in parts])).encode())


def _with_end(lines: list[str]) -> list[str]:
    """Return the lines with one more, which seals their number and their order."""
    whole = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
    return [*lines, _sealed({"end": len(lines), "of": whole})]


def _sealed(part: dict[str, Any]) -> str:
    return json.dumps({**part, "checksum": _checksum(part)}, separators=(",", ":"))


def _checksum(part: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(part, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:12]


def is_archive(path: Path) -> bool:
    """Return whether a file is the archive of a run, by its first bytes."""
    if path.suffix != ".jsonl" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_HEADER) + 4).startswith(f'{{"{_HEADER}'.encode())


def read_archive(path: Path) -> History:
    """Return the history in an archive, or raise a UsageError that names the line that is wrong."""
    parts = _read_parts(path)
    head, evaluations = parts[0], parts[1]
    facts = {name: head[name] for name in head if name not in (_HEADER, "run", "timing", "digests")}
    shared = {part["steps"]: np.array(part["values"], np.int64) for part in parts if "steps" in part}
    series = {
        part["series"]: (shared[part["at"]], np.array(part["values"], np.float64)) for part in parts if "series" in part
    }
    return History(
        TrainConfig.from_json(facts["config"]),
        facts,
        done=True,
        evaluations=(np.array(evaluations["evaluations"], np.int64), np.array(evaluations["returns"], np.float64)),
        episodes=series.pop("episode_return"),
        not_finite=evaluations["not_finite"],
        eval_returns=tuple(map(tuple, evaluations["episodes"])),
        series=series,
        timing=head["timing"],
    )


def read_digests(path: Path) -> dict[str, str]:
    """Return the digests in an archive."""
    digests: dict[str, str] = _read_parts(path)[0]["digests"]
    return digests


def _read_parts(path: Path) -> list[dict[str, Any]]:
    parts = []
    lines = path.read_bytes().splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            part = json.loads(line.decode())
            sealed = part.pop("checksum")
        except (ValueError, KeyError, AttributeError, TypeError):
            raise UsageError(f"{path}, line {number} is damaged: it is not a sealed line of JSON") from None
        if sealed != _checksum(part):
            raise UsageError(f"{path}, line {number} was changed after it was written: its checksum does not match")
        parts.append(part)
    if not parts or "end" not in parts[-1]:
        raise UsageError(f"{path}, line {len(parts) + 1} is missing: the file was cut short")
    if lines[-1].decode() != _with_end([line.decode() for line in lines[:-1]])[-1]:
        raise UsageError(f"{path}, line {len(parts)}: the lines above are not those that were written")
    if parts[0].get(_HEADER) != FORMAT:
        raise UsageError(f"{path}, line 1: this is format {parts[0].get(_HEADER)}, and this version reads {FORMAT}")
    if parts[0]["run"] != run_name(path):
        raise UsageError(f"{path}, line 1: this is the archive of {parts[0]['run']}: give the file that name again")
    return parts[:-1]
