"""``neoteny sweep``: the runs of a plan on this machine's cores, one process on each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from neoteny.errors import UsageError
from neoteny.experiments.plan import Plan, PlannedRun
from neoteny.experiments.watch import Watch
from neoteny.experiments.work import MISCONFIGURED, is_done
from neoteny.machine.signals import asked_to_stop
from neoteny.runs.run import lock

TRIES = 2
LOWEST = 19
"""The highest nice value, which is the lowest priority."""
POLL = 0.2
"""Seconds between looks at the processes."""


@dataclass
class Outcome:
    """What became of a plan."""

    done: list[PlannedRun] = field(default_factory=list)
    """In this sweep."""
    before: list[PlannedRun] = field(default_factory=list)
    """Done before it began."""
    failed: dict[str, str] = field(default_factory=dict)
    """Directories of runs that failed, and why, with the path of the log."""
    elsewhere: list[PlannedRun] = field(default_factory=list)
    """In use by another process."""
    unfinished: int = 0
    signal: int | None = None
    """What stopped it."""

    @property
    def complete(self) -> bool:
        """Whether every run is done."""
        return not (self.failed or self.elsewhere or self.unfinished)


@dataclass
class _Live:
    run: PlannedRun
    core: int
    process: subprocess.Popen[str]
    log: TextIO


def sweep(
    plan: Plan, out: Path, cores: list[int], stop_after: float | None = None, quiet: bool = False, nice: int = 0
) -> Outcome:
    """Carry out every run of `plan` that is not done, one process on each of `cores`, pinned.

    A run that fails is tried once more, from its checkpoint, unless its configuration is at fault; if it fails again it
    is reported at the end. stop_after: seconds after which every run is saved and the rest left for another time. nice:
    added to the nice value of every run's process.
    """
    outcome = Outcome(before=[run for run in plan.runs if is_done(out / run.directory, run.config.total_timesteps)])
    waiting = deque(run for run in plan.runs if run not in outcome.before)
    tries: dict[PlannedRun, int] = {}
    live: list[_Live] = []
    watch = Watch(plan, out, len(outcome.before), quiet)
    began = time.monotonic()
    with asked_to_stop() as stop:
        while waiting or live:
            if stop.signal is not None or (stop_after is not None and time.monotonic() - began > stop_after):
                outcome.signal = stop.signal
                outcome.unfinished = len(waiting) + len(live)
                _save(live)
                break
            free = [core for core in cores if core not in [one.core for one in live]]
            for core in free[: len(waiting)]:
                run = waiting.popleft()
                if in_use(out / run.directory):
                    outcome.elsewhere.append(run)
                else:
                    live.append(_start(run, out, core, nice))
            for one in [one for one in live if one.process.poll() is not None]:
                live.remove(one)
                one.log.close()
                said = Path(one.log.name)
                if is_done(out / one.run.directory, one.run.config.total_timesteps):
                    outcome.done.append(one.run)
                    said.unlink()
                    watch.say(f"done     {one.run.directory}")
                    continue
                words = why(one.process.returncode, said)
                tries[one.run] = tries.get(one.run, 0) + 1
                if one.process.returncode != MISCONFIGURED and tries[one.run] < TRIES:
                    watch.say(f"again    {one.run.directory}: {words}")
                    waiting.append(one.run)
                else:
                    outcome.failed[str(one.run.directory)] = f"{words} (log: {said})"
                    watch.say(f"failed   {one.run.directory}: {words} (log: {said})")
            watch.show(len(outcome.done), [one.run for one in live])
            time.sleep(POLL)
    return outcome


def in_use(directory: Path) -> bool:
    """Whether another process is at work on this run."""
    if not directory.is_dir():
        return False
    try:
        lock(directory).close()
    except UsageError:
        return True
    return False


def why(status: int | None, log: Path) -> str:
    """Why a process failed: the signal that ended it, or the last line that it wrote, or its exit status."""
    if status is not None and status < 0:
        cause = ", as Linux does when memory runs out" if status == -signal.SIGKILL else ""
        return f"it was ended by {signal.Signals(-status).name}{cause}"
    return last_words(log) or f"it ended with status {status} and wrote nothing"


def last_words(log: Path) -> str:
    """The last line that a process said."""
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def log_of(out: Path, run: PlannedRun) -> Path:
    """Where what a run says is written; it is deleted when the run is done."""
    return out / "logs" / f"{str(run.directory).replace('/', '-')}.txt"


def _start(run: PlannedRun, out: Path, core: int, nice: int = 0) -> _Live:
    """Start a run's process on its core: a process begins on the cores of the thread that starts it."""
    path = log_of(out, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.open("a")
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "neoteny.experiments.work", str(out / run.directory)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the sweep alone, which tells its runs
        )
    finally:
        os.sched_setaffinity(0, usual)
    if nice:
        _lower(process.pid, min(LOWEST, nice + os.getpriority(os.PRIO_PROCESS, 0)))
    assert process.stdin is not None
    process.stdin.write(json.dumps(run.config.to_json()))
    process.stdin.close()
    return _Live(run, core, process, log)


def _lower(pid: int, nice: int) -> None:
    """Lower the priority of a process that has just been started: its threads, which it starts later, have it too.

    Linux shares time out between sessions first (autogroup), and each run has a session of its own: it is lowered, too.
    """
    os.setpriority(os.PRIO_PROCESS, pid, nice)
    with contextlib.suppress(OSError):  # where there are no such groups
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


def _save(live: list[_Live]) -> None:
    """Ask every run to save itself and stop, and wait for them."""
    for one in live:
        one.process.send_signal(signal.SIGTERM)
    for one in live:
        one.process.wait()
        one.log.close()
