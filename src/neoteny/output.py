"""Standard output and standard error, for commands that must go on when nobody reads them any more.

Below ``neoteny train ... | head`` or a terminal that was closed, a write raises an error. A run drops what cannot be
shown.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

_UNWRITABLE = (OSError, ValueError)
"""What a write raises: OSError if the reader is gone or the disk is full, ValueError if the stream was closed."""


def show(text: str, end: str = "\n") -> None:
    """Print at once, or drop the text if that is not possible."""
    with contextlib.suppress(*_UNWRITABLE):
        print(text, end=end, flush=True)


def say(text: str) -> None:
    """Print to standard error at once, or drop the text if that is not possible."""
    with contextlib.suppress(*_UNWRITABLE):
        print(text, file=sys.stderr, flush=True)


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    try:
        return sys.stdout is not None and sys.stdout.isatty()  # None: the process was started without one
    except ValueError:
        return False


class _Dropping:
    """A stream that drops what it cannot write, and is otherwise the one that it was made of."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(*_UNWRITABLE):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(*_UNWRITABLE):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def dropping() -> Iterator[None]:
    """Let every ``print`` of a command drop what cannot be shown."""
    before = sys.stdout, sys.stderr
    _open_missing()
    shown = (sys.stdout, sys.stderr)
    sys.stdout, sys.stderr = (_Dropping(stream) for stream in shown)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in shown:
            finish(stream)


def finish(stream: TextIO | None) -> None:
    """Write what a stream still holds, or drop it, so that Python does not try again when it exits."""
    if stream is None:
        return
    try:
        stream.flush()
    except ValueError:  # it was closed
        return
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _open_missing() -> None:
    """Open standard streams that the process was started without: else a file of the run would take their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
