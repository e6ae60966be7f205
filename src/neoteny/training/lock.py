"""The lock of a run's directory: one process at a time, and free again as soon as that has ended, however it ended."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path
from typing import TextIO

from neoteny.errors import UsageError
from neoteny.training.files import inside

_held: weakref.WeakSet[TextIO] = weakref.WeakSet()


def lock(directory: Path) -> TextIO:
    """The run's lock, which this process holds until the file is closed or it ends.

    A process that it forks does not hold it, or a child that outlives a killed run would keep it. A link is not
    followed, since a directory from elsewhere could point it at any file.
    """
    descriptor = os.open(inside(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    file = os.fdopen(descriptor, "r+", errors="replace")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = file.read(20).strip()
        file.close()
        who = f"process {holder}" if holder.isdigit() else "another process"
        raise UsageError(f"{directory} is in use by {who}: wait for it, or stop it") from error
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    _held.add(file)
    return file


def _let_go() -> None:
    for file in list(_held):
        file.close()


os.register_at_fork(after_in_child=_let_go)
