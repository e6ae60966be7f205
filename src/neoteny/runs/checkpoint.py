"""Checkpoints: a run's whole state on disk, the replay as append-only segments that checkpoints share.

``checkpoint/STEP.json`` is a checkpoint: it names a file with everything but the transitions, and the segments that
hold those, with a checksum each and one of its own. It is written last, so a checkpoint is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neoteny.errors import UsageError
from neoteny.replay.buffer import ReplayBuffer
from neoteny.runs.files import Damaged, checksum, decode, digest, encode, read, write
from neoteny.runs.policy import has_policy

FORMAT = 1
KEPT = 2
"""Checkpoints that are kept in any case: the newest, and one to fall back to."""
SEGMENT_BYTES = 32 << 20
"""A segment is written whenever so much is new, so that a checkpoint has little left to write."""


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


class Checkpoints:
    """Writes the checkpoints of one run, and removes what no kept one needs."""

    def __init__(self, directory: Path, newest: Checkpoint | None = None) -> None:
        """newest: the checkpoint that the run goes on from; whatever is on disk beyond it is removed."""
        self._folder = folder_of(directory)
        (self._folder / "segments").mkdir(parents=True, exist_ok=True)
        self._segments = list(newest.segments) if newest else []
        self._saved = newest.clock if newest else 0
        self._full = False
        """Whether the disk did not take the last segment."""
        older = [c for c in _readable(self._folder) if newest and c.step < newest.step]
        self._kept = _worth_keeping([*older, newest]) if newest else []
        self._count = 1 + max((_count_of(path) for path in _numbered(self._folder)), default=0)
        if newest:
            self._clean()

    @property
    def newest(self) -> Checkpoint | None:
        """The newest checkpoint on disk."""
        return self._kept[-1] if self._kept else None

    def how_to_go_on(self) -> str:
        """What to say of a run that stopped."""
        if self.newest is None:
            return "there is no checkpoint to go on from"
        return f"saved at step {self.newest.step:,}, to go on with: neoteny resume {self._folder.parent}"

    def amend(self, number: int) -> None:
        """Transitions from `number` on were changed after they were added, and are to be saved again."""
        self._saved = min(self._saved, number)

    def spill(self, buffer: ReplayBuffer) -> None:
        """Write a segment, if enough is new."""
        if self._full or (buffer.clock - self._saved) * buffer.bytes_per_transition < SEGMENT_BYTES:
            return
        try:
            self._append(buffer)
        except OSError:
            self._full = True  # the next checkpoint tries again, and says so if it cannot
            return
        named = {segment.file for made in self._kept for segment in made.segments}
        for segment in [s for s in self._segments if s.stop <= buffer.first_needed and s.file not in named]:
            self._segments.remove(segment)
            (self._folder / segment.file).unlink()

    def save(
        self,
        state: dict[str, Any],
        buffer: ReplayBuffer,
        step: int,
        log_position: int,
        config: Any,
        forever: bool = False,
    ) -> None:
        """Commit a checkpoint: `state`, and the transitions of `buffer` that are not on disk yet."""
        self._full = False
        self._append(buffer)
        data = encode({**state, "replay": buffer.state(transitions=False)})
        name = f"{step:012}-{self._count:06}.npz"  # never one that is there already
        self._count += 1
        write(self._folder / name, data)
        first, clock = buffer.first_needed, buffer.clock
        needed = tuple(segment for segment in self._segments if segment.stop > first)
        forever = forever or any(c.forever for c in self._kept if c.step == step)
        made = Checkpoint(step, log_position, config, first, clock, name, checksum(data), needed, forever)
        write(self._folder / f"{step:012}.json", _seal({"format": FORMAT, **asdict(made)}))
        self._kept = _worth_keeping([*(c for c in self._kept if c.step != step), made])
        self._clean()

    def _append(self, buffer: ReplayBuffer) -> None:
        rows = max(buffer.num_envs, SEGMENT_BYTES // buffer.bytes_per_transition)
        while self._saved < buffer.clock:
            first = max(self._saved, buffer.first_needed)
            stop = min(first + rows, buffer.clock)
            data = encode(buffer.transitions(first, stop))
            file = f"segments/{self._count:06}-{first:012}-{stop:012}.npz"
            write(self._folder / file, data)
            self._segments.append(Segment(file, first, stop, checksum(data)))
            self._count += 1
            self._saved = stop

    def _clean(self) -> None:
        """Remove checkpoints that are not kept, then every file that those do not name."""
        steps = {c.step for c in self._kept}
        for path in manifests(self._folder.parent):
            if int(path.stem) not in steps:
                path.unlink()
        self._segments = [s for s in self._segments if s.stop > min(c.first_needed for c in self._kept)]
        named = {c.file for c in self._kept} | {s.file for c in self._kept for s in c.segments}
        for path in [*_numbered(self._folder), *self._folder.rglob("*.tmp")]:
            if str(path.relative_to(self._folder)) not in named:
                path.unlink()


def _worth_keeping(made: list[Checkpoint]) -> list[Checkpoint]:
    """Return the newest checkpoints, and those that are kept for good."""
    return [*(c for c in made[:-KEPT] if c.forever), *made[-KEPT:]]


def _numbered(folder: Path) -> list[Path]:
    return [*folder.glob("segments/[0-9]*.npz"), *folder.glob("[0-9]*.npz")]


def _count_of(path: Path) -> int:
    """A segment's number comes first in its name, a state's last."""
    numbers = path.stem.split("-")
    return int(numbers[0] if len(numbers) == 3 else numbers[-1])


def manifests(directory: Path) -> list[Path]:
    """The files that are a run's checkpoints, the oldest first."""
    return sorted(folder_of(directory).glob("[0-9]*.json"))


def folder_of(directory: Path) -> Path:
    """Where a run's checkpoints are."""
    return directory / "checkpoint"


def load(directory: Path, use: Callable[[Checkpoint, dict[str, Any]], None]) -> tuple[Checkpoint, list[str]]:
    """The newest checkpoint that is whole, and what is wrong with those after it.

    use: is given a checkpoint and its state, and reads its segments; if one is damaged it is called again with
    the checkpoint before. Raises UsageError, with what is lost, if none is whole.
    """
    folder = folder_of(directory)
    complaints = []
    for path in reversed(manifests(directory)):
        try:
            found = _read_manifest(path)
            _check_log(directory, found)
            use(found, decode(read(folder / found.file, found.sha256)))
        except Damaged as error:
            complaints.append(f"the checkpoint at step {int(path.stem):,} cannot be used: {error}")
        else:
            return found, complaints
    if not complaints:
        raise UsageError(f"{directory} has no checkpoint to go on from: begin again with neoteny train")
    policy = " Its policy is a file of its own: neoteny evaluate still works." if has_policy(directory) else ""
    raise UsageError(f"{directory} cannot go on: {'; '.join(complaints)}.{policy}")


def digests(directory: Path) -> tuple[Checkpoint, dict[str, str], list[str]]:
    """The newest whole checkpoint, with a digest of each of its parts, and what is wrong with those after it."""
    made: dict[str, str] = {}

    def use(found: Checkpoint, state: dict[str, Any]) -> None:
        agent, replay = state["agent"], state["replay"]
        made["parameters"] = digest(agent["parameters"])
        made["optimiser"] = digest(agent["optimiser"])
        made["random"] = digest([agent["random"], state["rng"], replay.pop("rng")])
        made["environment"] = digest([state["envs"], state["obs"]])
        made["replay"] = digest([replay, _transitions_digest(directory, found, replay["oldest"])])

    found, complaints = load(directory, use)
    return found, made, complaints


def _transitions_digest(directory: Path, found: Checkpoint, oldest: int) -> dict[str, str]:
    """Of the transitions as one, however they were cut into segments; rows from the oldest held, frames from before."""
    hashers: dict[str, Any] = {}
    for first, arrays in segments(directory, found):
        for name, array in arrays.items():
            start = max(0, oldest - first) if name == "rows" else 0
            hashers.setdefault(name, hashlib.sha256()).update(np.ascontiguousarray(array[start:]).tobytes())
    return {name: hasher.hexdigest() for name, hasher in hashers.items()}


def segments(directory: Path, found: Checkpoint) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
    """The transitions from first_needed on, segment by segment: the number of the first, and arrays.

    Each once: of those saved twice, as they were saved last.
    """
    for index, segment in enumerate(found.segments):
        start = max(segment.first, found.first_needed)
        stop = min([segment.stop, *(later.first for later in found.segments[index + 1 :])])
        arrays = _read_segment(folder_of(directory), segment)
        part = slice(start - segment.first, max(start, stop) - segment.first)
        held = {name: array[part] for name, array in arrays.items() if name != "final_frames"}
        if "final_frames" in arrays:
            ended = np.flatnonzero(arrays["final"] >= 0)
            held["final_frames"] = arrays["final_frames"][(ended >= part.start) & (ended < part.stop)]
        yield start, held


def _read_segment(folder: Path, segment: Segment) -> dict[str, NDArray[Any]]:
    try:
        return decode(read(folder / segment.file, segment.sha256))
    except Damaged as error:
        raise Damaged(f"{error}, so transitions {segment.first:,} to {segment.stop - 1:,} are lost") from error


def _seal(facts: dict[str, Any]) -> bytes:
    text = json.dumps(facts, sort_keys=True)
    return json.dumps({"sha256": checksum(text.encode()), "checkpoint": facts}, indent=1, sort_keys=True).encode()


def _read_manifest(path: Path) -> Checkpoint:
    try:
        sealed = json.loads(path.read_bytes())
        facts = sealed["checkpoint"]
        whole = sealed["sha256"] == checksum(json.dumps(facts, sort_keys=True).encode())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{path.name} cannot be read") from error
    if not whole:
        raise Damaged(f"{path.name} is damaged: its checksum does not match")
    if facts.pop("format") != FORMAT:
        raise Damaged(f"{path.name} was written by another version of neoteny")
    return Checkpoint(**{**facts, "segments": tuple(Segment(**segment) for segment in facts["segments"])})


def _readable(folder: Path) -> list[Checkpoint]:
    found = []
    for path in manifests(folder.parent):
        try:
            found.append(_read_manifest(path))
        except Damaged:
            continue
    return found


def _check_log(directory: Path, found: Checkpoint) -> None:
    path = directory / "metrics.jsonl"
    length = path.stat().st_size if path.exists() else 0
    if length < found.log_position:
        raise Damaged(f"metrics.jsonl has {length:,} bytes, and had {found.log_position:,}")
