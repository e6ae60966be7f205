"""The metrics once more, for TensorBoard and for Weights & Biases. The record of a run is metrics.jsonl.

Both may lose metrics, and say so once; neither may stop a run or make it wait.
"""

from __future__ import annotations

import re
import secrets
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neoteny.errors import UsageError
from neoteny.training.config import TrainConfig
from neoteny.training.files import inside, write

Say = Callable[[str], None]


class TensorBoard:
    """Writes an event file, each event whole or not at all, by the thread that trains: tensorboardX's own thread ends
    at the first full disk, and what waits for it waits for ever."""

    def __init__(self, directory: Path, life: int, first_step: int, say: Say) -> None:
        """life: how often the run was started; from `first_step` on, what earlier lives wrote is not shown."""
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.proto.summary_pb2 import Summary

        self._event, self._summary, self._say = Event, Summary, say
        self._file: Any = None
        self._length = 0
        """Of the events that are whole."""
        self._lost = False
        self._path = directory / f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{life:06}"
        self._begin = [Event(wall_time=time.time(), file_version="brain.Event:2")]
        if life > 1:
            self._begin.append(
                Event(wall_time=time.time(), step=first_step, session_log=SessionLog(status=SessionLog.START))
            )

    def log(self, step: int, numbers: dict[str, float]) -> None:
        """Write one event for all: one for each would take a seventh of a probe's time."""
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        event = self._event(wall_time=time.time(), step=step, summary=self._summary(value=values))
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

    def _write(self, event: Any) -> None:
        if self._file is None:
            self._path.parent.mkdir(exist_ok=True)
            self._file = self._path.open("xb", buffering=0)
        data = rest = _record(event.SerializeToString())
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


def _record(data: bytes) -> bytes:
    """The bytes of a TFRecord: length, checksum of the length, data, checksum of the data."""
    from tensorboardX.record_writer import masked_crc32c

    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


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
