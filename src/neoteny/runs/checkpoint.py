"""Checkpoints: a run's whole state on disk, the replay as append-only segments that checkpoints share.

``checkpoint/STEP.json`` is a checkpoint: it names a file with everything but the transitions, and the segments that
hold those, with a checksum each and one of its own. It is written last, so a checkpoint is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neoteny.errors import UsageError
from neoteny.replay.buffer import ReplayBuffer
from neoteny.runs.files import UNFIT, Damaged, checksum, decode, digest, encode, inside, read, write
from neoteny.runs.manifest import Checkpoint, Segment, folder_of, manifests, read_manifest, seal
from neoteny.runs.policy_file import has_policy

KEPT = 2
"""Checkpoints that are kept in any case: the newest, and one to fall back to."""
SEGMENT_BYTES = 32 << 20
"""A segment is written whenever so much is new, so that a checkpoint has little left to write."""
_OURS = re.compile(r"[0-9]{12,15}(-[0-9]{6,15})?\.npz|[0-9]{6,15}-[0-9]{12,15}-[0-9]{12,15}\.npz")
"""The name of a state, or of a segment."""


class Checkpoints:
    """Writes the checkpoints of one run, and removes what no kept one needs."""

    def __init__(self, directory: Path, newest: Checkpoint | None = None) -> None:
        """newest: the checkpoint that the run goes on from; whatever is on disk beyond it is removed."""
        self._folder = folder_of(directory)
        inside(directory, "checkpoint", "segments", folder=True).mkdir(parents=True, exist_ok=True)
        self._segments = list(newest.segments) if newest else []
        self._saved = newest.clock if newest else 0
        self._full = False
        """Whether the disk did not take the last segment."""
        older = [c for c in _readable(directory) if newest and c.step < newest.step]
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
        run = shlex.quote(str(self._folder.parent))
        return f"saved at step {self.newest.step:,}, to go on with: neoteny resume {run}"

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
        named = {segment.file for checkpoint in self._kept for segment in checkpoint.segments}
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
        checkpoint = Checkpoint(step, log_position, config, first, clock, name, checksum(data), needed, forever)
        write(self._folder / f"{step:012}.json", seal(checkpoint))
        self._kept = _worth_keeping([*(c for c in self._kept if c.step != step), checkpoint])
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
        for path in [*_numbered(self._folder), *_numbered(self._folder, ".tmp")]:
            if str(path.relative_to(self._folder)) not in named:
                path.unlink()


def _worth_keeping(checkpoints: list[Checkpoint]) -> list[Checkpoint]:
    """Return the newest checkpoints, and those that are kept for good."""
    return [*(c for c in checkpoints[:-KEPT] if c.forever), *checkpoints[-KEPT:]]


def _numbered(folder: Path, more: str = "") -> list[Path]:
    """The files that a `Checkpoints` wrote, or those that it had begun (`more` is ".tmp"), and no others."""
    paths = [*folder.glob(f"[0-9]*{more}"), *folder.glob(f"segments/[0-9]*{more}")]
    return [path for path in paths if _OURS.fullmatch(path.name.removesuffix(more))]


def _count_of(path: Path) -> int:
    """A segment's number comes first in its name, a state's last."""
    numbers = path.stem.split("-")
    return int(numbers[0] if len(numbers) == 3 else numbers[-1])


def load(directory: Path, use: Callable[[Checkpoint, dict[str, Any]], None]) -> tuple[Checkpoint, list[str]]:
    """The newest checkpoint that is whole, and what is wrong with those after it.

    use: is given a checkpoint and its state, and reads its segments; if one is damaged it is called again with
    the checkpoint before. Raises UsageError, with what is lost, if none is whole.
    """
    complaints = []
    for path in reversed(manifests(directory)):
        try:
            checkpoint = read_manifest(path)
            _check_log(directory, checkpoint)
            use(checkpoint, _read(directory, checkpoint.file, checkpoint.sha256))
        except Damaged as error:
            complaints.append(f"the checkpoint at step {int(path.stem):,} cannot be used: {error}")
        else:
            return checkpoint, complaints
    if not complaints:
        raise UsageError(f"{directory} has no checkpoint to go on from: begin again with neoteny train")
    policy = " Its policy is a file of its own: neoteny evaluate still works." if has_policy(directory) else ""
    raise UsageError(f"{directory} cannot go on: {'; '.join(complaints)}.{policy}")


def use_each(directory: Path, use: Callable[[Checkpoint, dict[str, Any]], None]) -> list[str]:
    """Give `use` every checkpoint and its state, the oldest first; what is wrong with those that are damaged."""
    complaints = []
    for path in manifests(directory):
        try:
            checkpoint = read_manifest(path)
            use(checkpoint, _read(directory, checkpoint.file, checkpoint.sha256))
        except Damaged as error:
            complaints.append(f"the checkpoint at step {int(path.stem):,} cannot be used: {error}")
    return complaints


def digests(directory: Path) -> tuple[Checkpoint, dict[str, str], list[str]]:
    """The newest whole checkpoint, with a digest of each of its parts, and what is wrong with those after it."""
    part_digests: dict[str, str] = {}

    def use(checkpoint: Checkpoint, state: dict[str, Any]) -> None:
        try:
            agent, replay = state["agent"], state["replay"]
            part_digests["parameters"] = digest(agent["parameters"])
            part_digests["optimiser"] = digest(agent["optimiser"])
            part_digests["random"] = digest([agent["random"], state["rng"], replay.pop("rng")])
            part_digests["environment"] = digest([state["envs"], state["obs"]])
            part_digests["replay"] = digest([replay, _transitions_digest(directory, checkpoint, replay["oldest"])])
        except UNFIT as error:
            raise Damaged(f"{checkpoint.file} does not have the parts of a run's state") from error

    checkpoint, complaints = load(directory, use)
    return checkpoint, part_digests, complaints


def _transitions_digest(directory: Path, checkpoint: Checkpoint, oldest: int) -> dict[str, str]:
    """Of the transitions as one, however they were cut into segments; rows from the oldest held, frames from before."""
    hashers: dict[str, Any] = {}
    for first, arrays in segments(directory, checkpoint):
        for name, array in arrays.items():
            start = max(0, oldest - first) if name == "rows" else 0
            hashers.setdefault(name, hashlib.sha256()).update(np.ascontiguousarray(array[start:]).tobytes())
    return {name: hasher.hexdigest() for name, hasher in hashers.items()}


def segments(directory: Path, checkpoint: Checkpoint) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
    """The transitions from first_needed on, segment by segment: the number of the first, and arrays.

    Each once: of those saved twice, as they were saved last.
    """
    stops, limit = [], checkpoint.clock
    for segment in reversed(checkpoint.segments):
        stops.append(min(segment.stop, limit))
        limit = min(limit, segment.first)
    for segment, stop in zip(checkpoint.segments, reversed(stops), strict=True):
        start = max(segment.first, checkpoint.first_needed)
        arrays = _read_segment(directory, segment)
        part = slice(start - segment.first, max(start, stop) - segment.first)
        held = {name: array[part] for name, array in arrays.items() if name != "final_frames"}
        if "final_frames" in arrays:
            ended = np.flatnonzero(arrays["final"] >= 0)
            held["final_frames"] = arrays["final_frames"][(ended >= part.start) & (ended < part.stop)]
        yield start, held


def put_back(directory: Path, checkpoint: Checkpoint, state: Any, buffer: ReplayBuffer) -> None:
    """Make `buffer`, which is made as the run's configuration says, the one that was saved; Damaged if it cannot be."""
    try:
        if state["clock"] != checkpoint.clock:
            raise Damaged(
                f"{checkpoint.file} has the clock {state['clock']!r:.60}, and the manifest {checkpoint.clock:,}"
            )
        buffer.restore(state)
        if buffer.first_needed != checkpoint.first_needed or not 0 <= len(buffer) <= buffer.capacity:
            raise Damaged(f"{checkpoint.file} has other transitions than the manifest says")
        expected = {name: array[:0] for name, array in buffer.transitions(0, 0).items()}
        for first, arrays in segments(directory, checkpoint):
            for name in expected.keys() | arrays.keys():
                if not _alike(expected.get(name), arrays.get(name)):
                    raise Damaged(f"{name} of the transitions from {first:,} on is not what this buffer has")
            buffer.put(first, arrays)
    except UNFIT as error:
        raise Damaged(f"its replay cannot be restored: {error}") from error


def _alike(one: NDArray[Any] | None, other: NDArray[Any] | None) -> bool:
    """Whether two arrays are of the same dtype, and of the same shape but for their lengths."""
    return one is not None and other is not None and (one.dtype, one.shape[1:]) == (other.dtype, other.shape[1:])


def _read(directory: Path, file: str, sha256: str) -> Any:
    return decode(read(inside(directory, "checkpoint", *file.split("/")), sha256))


def _read_segment(directory: Path, segment: Segment) -> dict[str, NDArray[Any]]:
    try:
        arrays = _read(directory, segment.file, segment.sha256)
        if not isinstance(arrays, dict) or not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise Damaged(f"{segment.file} has no arrays by name")
        rows = dict.fromkeys(arrays, segment.stop - segment.first)
        if "final_frames" in arrays:
            rows["final_frames"] = int((arrays["final"] >= 0).sum()) if "final" in arrays else 0
        if "rows" not in arrays or any(array.shape[:1] != (rows[name],) for name, array in arrays.items()):
            raise Damaged(f"{segment.file} has not the rows that the manifest says")
    except Damaged as error:
        raise Damaged(f"{error}, so transitions {segment.first:,} to {segment.stop - 1:,} are lost") from error
    else:
        checked: dict[str, NDArray[Any]] = arrays
        return checked


def _readable(directory: Path) -> list[Checkpoint]:
    checkpoints = []
    for path in manifests(directory):
        try:
            checkpoints.append(read_manifest(path))
        except Damaged:
            continue
    return checkpoints


def _check_log(directory: Path, checkpoint: Checkpoint) -> None:
    path = inside(directory, "metrics.jsonl")
    length = path.stat().st_size if path.exists() else 0
    if length < checkpoint.log_position:
        raise Damaged(f"metrics.jsonl has {length:,} bytes, and had {checkpoint.log_position:,}")
