"""``neoteny bench train``: steps a second beside Stable-Baselines3 and SBX, and where a step's time goes."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from neoteny.arguments import Parser
from neoteny.bench.contenders import TASKS, Task
from neoteny.bench.race import Entry, race, ratio
from neoteny.bench.sampling import sampling
from neoteny.errors import UsageError, install
from neoteny.experiments.cores import usable_cores
from neoteny.wording import counted

TITLES = {"neoteny": "Neoteny", "two": "Neoteny, two runs", "sbx": "SBX", "sb3": "Stable-Baselines3"}


@dataclass(frozen=True)
class Race:
    """Who runs against whom on a task, and how many steps of it are looked into; our own team comes first."""

    task: str
    teams: tuple[str, ...]
    steps: int

    @property
    def peers(self) -> tuple[str, ...]:
        """The others."""
        return self.teams[1:]


RACES = {
    "hopper": Race("hopper", ("neoteny", "sbx", "sb3"), 500),
    "humanoid": Race("humanoid", ("neoteny", "sbx", "sb3"), 300),
    "two-runs": Race("hopper", ("two", "sbx"), 0),
    "simba": Race("simba", ("neoteny",), 20),
    "breakout": Race("breakout", ("neoteny", "sb3"), 100),
}


def main(argv: list[str]) -> int:
    """Race, look into a step, print both."""
    parser = Parser(prog="neoteny bench train", description=__doc__)
    parser.add_argument("--race", choices=(*RACES, "all"), default="hopper", help="which (hopper)")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contender (15)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn (4)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every number into FILE")
    options = parser.parse_args(argv)
    if options.rounds < 1 or options.seconds <= 0:
        raise UsageError(f"--rounds and --seconds must be > 0, got {options.rounds} and {options.seconds}")
    names = list(RACES) if options.race == "all" else [options.race]
    _check_peers({team for name in names for team in RACES[name].teams})
    results = {}
    for name in names:
        results[name] = _run(RACES[name], options.rounds, options.seconds)
        if options.json is not None:
            options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


def _check_peers(teams: set[str]) -> None:
    for team, module in (("sb3", "stable_baselines3"), ("sbx", "sbx")):
        if team in teams and importlib.util.find_spec(module) is None:
            raise UsageError(f"racing {TITLES[team]} needs it, and it is not installed: {install('bench')}")


def _run(chosen: Race, rounds: int, seconds: float) -> dict[str, Any]:
    task = TASKS[chosen.task]
    print(f"\n{describe(task)}; {counted(rounds, 'turn')} of {seconds:g} s each, alternating", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        speeds = race({team: _entries(team) for team in chosen.teams}, chosen.task, rounds, seconds, Path(folder))
    ours = speeds[chosen.teams[0]]
    print(f"{'':<22}{'steps/s':>9}{'quartiles':>16}{'ours is':>10}{'95%':>14}")
    result: dict[str, Any] = {"rounds": rounds, "seconds": seconds, "steps_per_second": speeds, "ratio": {}}
    for team, taken in speeds.items():
        low, middle, high = _quartiles(taken)
        line = f"{TITLES[team]:<22}{middle:>9.1f}{f'{low:.0f} to {high:.0f}':>16}"
        if team in chosen.peers:
            speedup = ratio(ours, taken)
            result["ratio"][team] = asdict(speedup)
            line += f"{speedup.median:>8.2f} x{f'{speedup.low:.2f} to {speedup.high:.2f}':>14}"
        print(line, flush=True)
    if chosen.steps:
        result |= _look_into(chosen, task)
    return result


def _look_into(chosen: Race, task: Task) -> dict[str, Any]:
    """A step of ours, in a process of its own."""
    words = [sys.executable, "-m", "neoteny.bench.step", chosen.task, str(chosen.steps)]
    env = {**os.environ, "JAX_TRACEBACK_FILTERING": "off"}  # else the last line of an error is about frames
    completed = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    if completed.returncode:
        raise UsageError(
            f"a step of {chosen.task} could not be looked into: {completed.stderr.strip().splitlines()[-1]}"
        )
    step = json.loads(completed.stdout)
    print(f"\na step: {step['seconds'] * 1e3:.3g} ms. One part waited for after the other, it goes into:")
    print("  " + "  ".join(f"{part} {share:.1%}" for part, share in step["parts"].items()))
    rate = step["matrix_flops"] / step["products_seconds"] / 1e9
    print(
        f"its matrix products: {step['matrix_flops'] / 1e6:,.0f} MFLOP, alone at {rate:.0f} GFLOP/s; "
        f"the whole step reaches {step['fraction']:.0%} of that"
    )
    result = {"step": step}
    if not task.env.startswith("ALE/"):
        extra = sampling(task)
        result["sampling_seconds"] = extra
        for replay in ("swd", "per"):
            share = (extra[replay] - extra["uniform"]) / step["seconds"]
            print(f"{replay} takes {share:.1%} of a step more than uniform to draw and gather", flush=True)
    return result


def describe(task: Task) -> str:
    """In a few words."""
    agent: Any = task.agent
    name = {"TD3Config": "TD3", "SACConfig": "SAC with SimBa", "DDQNConfig": "Double DQN"}[type(agent).__name__]
    every = "" if agent.utd == 1 else f" every {round(1 / agent.utd)} steps"
    return f"{name} on {task.env}, batch {agent.batch_size}, one update{every or ' a step'}"


def _entries(team: str) -> Sequence[Entry]:
    if team != "two":
        return [Entry(team)]
    cores = usable_cores()
    if len(cores) < 2:
        raise UsageError(f"two runs at once need two cores, and only {len(cores)} may be used")
    return [Entry("neoteny", (core,)) for core in cores[:2]]


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
