"""A run is a directory: config.json, metrics.jsonl, timing.jsonl, tensorboard/, policy/, checkpoint/, DONE.

All else is derived.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import platform
import shutil
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

from neoteny import __version__
from neoteny.errors import UsageError
from neoteny.runs.files import write
from neoteny.settings.config import TrainConfig


class Run:
    """Writes a run's records. What depends on the clock goes to timing.jsonl, so that metrics.jsonl is the same bytes
    for the same seed, however often the run was interrupted."""

    def __init__(
        self, directory: Path, config: TrainConfig, environment: dict[str, Any], overwrite: bool = False
    ) -> None:
        """Begin a run in a directory of its own. overwrite: replace the run that is there, if any."""
        if directory.is_file():
            raise UsageError(f"{directory} is a file: name a directory with --out (out= in Python)")
        if taken(directory) and not (overwrite and is_run(directory)):
            raise UsageError(
                f"{directory} contains other files and no run: name another directory with --out (out= in Python)"
                if overwrite or not is_run(directory)
                else f"{directory} already contains a run: resume it with neoteny resume {directory}, name another "
                "directory with --out (out= in Python), or replace it with --overwrite (overwrite=True in Python)"
            )
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = lock(directory)
        for path in _contents(directory):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        facts = {"config": config.to_json(), "environment": environment, "versions": versions(), "source": source()}
        write_config(directory, facts)
        self._open(directory, config, None)

    @classmethod
    def reopen(cls, directory: Path, config: TrainConfig, step: int, log_position: int, lock: TextIO) -> Run:
        """Resume a run from a checkpoint at `step`: what was logged after it is cut off."""
        run = cls.__new__(cls)
        run._lock = lock
        run._open(directory, config, step + 1)
        (directory / "DONE").unlink(missing_ok=True)
        run._metrics.truncate(log_position)
        run._metrics.seek(0, os.SEEK_END)  # else it still tells the length from before
        _, facts = read_config(directory)
        later = facts.get("resumed_by", [])
        if source() not in (facts.get("source"), *later):
            later = [*later, source()]
        more = {"resumed_by": later} if later else {}
        write_config(directory, {**facts, "config": config.to_json(), **more})
        return run

    def _open(self, directory: Path, config: TrainConfig, purge_step: int | None) -> None:
        from tensorboardX import SummaryWriter
        from tensorboardX.proto.summary_pb2 import Summary

        self.directory = directory
        self.first_step = (purge_step or 1) - 1
        self.lives = 1 + sum("life" in line for line in read_lines(directory / "timing.jsonl"))
        self._wandb = _start_wandb(directory, config) if config.wandb else None
        self._summary: Any = Summary
        self._board = SummaryWriter(str(directory / "tensorboard"), purge_step=purge_step)
        self._metrics = (directory / "metrics.jsonl").open("a")
        self._timing = (directory / "timing.jsonl").open("a")
        self._start = time.perf_counter()
        self._asked: set[str] = set()

    def once(self, what: str) -> bool:
        """Whether this is the first time that `what` is asked."""
        first = what not in self._asked
        self._asked.add(what)
        return first

    @property
    def log_position(self) -> int:
        """How long metrics.jsonl is, in bytes, all of it on the disk."""
        os.fsync(self._metrics.fileno())
        return self._metrics.tell()

    def log(self, step: int, **values: Any) -> None:
        """A line of metrics: numbers, or lists of them."""
        # Ages are NaN before the first draw, and left out; any other NaN is news, and stands as null.
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
            if not (name.startswith("age_") and math.isnan(value))
        }
        self._metrics.write(json.dumps({"step": step, **finite}) + "\n")
        self._metrics.flush()
        numbers = {name: value for name, value in finite.items() if isinstance(value, (int, float))}
        # One event for all: add_scalar writes one each, and would take a seventh of a probe's time.
        tagged = [self._summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        self._board.file_writer.add_summary(self._summary(value=tagged), step)
        if self._wandb is not None:
            self._wandb.log(numbers, step=step)

    def log_timing(self, step: int, **values: Any) -> None:
        """A line of what depends on the clock."""
        self._timing.write(json.dumps({"step": step, "seconds": round(self.seconds, 3), **values}) + "\n")
        self._timing.flush()

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self._start

    def finish(self) -> None:
        """Mark the run as done."""
        (self.directory / "DONE").touch()

    def close(self) -> None:
        """Close its files."""
        for file in (self._metrics, self._timing, self._board):
            with contextlib.suppress(OSError):  # of a full disk, which has been told by now
                file.close()
        if self._wandb is not None:
            self._wandb.finish()
        self._lock.close()


def taken(directory: Path) -> bool:
    """Return whether there is anything in a directory but a lock."""
    return directory.exists() and any(_contents(directory))


def is_run(directory: Path) -> bool:
    """Return whether a directory contains a run."""
    return (directory / "config.json").exists()


def _contents(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.name != "lock"]


def read_config(directory: Path) -> tuple[TrainConfig, dict[str, Any]]:
    """The configuration of a run, and everything that config.json says."""
    path = directory / "config.json"
    if not is_run(directory):
        if not directory.exists():
            raise UsageError(f"there is no {directory}: name the directory of a run")
        inside = next((path.parent for path in sorted(directory.rglob("config.json"))), None)
        hint = f"; a run inside it is {inside}" if inside else ""
        raise UsageError(f"{directory} is not a run: it has no config.json{hint}")
    try:
        facts = json.loads(path.read_text())
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {error}") from error
    return TrainConfig.from_json(facts["config"]), facts


def write_config(directory: Path, facts: dict[str, Any]) -> None:
    """Write config.json."""
    write(directory / "config.json", (json.dumps(facts, indent=2) + "\n").encode())


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl."""
    return read_lines(directory / "metrics.jsonl")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a .jsonl file that are whole: a full disk can cut one short."""
    lines = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            lines.append(json.loads(line))
    return lines


def versions() -> dict[str, str]:
    """The versions of what a run's arithmetic depends on."""
    found = {"neoteny": __version__}
    for name in ("numpy", "jax", "jaxlib", "flax", "optax"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def source() -> dict[str, Any]:
    """Return which source a run is made by: neoteny's commit, whether files differ from it, and the processor.

    The commit is None where neoteny was not installed from a git checkout.
    """
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str | None:
        try:
            said = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return said.stdout.strip() if said.returncode == 0 else None

    tracked = git("ls-files", "--error-unmatch", "run.py") is not None  # and not a checkout that it is installed in
    commit = git("rev-parse", "HEAD") if tracked else None
    changed = bool(git("status", "--porcelain", "--untracked-files=no", "--", str(here.parent))) if commit else None
    return {"commit": commit, "changed": changed, "processor": _processor()}


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def lock(directory: Path) -> TextIO:
    """The run's lock, which its process holds until it ends, however it ends."""
    file = (directory / "lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise UsageError(f"{directory} is in use by process {holder}: wait for it, or stop it") from error
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def _start_wandb(directory: Path, config: TrainConfig) -> Any:
    try:
        import wandb
    except ImportError as error:
        raise UsageError("--wandb needs wandb, which is not installed: pip install wandb") from error
    path = directory / "wandb_id"
    if not path.exists():
        path.write_text(wandb.util.generate_id())
    return wandb.init(
        project="neoteny",
        dir=str(directory),
        config=config.to_json(),
        name=str(directory),
        id=path.read_text(),
        resume="allow",
    )
