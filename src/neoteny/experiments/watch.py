"""What a person sees of a sweep: how much is done, how fast, and how long it will take."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from pathlib import Path

from neoteny.experiments.plan import Plan, PlannedRun
from neoteny.wording import counted

_QUIET = 30.0
"""Seconds between lines that go into a file or a pipe."""


class Watch:
    """A live line in a terminal, and a line now and then elsewhere."""

    def __init__(self, plan: Plan, out: Path, before: int, quiet: bool = False) -> None:
        self._plan, self._out, self._before, self._quiet = plan, out, before, quiet
        self._steps = dict.fromkeys(plan.runs, 0)
        self._live = not quiet and sys.stdout.isatty()
        self._shown = 0.0
        self._marks: deque[tuple[float, int]] = deque(maxlen=60)
        for run in plan.runs:
            self._steps[run] = steps_done(out / run.directory)

    def show(self, done: int, running: list[PlannedRun]) -> None:
        """The present line, if it is time for one."""
        now = time.monotonic()
        if self._quiet or now - self._shown < (1.0 if self._live else _QUIET):
            return
        self._shown = now
        for run in self._steps:
            if run in running or self._steps[run] < run.config.total_timesteps:
                self._steps[run] = max(self._steps[run], steps_done(self._out / run.directory))
        self._marks.append((now, sum(self._steps.values())))
        line = self.line(self._before + done, len(running))
        print("\r\x1b[K" + line if self._live else line, end="" if self._live else "\n", flush=True)

    def line(self, done: int, running: int) -> str:
        """Runs, share of all steps, steps a second, time left."""
        total = sum(run.config.total_timesteps for run in self._plan.runs)
        taken = sum(self._steps.values())
        runs = counted(len(self._plan.runs), "run")
        parts = [f"{done} of {runs} done, {running} running, {taken / total:.1%} of the steps"]
        (first, then), (last, now) = self._marks[0], self._marks[-1]
        if now > then and last > first:
            speed = (now - then) / (last - first)
            parts += [f"{speed:,.0f} steps/s", f"{clock((total - taken) / speed)} left"]
        return ", ".join(parts)

    def say(self, text: str) -> None:
        """Something that happened."""
        if not self._quiet:
            print(("\r\x1b[K" if self._live else "") + text, flush=True)

    def end(self) -> None:
        """End the live line."""
        if self._live:
            print()


def steps_done(directory: Path) -> int:
    """How far a run has come, by the last line of its log."""
    path = directory / "timing.jsonl"
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4_096))
            lines = file.read().splitlines()
        return int(json.loads(lines[-1])["step"])
    except (OSError, ValueError, IndexError, KeyError):  # not begun, or a line half written
        return 0


def clock(seconds: float) -> str:
    """h:mm:ss."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
