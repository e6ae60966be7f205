"""A checkpoint's manifest: what a checkpoint says of itself, sealed, and checked as a whole before it is believed.

The seal is against damage. A stranger can make one as well, so every name and number is checked too: a manifest names
files inside ``checkpoint/`` alone, by the names that ``Checkpoints`` gives them.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from neoteny.runs.files import Damaged, checksum, contents, inside

FORMAT = 1
LARGEST = 64 << 20
"""Bytes of a manifest, at most: it has a line for each segment, some hundreds in a long run."""
MOST = 10**15
"""A number in a manifest, at most."""
_NAME = re.compile(r"[0-9]{12,15}\.json")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Segment:
    """A file of the transitions numbered first to stop - 1."""

    file: str
    first: int
    stop: int
    sha256: str


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint says of itself."""

    step: int
    log_position: int
    """How long metrics.jsonl was, in bytes."""
    config: dict[str, Any]
    first_needed: int
    clock: int
    file: str
    sha256: str
    segments: tuple[Segment, ...]
    """In the order they are to be put back: where two overlap, the later one holds."""
    forever: bool = False
    """Whether it is never removed, because --keep-checkpoints asked for it."""


def folder_of(directory: Path) -> Path:
    """Where a run's checkpoints are."""
    return inside(directory, "checkpoint", folder=True)


def manifests(directory: Path) -> list[Path]:
    """The files that are a run's checkpoints, the oldest first; a copy with another name is none of them."""
    names = [path.name for path in folder_of(directory).glob("[0-9]*.json") if _NAME.fullmatch(path.name)]
    return [inside(directory, "checkpoint", name) for name in sorted(names, key=lambda name: (len(name), name))]


def seal(checkpoint: Checkpoint) -> bytes:
    """The bytes of a manifest."""
    return sealed({"format": FORMAT, **asdict(checkpoint)})


def sealed(facts: dict[str, Any]) -> bytes:
    """What a manifest says, with its checksum."""
    text = json.dumps(facts, sort_keys=True)
    return json.dumps({"sha256": checksum(text.encode()), "checkpoint": facts}, indent=1, sort_keys=True).encode()


def read_manifest(path: Path) -> Checkpoint:
    """The checkpoint that a manifest describes; Damaged if anything in it is not as ``Checkpoints`` writes it."""
    try:
        if (size := path.stat().st_size) > LARGEST:
            raise Damaged(f"{path.name} has {size:,} bytes, and a manifest has at most {LARGEST:,}")
        data = json.loads(contents(path))
        facts = data["checkpoint"]
        whole = data["sha256"] == checksum(json.dumps(facts, sort_keys=True).encode())
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"{path.name} cannot be read") from error
    if not whole:
        raise Damaged(f"{path.name} is damaged: its checksum does not match")
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise Damaged(f"{path.name} was written by another version of neoteny")
    try:
        return _checked({name: value for name, value in facts.items() if name != "format"}, int(path.stem))
    except Damaged as error:
        raise Damaged(f"{path.name} is not a checkpoint's: {error}") from error


def _checked(facts: dict[str, Any], step: int) -> Checkpoint:
    _require_names({"forever": False, **facts}, Checkpoint)
    if _count(facts, "step") != step:
        raise Damaged(f"its step is {facts['step']:,}, and its name says {step:,}")
    _count(facts, "log_position")
    if _count(facts, "first_needed") > _count(facts, "clock"):
        raise Damaged(f"its first_needed {facts['first_needed']:,} is beyond its clock {facts['clock']:,}")
    if type(facts["config"]) is not dict or type(facts.get("forever", False)) is not bool:
        raise Damaged("its config is no table, or its forever neither true nor false")
    _text(facts, "file", re.compile(rf"{step:012}(-[0-9]{{6,15}})?\.npz"))
    _text(facts, "sha256", _SHA256)
    if type(facts["segments"]) is not list:
        raise Damaged("its segments are no list")
    segments = tuple(_checked_segment(segment) for segment in facts["segments"])
    reached = facts["first_needed"]
    for segment in segments:
        if not segment.first <= reached <= segment.stop:  # those from `first` on were amended, and saved again
            raise Damaged(f"{segment.file} does not go on from transition {reached:,}")
        reached = segment.stop
    if reached != facts["clock"]:
        raise Damaged(f"its segments end at transition {reached:,}, and its clock is {facts['clock']:,}")
    return Checkpoint(**{**facts, "segments": segments})


def _checked_segment(facts: Any) -> Segment:
    if type(facts) is not dict:
        raise Damaged(f"a segment is {facts!r:.60}, which is no table")
    _require_names(facts, Segment)
    first, stop = _count(facts, "first"), _count(facts, "stop")
    if first >= stop:
        raise Damaged(f"a segment begins at {first:,} and ends at {stop:,}")
    _text(facts, "file", re.compile(rf"segments/[0-9]{{6,15}}-{first:012}-{stop:012}\.npz"))
    _text(facts, "sha256", _SHA256)
    return Segment(**facts)


def _require_names(facts: dict[str, Any], kind: type[Checkpoint | Segment]) -> None:
    expected = [field.name for field in fields(kind)]
    if set(facts) != set(expected):
        raise Damaged(f"it has the parts {', '.join(map(repr, sorted(facts)))[:200]}, not {', '.join(expected)}")


def _count(facts: dict[str, Any], name: str) -> int:
    value = facts[name]
    if type(value) is not int or not 0 <= value <= MOST:
        raise Damaged(f"its {name} is {value!r:.60}, and must be a whole number from 0 to {MOST:,}")
    return value


def _text(facts: dict[str, Any], name: str, pattern: re.Pattern[str]) -> None:
    value = facts[name]
    if type(value) is not str or not pattern.fullmatch(value):
        raise Damaged(f"its {name} is {value!r:.80}, which no checkpoint has")
