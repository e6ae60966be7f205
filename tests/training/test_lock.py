"""A run's lock: held by one process and by none that it forked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from neoteny.errors import UsageError
from neoteny.training.lock import lock

FORKING = """
import os, sys, time
from pathlib import Path
from neoteny.training.lock import lock
held = lock(Path(sys.argv[1]))
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(60)
"""


def test_a_forked_child_does_not_hold_it_after_its_parent_was_killed(tmp_path: Path) -> None:
    """As an environment's worker process outlives a run that the kernel killed."""
    parent = subprocess.Popen([sys.executable, "-c", FORKING, str(tmp_path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        with pytest.raises(UsageError, match=f"is in use by process {parent.pid}: wait for it, or stop it"):
            lock(tmp_path)  # the fork has not let it go for the parent
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        os.kill(child, 0)  # it is still there
        lock(tmp_path).close()
    finally:
        parent.kill()
        os.kill(child, signal.SIGKILL)
        parent.communicate()


def test_it_is_refused_to_the_process_that_holds_it(tmp_path: Path) -> None:
    with lock(tmp_path), pytest.raises(UsageError, match=f"in use by process {os.getpid()}"):
        lock(tmp_path)
    lock(tmp_path).close()


def test_a_holder_that_left_no_number_is_another_process(tmp_path: Path) -> None:
    with lock(tmp_path) as held:
        held.truncate(0)
        (tmp_path / "lock").write_bytes(b"\xff\xfe not a number")
        with pytest.raises(UsageError, match="is in use by another process: wait for it"):
            lock(tmp_path)


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_only_a_file_of_the_directory_is_written(kind: str, tmp_path: Path) -> None:
    run, precious = tmp_path / "run", tmp_path / "precious"
    run.mkdir()
    precious.write_text("keep me")
    path = run / "lock"
    {"link": lambda: path.symlink_to(precious), "directory": path.mkdir, "pipe": lambda: os.mkfifo(path)}[kind]()
    with pytest.raises(UsageError, match="in a run it is a file: remove it"):
        lock(run)
    assert precious.read_text() == "keep me"
