"""A run is a directory: config.json, metrics.jsonl, timing.jsonl, tensorboard/, policy/, checkpoint/, DONE.

All else is derived.
"""

from __future__ import annotations

import contextlib
import math
import platform
import shlex
import shutil
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

from neoteny import __version__
from neoteny.errors import UsageError
from neoteny.output import say
from neoteny.training.config import TrainConfig
from neoteny.training.files import inside
from neoteny.training.lines import Lines
from neoteny.training.lock import lock
from neoteny.training.policy_file import check_place
from neoteny.training.records import METRICS, TIMING, is_run, read_config, read_lines, write_config, write_done
from neoteny.training.trackers import Say, TensorBoard, WeightsAndBiases, import_wandb


class Run:
    """Writes a run's records. What depends on the clock goes to timing.jsonl, so that metrics.jsonl is the same bytes
    for the same seed, however often the run was interrupted."""

    def __init__(
        self,
        directory: Path,
        config: TrainConfig,
        environment: dict[str, Any],
        overwrite: bool = False,
        say: Say = say,
    ) -> None:
        """Begin a run in a directory of its own. overwrite: replace the run that is there, if any. say: is given a
        sentence when metrics cannot be written."""
        if directory.is_file():
            raise UsageError(f"{directory} is a file: name a directory with --out (out= in Python)")
        if taken(directory) and not (overwrite and is_run(directory)):
            raise UsageError(
                f"{directory} contains other files and no run: name another directory with --out (out= in Python)"
                if overwrite or not is_run(directory)
                else f"{directory} already contains a run: resume it with neoteny resume "
                f"{shlex.quote(str(directory))}, name another directory with --out (out= in Python), or replace it "
                "with --overwrite (overwrite=True in Python)"
            )
        if config.wandb:
            import_wandb()  # before anything is removed
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = lock(directory)
        for path in _contents(directory):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        facts = {"config": config.to_json(), "environment": environment, "versions": versions(), "source": source()}
        write_config(directory, facts)
        self._open(directory, config, 0, say)

    @classmethod
    def reopen(cls, directory: Path, config: TrainConfig, step: int, log_position: int, lock: TextIO, say: Say) -> Run:
        """Resume a run from a checkpoint at `step`: what was logged after it is cut off."""
        run = cls.__new__(cls)
        run._lock = lock
        run._open(directory, config, step, say)
        (directory / "DONE").unlink(missing_ok=True)
        run._metrics.end_at(log_position)
        _, facts = read_config(directory)
        later = facts.get("resumed_by", [])
        if source() not in (facts.get("source"), *later):
            later = [*later, source()]
        more = {"resumed_by": later} if later else {}
        write_config(directory, {**facts, "config": config.to_json(), **more})
        return run

    def _open(self, directory: Path, config: TrainConfig, step: int, say: Say) -> None:
        for name in ("policy", "nan", "tensorboard", "wandb"):  # before anything is opened
            inside(directory, name, folder=True)
        metrics, timing = inside(directory, METRICS), inside(directory, TIMING)
        check_place(directory)
        self.directory = directory
        self.first_step = step
        self.lives = 1 + sum("life" in line for line in read_lines(directory / TIMING))
        self._say = say
        self._metrics = Lines(metrics)
        self._timing = Lines(timing)
        self._trackers: list[TensorBoard | WeightsAndBiases] = [
            TensorBoard(directory / "tensorboard", self.lives, step + 1, say)
        ]
        if config.wandb:
            self._trackers.append(WeightsAndBiases(directory, config, say))
        self._start = time.perf_counter()
        self._asked: set[str] = set()

    def once(self, what: str) -> bool:
        """Whether this is the first time that `what` is asked."""
        first = what not in self._asked
        self._asked.add(what)
        return first

    @property
    def log_position(self) -> int:
        """How long metrics.jsonl is, in bytes, all of it on the disk; OSError if the disk does not take it."""
        return self._metrics.sync()

    @property
    def log_digest(self) -> str:
        """The SHA-256 of metrics.jsonl, by which a resumed run knows that what it goes on with is what was logged."""
        return self._metrics.digest

    def log(self, step: int, **values: Any) -> None:
        """A line of metrics: numbers, or lists of them."""
        # Ages are NaN before the first draw, and left out; any other NaN is news, and stands as null.
        finite = {
            name: _json(value) for name, value in values.items() if not (name.startswith("age_") and math.isnan(value))
        }
        error = self._metrics.append({"step": step, **finite})
        if error is not None and self.once("full"):
            self._say(
                f"metrics.jsonl could not be written at step {step:,} ({error.strerror}); the run goes on, and writes "
                "it as soon as that is possible."
            )
        numbers = {name: value for name, value in finite.items() if isinstance(value, (int, float))}
        for tracker in self._trackers:
            tracker.log(step, numbers)

    def log_timing(self, step: int, **values: Any) -> None:
        """A line of what depends on the clock."""
        self._timing.append({"step": step, "seconds": round(self.seconds, 3), **values})

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self._start

    def finish(self) -> None:
        """Mark the run as done, once its metrics are all on the disk; OSError if the disk does not take them."""
        self._metrics.sync()
        write_done(self.directory)

    def close(self) -> None:
        """Close its files."""
        for file in (self._metrics, self._timing, *self._trackers):
            with contextlib.suppress(OSError):  # of a full disk, which has been told by now
                file.close()
        self._lock.close()


def _json(value: Any) -> Any:
    """`value`, a number or a list, with null for each number that JSON does not have."""
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def taken(directory: Path) -> bool:
    """Return whether there is anything in a directory but a lock."""
    return directory.exists() and any(_contents(directory))


def _contents(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.name != "lock"]


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
