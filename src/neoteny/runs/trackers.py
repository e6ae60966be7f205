"""The metrics once more, for TensorBoard and for Weights & Biases. The record of a run is metrics.jsonl.

Both may lose metrics, and say so once; neither may stop a run or make it wait.
"""

from __future__ import annotations

import re
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neoteny.errors import UsageError
from neoteny.runs import events
from neoteny.runs.files import inside, write
from neoteny.settings.config import TrainConfig

Say = Callable[[str], None]


class TensorBoard:
    """Writes an event file, each event whole or not at all, by the thread that trains: tensorboardX's own thread ends
    at the first full disk, and what waits for it waits for ever."""

    def __init__(self, directory: Path, life: int, first_step: int, say: Say) -> None:
        """life: how often the run was started; from `first_step` on, what earlier lives wrote is not shown."""
        self._say = say
        self._file: Any = None
        self._length = 0
        """Of the events that are whole."""
        self._lost = False
        self._path = directory / f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{life:06}"
        self._begin = [events.file_start(time.time())]
        if life > 1:
            self._begin.append(events.restart(time.time(), first_step))

    def log(self, step: int, numbers: dict[str, float]) -> None:
        """Write one event for all: one for each would take a seventh of a probe's time."""
        event = events.scalars(time.time(), step, numbers)
        try:
            while self._begin:
                self._write(self._begin[0])
                del self._begin[0]
            self._write(event)
        except OSError as error:
            if not self._lost:
                self._say(
                    f"TensorBoard's events at step {step:,} could not be written ({error.strerror}) and are lost."
                )
            self._lost = True

    def _write(self, event: bytes) -> None:
        if self._file is None:
            self._path.parent.mkdir(exist_ok=True)
            self._file = self._path.open("xb", buffering=0)
        data = rest = events.record(event)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.seek(self._length)
            self._file.truncate()
            raise
        self._length += len(data)

    def close(self) -> None:
        """Close its file."""
        if self._file is not None:
            self._file.close()


class WeightsAndBiases:
    """Logs to a run of Weights & Biases, the same one however often the run is resumed."""

    def __init__(self, directory: Path, config: TrainConfig, say: Say) -> None:
        wandb = import_wandb()
        self._say = say
        try:
            self._run: Any = wandb.init(
                project="neoteny",
                dir=str(directory),
                config=config.to_json(),
                name=str(directory),
                id=_id_of(directory),
                resume="allow",
            )
        except wandb.Error as error:
            raise UsageError(
                f"Weights & Biases did not start ({error}): run wandb login, or set WANDB_MODE=offline, and then "
                f"neoteny resume {directory}"
            ) from error

    def log(self, step: int, numbers: dict[str, float]) -> None:
        """Log these numbers; after the first failure no more."""
        if self._run is None:
            return
        try:
            self._run.log(numbers, step=step)
        except Exception as error:  # whatever it is, the run goes on
            self._say(f"Weights & Biases failed at step {step:,} ({error}), and is told no more of this run.")
            self._run = None

    def close(self) -> None:
        """Say that the run is over."""
        if self._run is None:
            return
        try:
            self._run.finish()
        except Exception as error:
            self._say(f"Weights & Biases did not take the end of the run: {error}")


def import_wandb() -> Any:
    """The package, or a sentence."""
    try:
        import wandb
    except ImportError as error:
        raise UsageError("--wandb needs wandb, which is not installed: pip install wandb") from error
    return wandb


def _id_of(directory: Path) -> str:
    """The id of this run at Weights & Biases, made when it is first asked for."""
    path = inside(directory, "wandb_id")
    if not path.exists():
        write(path, secrets.token_hex(4).encode())
    name = path.read_bytes()
    if not re.fullmatch(rb"[0-9a-z]{8}", name):
        raise UsageError(f"{path} is damaged: it must contain 8 letters and digits; remove it to log as a new run")
    return name.decode()
