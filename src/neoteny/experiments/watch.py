"""What a person sees of a sweep: how much is done, how fast, and how long it will take."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neoteny.experiments.plan import Plan, PlannedRun
from neoteny.training.records import METRICS, TIMING, is_number, whole_lines
from neoteny.wording import counted

_QUIET = 30.0
"""Seconds between lines that go into a file or a pipe."""


class Watch:
    """Live lines in a terminal, one for each run under way; the same lines now and then elsewhere."""

    def __init__(self, plan: Plan, out: Path, before: int, quiet: bool = False) -> None:
        self._plan, self._out, self._before, self._quiet = plan, out, before, quiet
        self._steps = dict.fromkeys(plan.runs, 0)
        self._live = not quiet and sys.stdout.isatty()
        self._shown = 0.0
        self._height = 0
        """Lines of the terminal that the next ones replace."""
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
        lines = [self.line(self._before + done, len(running)), *(self.run_line(run) for run in running)]
        if self._live:
            back = f"\x1b[{self._height}F" if self._height else "\r"
            width = shutil.get_terminal_size().columns  # a line that wraps would count as one, and be two
            print(f"{back}\x1b[J" + "\n".join(line[:width] for line in lines), flush=True)
            self._height = len(lines)
        else:
            print("\n".join(lines), flush=True)

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

    def run_line(self, run: PlannedRun) -> str:
        """Return the line of one run: how far it is, and its last evaluation."""
        total = run.config.total_timesteps
        parts = [f"  {run.directory}  {self._steps[run]:,} of {total:,} steps"]
        if (found := last_evaluation(self._out / run.directory)) is not None:
            parts.append(f"evaluation {found:,.1f}")
        return ", ".join(parts)

    def say(self, text: str) -> None:
        """Something that happened."""
        if not self._quiet:
            back = f"\x1b[{self._height}F\x1b[J" if self._live and self._height else ""
            self._height = 0
            print(back + text, flush=True)


def steps_done(directory: Path) -> int:
    """How far a run has come, by the last line of its log."""
    return next((line["step"] for line in _newest(directory / TIMING, 4_096)), 0)


def last_evaluation(directory: Path) -> float | None:
    """Return the mean return of a run's last evaluation, if its newest metrics have one."""
    newest = _newest(directory / METRICS, 200_000)
    return next((value for line in newest if is_number(value := line.get("eval_return"))), None)


def _newest(path: Path, size: int) -> Iterator[dict[str, Any]]:
    """The lines in the last `size` bytes of a log, the newest first; none of a run that is not begun."""
    if not path.is_file():
        return iter(())
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - size))
        lines = file.read().splitlines()
    return whole_lines(lines[::-1])  # without one that is half written, or cut by where we began


def clock(seconds: float) -> str:
    """h:mm:ss."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
