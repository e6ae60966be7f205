"""A run's records read back, each checked: config.json, metrics.jsonl, timing.jsonl and DONE.

Damage is one sentence that names the file, and the line where there is one. Three checksums make sure of it:
config.json ends with one of its own, DONE has those of config.json, metrics.jsonl and timing.jsonl, and a checkpoint
has one of metrics.jsonl as far as it was written. Runs from before there were checksums are read without; their values
are checked all the same.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from neoteny.errors import UsageError
from neoteny.training.config import TrainConfig
from neoteny.training.files import Damaged, checksum, inside, write
from neoteny.training.types import fitted

CONFIG, METRICS, TIMING, DONE = "config.json", "metrics.jsonl", "timing.jsonl", "DONE"
_SEAL = "sha256"
_FACTS = {
    "config": dict,
    "environment": dict,
    "versions": dict[str, str],
    "source": dict | None,
    "resumed_by": list[dict],
}
_ENVIRONMENT = {
    "versions": dict[str, str],
    "observation": str,
    "observation_keys": list[str] | None,
    "make_env": str | None,
    "network": str | None,
    "backend": str,
    "horizon": int,
}
_SOURCE = {"commit": str | None, "changed": bool | None, "processor": str}
_LISTS = ("eval_returns",)
_WORDS = ("intervention",)
"""The metrics that are not numbers."""


def is_run(directory: Path) -> bool:
    """Return whether a directory contains a run, also one that lost its config.json: reading that then says so."""
    return (directory / CONFIG).exists() or sum((directory / name).exists() for name in (METRICS, TIMING, DONE)) > 1


def is_finished(directory: Path) -> bool:
    """Return whether a run has come to its end."""
    path = directory / DONE
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a file, which it is in a finished run: remove it")
    return path.exists()


def runs_in(place: Path) -> list[Path]:
    """Return the directories of runs at `place` and inside it, also of those that lost one of their files."""
    files = {CONFIG, METRICS, TIMING, DONE}
    found = [Path(folder) for folder, inside, names in os.walk(place) if len(files & {*inside, *names}) >= 2]
    return sorted(found)


def read_config(directory: Path) -> tuple[TrainConfig, dict[str, Any]]:
    """The configuration of a run, and everything that config.json says."""
    path = directory / CONFIG
    if not is_run(directory):
        if not directory.exists():
            raise UsageError(f"there is no {directory}: name the directory of a run")
        nearest = next((path.parent for path in sorted(directory.rglob(CONFIG))), None)
        hint = f"; a run inside it is {nearest}" if nearest else ""
        raise UsageError(f"{directory} is not a run: it has no {CONFIG}{hint}")
    try:
        facts = parse(_read(directory, CONFIG))
        seal = facts.pop(_SEAL, None)
        if seal is not None and seal != _sealed(facts):
            raise UsageError(
                f"{path} was changed after it was written, since its checksum does not match: put back what it said, "
                "or train anew"
            )
        if seal is not None and _checksums(directory).get(CONFIG, seal) != seal:
            raise UsageError(
                f"{path} is not the one that the run finished with, since its checksum is not that in {DONE}: put the "
                f"original back; or, if it is the right one, remove {DONE}"
            )
        _check_kinds(facts, _FACTS, "")
        _check_kinds(facts.setdefault("environment", {}), _ENVIRONMENT, "environment.")
        for source in [facts.get("source") or {}, *facts.get("resumed_by", ())]:
            _check_kinds(source, _SOURCE, "source.")
        if "config" not in facts:
            raise ValueError("it has no config")
        return _settings(path, facts["config"]), facts
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"{path} is damaged: {error}") from error


def _settings(path: Path, data: dict[str, Any]) -> TrainConfig:
    try:
        return TrainConfig.from_json(data)
    except UsageError as error:
        raise UsageError(f"{path} is damaged: {error}") from error


def fact(directory: Path, facts: Mapping[str, Any], name: str) -> Any:
    """Return what config.json says of a run's environment, or raise a UsageError if it does not."""
    if name not in facts["environment"]:
        raise UsageError(f"{directory / CONFIG} is damaged: it has no environment.{name}")
    return facts["environment"][name]


def write_config(directory: Path, facts: dict[str, Any]) -> None:
    """Write config.json, with a checksum of its own."""
    write(directory / CONFIG, (json.dumps({**facts, _SEAL: _sealed(facts)}, indent=2) + "\n").encode())


def _sealed(facts: dict[str, Any]) -> str:
    return checksum(json.dumps(facts, sort_keys=True).encode())


def _check_kinds(facts: dict[str, Any], kinds: Mapping[str, Any], where: str) -> None:
    for name, kind in kinds.items():
        if name in facts:
            try:
                fitted(facts[name], kind)
            except TypeError as error:
                raise ValueError(f"{where}{name} {error}") from error
    if facts.get("horizon", 1) < 1:
        raise ValueError(f"{where}horizon must be >= 1, got {facts['horizon']}")


def write_done(directory: Path) -> None:
    """Mark a run as done, with the checksums of its configuration and its logs."""
    sums = {name: checksum(_read(directory, name)) for name in (METRICS, TIMING)}
    sums[CONFIG] = parse(_read(directory, CONFIG)).get(_SEAL, "")
    write(directory / DONE, (json.dumps(sums) + "\n").encode())


def _checksums(directory: Path) -> dict[str, Any]:
    """What DONE says: none of a run that is not done, nor of one from before there were checksums."""
    path = directory / DONE
    data = _read(directory, DONE) if is_finished(directory) else b""
    try:
        return parse(data) if data else {}
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {error}; {end_again(directory)}") from error


def end_again(directory: Path) -> str:
    """How to have the end of a finished run made again."""
    return f"remove {DONE}, and neoteny resume {directory} writes the end of the run again from its last checkpoint"


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl. One that a crash cut short, which is then the last, is left out."""
    path = directory / METRICS
    expected = _checksums(directory).get(METRICS)
    data = _read(directory, METRICS) if path.exists() or is_finished(directory) else b""
    if expected is not None and checksum(data) != expected:
        raise UsageError(
            f"{path} was changed after the run finished, since its checksum is not that in {DONE}: put the original "
            f"back; or {end_again(directory)}"
        )
    return _parse_metrics(path, data)


def _parse_metrics(path: Path, data: bytes) -> list[dict[str, Any]]:
    *whole, last = data.split(b"\n")
    lines: list[dict[str, Any]] = []
    for number, line in enumerate([*whole, *([last] if _is_whole(last) else [])], start=1):
        try:
            lines.append(_metrics(line, lines[-1]["step"] if lines else 0))
        except ValueError as error:
            raise UsageError(f"{path}, line {number} is damaged: {error}") from error
    return lines


def check_log(directory: Path, length: int, expected: str | None) -> None:
    """Raise Damaged if the first `length` bytes of metrics.jsonl are not what a checkpoint was made after.

    expected: their SHA-256; None in a checkpoint from before there were such, whose lines are then looked at.
    """
    path = directory / METRICS
    data = _read(directory, METRICS)[:length] if path.exists() else b""
    if expected is not None:
        if checksum(data) != expected:
            raise Damaged(f"{METRICS} was changed after it was written: its checksum does not match")
        return
    try:
        _parse_metrics(path, data)
    except UsageError as error:
        raise Damaged(str(error)) from error


def read_timing(directory: Path) -> list[dict[str, Any]]:
    """The lines of timing.jsonl, but for those that are damaged; none if it was changed after the run finished."""
    path = directory / TIMING
    if not path.is_file():
        return []
    expected = _checksums(directory).get(TIMING)
    if expected is not None and checksum(_read(directory, TIMING)) != expected:
        return []
    return [line for line in read_lines(path) if _is_timing(line)]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a log that are whole; the others are left out. None if there is no such file."""
    return list(whole_lines(_read(path.parent, path.name).split(b"\n"))) if path.exists() else []


def whole_lines(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    """Those of a log's lines that are whole."""
    for line in lines:
        if _is_whole(line):
            yield _line(line)


def _read(directory: Path, name: str) -> bytes:
    """The bytes of a file of a run; a link in its place is not followed."""
    return read_bytes(inside(directory, name))


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, or a UsageError if there is no such file; a pipe, which would wait for ever, is none."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"{path} is not a file: put back the file that was there")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def parse(data: bytes) -> dict[str, Any]:
    """A JSON object, or a ValueError that says what it is instead."""
    try:
        value = json.loads(data.decode(), parse_int=_whole_number)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start:,} is not UTF-8") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def _whole_number(digits: str) -> int:
    if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 63:
        raise ValueError(f"the number {digits[:20]}... is too large")
    return int(digits)


def _line(line: bytes) -> dict[str, Any]:
    found = parse(line)
    step = found.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise ValueError(f"its step must be a whole number, got {_short(step)}")
    return found


def _is_whole(line: bytes) -> bool:
    try:
        _line(line)
    except ValueError:
        return False
    return True


def _metrics(line: bytes, before: int) -> dict[str, Any]:
    found = _line(line)
    if found["step"] < before:
        raise ValueError(f"its step is {found['step']:,}, after {before:,}")
    for name, value in found.items():
        if name in _LISTS:
            fits = isinstance(value, list) and all(one is None or isinstance(one, float | int) for one in value)
        elif name in _WORDS:
            fits = isinstance(value, str)
        else:
            fits = value is None or is_number(value)
        if not fits:
            raise ValueError(f"{name} is {_short(value)}")
    return found


def _is_timing(line: dict[str, Any]) -> bool:
    numbers = [line.get("seconds"), *(line[name] for name in ("steps_per_second", "peak_resident_mb") if name in line)]
    return all(is_number(value) and value >= 0 for value in numbers)


def is_number(value: Any) -> bool:
    """Whether it is a number that a float can stand for."""
    return isinstance(value, float | int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
