"""Signals: Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP ask a run to stop at its next step, where it can be saved."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


class Stop:
    """Whether a run was asked to stop, and by which signal."""

    signal: int | None = None

    def ask(self, number: int, frame: FrameType | None) -> None:
        """The handler. A second Ctrl-C leaves at once: what is on disk is whole at any moment."""
        if number == signal.SIGINT and self.signal is not None:
            _leave(number, "Left at once; the last checkpoint is whole.")
        self.signal = number


@contextmanager
def asked_to_stop() -> Iterator[Stop]:
    """Listen for the signals."""
    stop = Stop()
    with _heard(HANDLED, stop.ask):
        yield stop


@contextmanager
def left_at_once(words: str) -> Iterator[None]:
    """Let Ctrl-C end the process, with these words, while libraries are loaded and a run is set up.

    A KeyboardInterrupt would be raised below their C code, which swallows it or crashes.
    """
    with _heard((signal.SIGINT,), lambda number, frame: _leave(number, words)):
        yield


def _leave(number: int, words: str) -> None:
    with suppress(AttributeError, OSError, ValueError):  # without a standard error, or with a broken one
        os.write(sys.stderr.fileno(), f"\n{words}\n".encode())
    os._exit(128 + number)


@contextmanager
def _heard(numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have a handler called, but not for signals that the process was started to ignore; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)
