"""How long a plan will take, from a short measured run of each of its kinds."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from neoteny.errors import UsageError
from neoteny.experiments.plan import Plan
from neoteny.experiments.sweep import why
from neoteny.runs.records import read_timing
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig

STARTS = 300
"""Steps without updates, to time what those cost."""
ENOUGH = 4.0
"""Seconds of updates that are timed."""
ENDLESS = 10**9
"""Steps of a run that is ended once it has been timed."""
EPISODE = 1_000
"""Steps of an evaluation's episode, where nothing better is known."""


@dataclass(frozen=True)
class Speed:
    """Seconds that a step takes, and that a run takes besides: to start, and to compile."""

    acting: float
    learning: float
    start: float


def seconds(plan: Plan, cores: int, say: Callable[[str], None] = print) -> float:
    """Seconds that `plan` takes on so many cores. Each agent and environment is measured for a few seconds."""
    speeds: dict[tuple[str, object], Speed] = {}
    total = 0.0
    for run in plan.runs:
        config = run.config
        kind = (config.env, config.agent)
        if kind not in speeds:
            speeds[kind] = measure(config)
            say(f"  {config.agent_name} on {config.env}: {1 / speeds[kind].learning:,.0f} steps/s")
        speed = speeds[kind]
        before = min(config.agent.learning_starts, config.total_timesteps)
        update = max(0.0, speed.learning - speed.acting) / config.agent.utd
        total += config.priming_updates * update
        evaluations = config.total_timesteps // config.eval_every if config.eval_every else 0
        total += before * speed.acting + (config.total_timesteps - before) * speed.learning
        total += evaluations * config.eval_episodes * EPISODE * speed.acting + speed.start
    return total / min(cores, len(plan.runs))


def measure(config: TrainConfig, patience: float = 600.0) -> Speed:
    """The speed of a run like this one, from its first seconds, in a process of its own that is then ended.

    However short the run itself is, and however late its updates begin.
    """
    short = replace(
        config,
        total_timesteps=ENDLESS,
        agent=replace(config.agent, learning_starts=STARTS),
        priming_updates=0,
        priming_steps=TrainConfig.priming_steps,
        replay=ReplayConfig(capacity=min(config.replay.capacity, 20_000)),
        plasticity=PlasticityConfig(probe_every=0),
        eval_every=0,
        checkpoint_every=0,
        keep_checkpoints=0,
        log_every=20,
    )
    with tempfile.TemporaryDirectory() as folder:
        run, log = Path(folder) / "run", Path(folder) / "log"
        with log.open("w") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "neoteny.experiments.work", str(run)],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                text=True,
            )
        assert process.stdin is not None
        process.stdin.write(json.dumps(short.to_json()))
        process.stdin.close()
        began = time.monotonic()
        speed = None
        while speed is None and process.poll() is None and time.monotonic() - began < patience:
            time.sleep(0.3)
            speed = _speed(run, time.monotonic() - began)
        speed = speed or _speed(run, time.monotonic() - began, enough=0.0)
        status = process.poll()
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        if speed is None:
            words = f"it made too few updates in {patience:g} seconds" if status is None else why(status, log)
            raise UsageError(f"{config.agent_name} on {config.env} could not be timed: {words}")
    return speed


def _speed(run: Path, elapsed: float, enough: float = ENOUGH) -> Speed | None:
    """What a run's log says of its speed, once it has said enough. Compiling is over by the third line of updates.

    What is left of the seconds elapsed, without the steps at those speeds, is what it took to start and to compile.
    """
    marks = [(line["step"], line["seconds"]) for line in read_timing(run) if "steps_per_second" in line]
    acting = [mark for mark in marks if mark[0] <= STARTS]
    learning = [mark for mark in marks if mark[0] > STARTS][2:]
    if len(acting) < 2 or len(learning) < 2 or learning[-1][1] - learning[0][1] < enough:
        return None
    act, learn = _slope(acting), _slope(learning)
    return Speed(act, learn, max(0.0, elapsed - acting[-1][0] * act - (learning[-1][0] - acting[-1][0]) * learn))


def _slope(marks: list[tuple[int, float]]) -> float:
    (first, began), (last, ended) = marks[0], marks[-1]
    return (ended - began) / (last - first)
