"""Signals: Ctrl-C, SIGTERM and SIGUSR1 ask a run to stop at its next step, where it can be saved."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Stop:
    """Whether a run was asked to stop, and by which signal."""

    signal: int | None = None

    def ask(self, number: int, frame: FrameType | None) -> None:
        """The handler. A second Ctrl-C leaves at once: what is on disk is whole at any moment."""
        if number == signal.SIGINT and self.signal is not None:
            os.write(sys.stderr.fileno(), b"\nLeft at once; the last checkpoint is whole.\n")
            os._exit(128 + number)
        self.signal = number


@contextmanager
def asked_to_stop() -> Iterator[Stop]:
    """Listen for the signals; only the main thread can."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.ask) for number in HANDLED}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
