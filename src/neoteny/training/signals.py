"""Signals: Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP ask a run to stop at its next step, where it can be saved."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


class Stop:
    """Whether a run was asked to stop, and by which signal."""

    signal: int | None = None

    def ask(self, number: int, frame: FrameType | None) -> None:
        """The handler. A second Ctrl-C leaves at once: what is on disk is whole at any moment."""
        if number == signal.SIGINT and self.signal is not None:
            with suppress(AttributeError, OSError, ValueError):  # without a standard error, or with a broken one
                os.write(sys.stderr.fileno(), b"\nLeft at once; the last checkpoint is whole.\n")
            os._exit(128 + number)
        self.signal = number


@contextmanager
def asked_to_stop() -> Iterator[Stop]:
    """Listen for the signals, but for those that the process was started to ignore; only the main thread can."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    heard = [number for number in HANDLED if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, stop.ask) for number in heard}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
