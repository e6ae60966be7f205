"""Races: contenders that train in turn, over and over, so that what the machine does besides falls on all alike."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from neoteny.errors import UsageError
from neoteny.experiments.sweep import last_words


@dataclass(frozen=True)
class Entry:
    """A contender: which library, and the cores that it is held to, if any. Entries of one team run at once."""

    name: str
    cores: tuple[int, ...] = ()


class Runner:
    """A contender's process."""

    def __init__(self, entry: Entry, task: str, seconds: float, log: Path) -> None:
        pin = ["taskset", "-c", ",".join(map(str, entry.cores))] if entry.cores else []
        words = [*pin, sys.executable, "-m", "neoteny.bench.contenders", entry.name, task, str(seconds)]
        self.entry, self._log = entry, log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def go(self) -> None:
        """Begin a turn."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def speed(self) -> float:
        """Wait for the end of the turn: its steps a second."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise UsageError(f"{self.entry.name} ended before its turn did: {last_words(self._log)}")
        steps, seconds = line.split()
        return int(steps) / float(seconds)

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        with self._process:  # closes its pipes, and waits
            pass


def race(
    teams: dict[str, Sequence[Entry]], task: str, rounds: int, seconds: float, folder: Path
) -> dict[str, list[float]]:
    """The steps a second of each team in each round: in a round every team has one turn, its entries at once."""
    runners: dict[str, list[Runner]] = {}
    try:
        for team, entries in teams.items():
            runners[team] = [
                Runner(entry, task, seconds, folder / f"{team}-{number}.log") for number, entry in enumerate(entries)
            ]
            _turn(runners[team])  # the first warms up
        speeds: dict[str, list[float]] = {team: [] for team in teams}
        for number in range(rounds):
            order = list(teams) if number % 2 == 0 else list(teams)[::-1]
            for team in order:
                speeds[team].append(_turn(runners[team]))
        return speeds
    finally:
        for runner in (runner for entered in runners.values() for runner in entered):
            runner.end()


def _turn(runners: list[Runner]) -> float:
    for runner in runners:
        runner.go()
    return sum(runner.speed() for runner in runners)


@dataclass(frozen=True)
class Ratio:
    """The median of the rounds' ratios, with an interval that holds the true one in at least 95 of 100 cases."""

    median: float
    low: float
    high: float


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Of each round's speeds. The interval is between two of the sorted ratios, by the binomial law of the median."""
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    count = len(ratios)
    rank = 0  # the largest k with 2 P(Binomial(n, 1/2) < k) <= 0.05
    while 2 * sum(math.comb(count, i) for i in range(rank + 1)) / 2**count <= 0.05:
        rank += 1
    low, high = (ratios[rank - 1], ratios[count - rank]) if rank else (ratios[0], ratios[-1])
    return Ratio(statistics.median(ratios), low, high)
