"""``neoteny bench sweep``: steps a second of runs on every core, over those of one run alone on one core."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from neoteny.arguments import Parser
from neoteny.errors import UsageError
from neoteny.experiments.cores import usable_cores
from neoteny.experiments.plan import Plan, make_plan
from neoteny.experiments.sweep import sweep
from neoteny.runs.run import read_lines

STARTS = 1_000


def main(argv: list[str]) -> int:
    """Carry out one run alone, then one on each core, in turn."""
    parser = Parser(prog="neoteny bench sweep", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often (3)")
    parser.add_argument("--steps", type=int, default=8_000, help="of each run (8,000)")
    parser.add_argument("--env", default="Hopper-v5", help="which environment (Hopper-v5)")
    options = parser.parse_args(argv)
    cores = usable_cores()
    if len(cores) < 2:
        raise UsageError(f"bench sweep compares several cores with one, and only {len(cores)} may be used")
    print(f"TD3 on {options.env}, steps a second with an update each, once learning has begun\n")
    print(f"{'alone':>10}{f'{len(cores)} at once':>14}{'ratio':>8}")
    ratios = []
    for number in range(options.rounds):
        alone, together = (
            _speed(_plan(options.env, options.steps, 10 * number + count, count), cores) for count in (1, len(cores))
        )
        ratios.append(together / alone)
        print(f"{alone:>10.0f}{together:>14.0f}{ratios[-1]:>8.2f}", flush=True)
    print(f"\nmedian ratio {statistics.median(ratios):.2f} on {len(cores)} cores")
    return 0


def _plan(env: str, steps: int, seed: int, count: int) -> Plan:
    data = {
        "title": "bench",
        "agent": "td3",
        "environments": [env],
        "steps": steps,
        "seeds": [100 * seed + index for index in range(count)],
        "settings": {"learning_starts": STARTS, "eval_every": 0, "log_every": 500},
        "methods": {"uniform": {}},
    }
    return make_plan("bench", data)


def _speed(plan: Plan, cores: list[int]) -> float:
    """Steps a second of all runs together, from each one's own clock, without the time in which it compiled."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        outcome = sweep(plan, Path(folder), cores, quiet=True)
        if not outcome.complete:
            raise UsageError(f"a run failed after {time.monotonic() - start:.0f} s: {outcome.failed}")
        total = 0.0
        for run in plan.runs:
            lines = read_lines(Path(folder) / run.directory / "timing.jsonl")
            marks = [(line["step"], line["seconds"]) for line in lines if "steps_per_second" in line]
            learning = [mark for mark in marks if mark[0] >= STARTS + 1_000]
            total += (learning[-1][0] - learning[0][0]) / (learning[-1][1] - learning[0][1])
    return total
