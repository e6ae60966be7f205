"""Other people's runs: a tidy CSV, and the evaluations.npz that Stable-Baselines3 writes."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from neoteny.errors import UsageError

COLUMNS = ("method", "task", "seed", "step", "return")
LONGEST = 500
"""Characters of a method's or a task's name."""
LAST_STEP = 2**53
"""Up to which every whole number is a float64."""
LARGEST_ARRAY = 100_000_000
"""Bytes of an array in an evaluations.npz, which is compressed: a small file can contain a very large one."""


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
    found: dict[tuple[str, str, int], dict[int, float]] = {}
    for where, row in _lines(path):
        key = (_name(row, "method", where), _name(row, "task", where), _seed(row["seed"], where))
        run, step = found.setdefault(key, {}), _step(row["step"], where)
        if step in run:
            raise UsageError(
                f"{where}: the evaluation of {key[0]} on {key[1]} with seed {key[2]} at step {step:,} is there twice: "
                "keep one of them"
            )
        run[step] = _return(row["return"], where)
    if not found:
        raise UsageError(f"{path} contains no evaluations: it needs a line for each, with {', '.join(COLUMNS)}")
    for (method, task, seed), run in found.items():
        steps, returns = zip(*sorted(run.items()), strict=True)
        yield Rows(method, task, seed, np.array(steps, np.int64), np.array(returns, np.float64), str(path))


def _lines(path: Path) -> Iterator[tuple[str, dict[str, str | None]]]:
    """The rows of a CSV, each with the file and the line for an error to name."""
    with open_file(path) as binary:
        data = binary.read()
    try:
        text = data.decode("utf-8-sig")  # with or without a byte order mark
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}, line {line} is not UTF-8: save the file as UTF-8 text") from None
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        names = list(reader.fieldnames or ())
        if missing := [name for name in COLUMNS if name not in names]:
            raise UsageError(f"{path} lacks the columns {', '.join(missing)}: it needs {', '.join(COLUMNS)}")
        if twice := [name for name in COLUMNS if names.count(name) > 1]:
            raise UsageError(f"{path} has the columns {', '.join(twice)} more than once: keep one of each")
        for row in reader:
            if None in row:  # where csv puts what is too many
                raise UsageError(f"{path}, line {reader.line_num} has more fields than there are columns")
            yield f"{path}, line {reader.line_num}", row
    except csv.Error as error:  # a field of more than 128 kB, or a quotation mark that is never closed
        raise UsageError(f"{path}, line {reader.reader.line_num} is not CSV: {error}") from None


def _name(row: dict[str, str | None], column: str, where: str) -> str:
    return plain_name(row[column] or "", column, where)


def plain_name(name: str, what: str, where: str) -> str:
    """Return the name of a method or a task if figures and terminals can show it, or raise a UsageError."""
    if not name:
        raise UsageError(f"{where}: the {what} has no name")
    if len(name) > LONGEST:
        raise UsageError(
            f"{where}: the {what}'s name has {len(name):,} characters, and at most {LONGEST} can be shown: shorten it"
        )
    if not name.isprintable():
        place = "".join(letter if letter.isprintable() else "?" for letter in where)
        raise UsageError(f"{place}: the {what} {name!a} contains characters that cannot be printed: rename it")
    return name


def _seed(text: str | None, where: str) -> int:
    try:
        seed = int(text or "")
    except ValueError:
        seed = 2**64
    if abs(seed) >= 2**64:
        raise UsageError(f"{where}: the seed is {_short(text)}: it must be a whole number below 2^64")
    return seed


def _step(value: object, where: str) -> int:
    step = _float(value)
    if step is None or not (0 <= step <= LAST_STEP and step == int(step)):
        raise UsageError(f"{where}: the step is {_short(value)}: it must be a whole number from 0 to 2^53")
    return int(step)


def _return(text: str | None, where: str) -> float:
    value = _float(text)
    if value is None:
        raise UsageError(f"{where}: the return is {_short(text)}: it must be a number, or nan if the run diverged")
    return value


def _float(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _short(value: object) -> str:
    text = str("" if value is None else value)
    return ascii(text) if len(text) <= 40 else f"{text[:30]!a}, of {len(text):,} characters"


def open_file(path: Path) -> IO[bytes]:
    """Open a file to read it; a UsageError if it is a directory, a pipe or cannot be read."""
    if not path.is_file():
        raise UsageError(f"{path} is not a file")
    try:
        return path.open("rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def read_evaluations(path: Path) -> Rows:
    """An evaluations.npz of SB3, named by where it lies: METHOD/TASK_SEED/, as RL Zoo writes, or METHOD/TASK/SEED/."""
    steps, results = _arrays(path)
    if not (steps.ndim == 1 and len(steps) and results.ndim in (1, 2) and len(results) == len(steps) and results.size):
        raise UsageError(
            f"{path} contains timesteps of shape {steps.shape} and results of shape {results.shape}: it needs at least "
            "one evaluation, and the results of each in a row"
        )
    *_, third, second, first = ("", "", "", *path.resolve().parts[1:-1])
    if found := re.fullmatch(r"(.+)_(\d+)", first):
        method, task, seed = second, found[1], found[2]
    elif found := re.search(r"(\d+)$", first):
        method, task, seed = third, second, found[1]
    else:
        raise UsageError(
            f"{path} does not say which seed it is of: it should lie in METHOD/TASK_SEED/ or METHOD/TASK/SEED/"
        )
    with np.errstate(all="ignore"):  # a return that is not finite, or a sum that overflows, is told from the mean
        returns = results.reshape(len(steps), -1).mean(axis=1)
    return Rows(
        plain_name(method, "method", str(path)),
        plain_name(task, "task", str(path)),
        _seed(seed, str(path)),
        np.array([_step(step, str(path)) for step in steps.tolist()], np.int64),
        returns,
        str(path),
    )


def _arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The steps and the results in an evaluations.npz, of real numbers. Nothing is unpickled."""
    found = []
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            for name in ("timesteps", "results"):
                info = archive.getinfo(f"{name}.npy")
                if info.file_size > LARGEST_ARRAY:
                    raise ValueError(f"its {name} have {info.file_size:,} bytes, more than {LARGEST_ARRAY:,}")
                with archive.open(info) as member:
                    array = np.lib.format.read_array(member, allow_pickle=False)
                if array.dtype.kind not in "iuf":
                    raise ValueError(f"its {name} are of type {array.dtype}, and numbers are needed")
                found.append(array.astype(np.float64))
    except UsageError:
        raise
    except Exception as error:  # whatever a damaged file makes zipfile, its decompressors and NumPy raise
        reason = str(error).strip("'\"").splitlines()[:1] or [type(error).__name__]
        raise UsageError(f"{path} is not an evaluations.npz of Stable-Baselines3: {reason[0][:200]}") from error
    return found[0], found[1]
