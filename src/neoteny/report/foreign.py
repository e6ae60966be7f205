"""Other people's runs: a tidy CSV, and the evaluations.npz that Stable-Baselines3 writes."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from neoteny.errors import UsageError

COLUMNS = ("method", "task", "seed", "step", "return")


class Rows(NamedTuple):
    """What one run of someone else returned."""

    method: str
    task: str
    seed: int
    steps: np.ndarray
    returns: np.ndarray
    source: str


def read_csv(path: Path) -> Iterator[Rows]:
    """The runs of a tidy CSV: a line for each evaluation, with the columns method, task, seed, step, return."""
    found: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
            raise UsageError(f"{path} lacks the columns {', '.join(missing)}: it needs {', '.join(COLUMNS)}")
        for number, row in enumerate(reader, start=2):
            try:
                key = (row["method"], row["task"], int(row["seed"]))
                found.setdefault(key, []).append((int(float(row["step"])), float(row["return"])))
            except (TypeError, ValueError) as error:
                raise UsageError(f"{path}, line {number}: seed, step and return must be numbers: {error}") from error
    if not found:
        raise UsageError(f"{path} holds no evaluations: it needs a line for each, with {', '.join(COLUMNS)}")
    for (method, task, seed), pairs in found.items():
        steps, returns = np.array(sorted(pairs)).T
        yield Rows(method, task, seed, steps.astype(np.int64), returns, str(path))


def read_evaluations(path: Path) -> Rows:
    """An evaluations.npz of SB3, named by where it lies: METHOD/TASK_SEED/, as RL Zoo writes, or METHOD/TASK/SEED/."""
    try:
        with np.load(path) as data:
            steps, results = np.asarray(data["timesteps"]), np.asarray(data["results"], np.float64)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{path} is not an evaluations.npz of Stable-Baselines3: {error}") from error
    *_, third, second, first = ("", "", "", *path.resolve().parts[1:-1])
    if found := re.fullmatch(r"(.+)_(\d+)", first):
        method, task, seed = second, found[1], found[2]
    elif found := re.search(r"(\d+)$", first):
        method, task, seed = third, second, found[1]
    else:
        raise UsageError(
            f"{path} does not say which seed it is of: it should lie in METHOD/TASK_SEED/ or METHOD/TASK/SEED/"
        )
    return Rows(method, task, int(seed), steps, results.reshape(len(steps), -1).mean(axis=1), str(path))
