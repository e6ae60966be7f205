"""Where the time of a training step goes, and how near its update comes to what the machine's products allow.

``python -m neoteny.bench.step TASK`` prints it as JSON; a process of its own, since threads are set before JAX starts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
from threadpoolctl import threadpool_limits

from neoteny.bench.contenders import TASKS
from neoteny.bench.products import products
from neoteny.bench.products import seconds as product_seconds
from neoteny.machine.allocation import memory_kept
from neoteny.machine.threads import limit_threads
from neoteny.runs.checkpoint import Checkpoints
from neoteny.runs.run import Run
from neoteny.runs.session import Session
from neoteny.settings.config import ReplayConfig, TrainConfig
from neoteny.training.loop import tick
from neoteny.training.progress import Progress
from neoteny.training.setup import Setup, set_up

PARTS = ("acting", "simulator", "replay", "update", "logging", "probes", "rest")
"""What a step's time is divided into. update: its call, and waiting for it where the next action needs it."""


wait: Any = jax.block_until_ready


class Parts:
    """Seconds spent in each part, counted by functions that stand in for those of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, with its time counted."""

        def counted(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[part] += time.perf_counter() - start

        return counted

    def of(self, owner: object, **parts: str) -> None:
        """Count the time of an object's methods: name=part."""
        for name, part in parts.items():
            setattr(owner, name, self.timed(part, getattr(owner, name)))


@dataclasses.dataclass
class Training:
    """A run whose steps can be made one at a time, past its first update."""

    setup: Setup
    session: Session
    run: Run
    progress: Progress
    checkpoints: Checkpoints

    def steps(self, count: int) -> float:
        """Make so many; the seconds they took, all their updates with them."""
        start = time.perf_counter()
        for _ in range(count):
            tick(self.session, self.setup, self.run, self.progress, self.checkpoints)
        wait(self.session.state)
        return time.perf_counter() - start


@contextlib.contextmanager
def begun(config: TrainConfig, warm: int) -> Iterator[Training]:
    """A run under the conditions of the loop, past its first steps, in which everything was compiled.

    What it prints is not shown, and what it writes goes away with it.
    """
    limit_threads(config)
    with (
        tempfile.TemporaryDirectory() as folder,
        threadpool_limits(1, "blas"),
        memory_kept(),
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        setup, session = set_up(config, None, None, config.total_timesteps)
        run = Run(Path(folder) / "run", config, setup.facts)
        training = Training(setup, session, run, Progress(config, quiet=False), Checkpoints(run.directory))
        training.steps(config.agent.learning_starts + warm)
        yield training
        run.close()


@dataclasses.dataclass(frozen=True)
class Step:
    """A training step: what it takes, whole and in parts, and what its update's products take alone."""

    seconds: float
    """Whole, as it runs."""
    parts: dict[str, float]
    """Share of each part, where each is waited for: a step is longer then, since nothing overlaps."""
    matrix_flops: float
    """Of the updates of one step."""
    products_seconds: float
    """What just those products take, each timed alone."""

    @property
    def fraction(self) -> float:
        """Of the measured rate of the same products, what the whole step reaches."""
        return self.products_seconds / self.seconds


def measure(config: TrainConfig, steps: int, warm: int, rounds: int = 5) -> Step:
    """Of a run with this configuration: `steps` steps whole, then as many in parts, over and over."""
    with begun(config, warm) as training:
        setup, session = training.setup, training.session
        rows, pixels = batch_of(session, config)
        delay = getattr(config.agent, "policy_delay", 1)
        work = products(setup.update.__wrapped__, session.state, rows, None, pixels, None, conditional=1 / delay)
        whole, alone = [], []
        for _ in range(rounds):
            whole.append(training.steps(steps) / steps)
            alone.append(product_seconds(work, rounds=3))
        parts = Parts()
        training.setup = _counted(setup, parts)
        parts.of(session.envs, step="simulator")
        buffer = session.buffer
        parts.of(buffer, sample="replay", add="replay", update_priorities="replay", statistics="logging")
        parts.of(training.run, log="logging", log_timing="logging")
        parts.of(training.progress, tick="logging", metrics="logging", episode="logging", measured="logging")
        if setup.probes is not None:
            parts.of(setup.probes, measure="probes")
        if setup.drift is not None:
            parts.of(setup.drift, measure="probes")
        total = training.steps(rounds * steps)
    parts.seconds["rest"] = total - sum(parts.seconds.values())
    often = config.agent.utd
    return Step(
        statistics.median(whole),
        {part: parts.seconds[part] / total for part in PARTS},
        work.flops * often,
        statistics.median(alone) * often,
    )


def batch_of(session: Session, config: TrainConfig) -> tuple[Any, dict[str, Any]]:
    """A batch as an update takes it: packed rows, and pixels."""
    drawn = session.buffer.sample(config.agent.batch_size)
    return drawn.rows[None], {name: value[None] for name, value in drawn.pixels.items()}


def _counted(setup: Setup, parts: Parts) -> Setup:
    """The same, with the time of acting and updating counted; waiting for an update is counted as updating."""
    waited = parts.timed("update", wait)
    act = parts.timed("acting", lambda *args: wait(setup.act(*args)))

    def acting(params: Any, acting: Any, obs: Any, step: Any) -> Any:
        waited(params)
        return act(params, acting, obs, step)

    return dataclasses.replace(setup, act=acting, update=parts.timed("update", setup.update))


def main(name: str, steps: str) -> None:
    """Measure a task of the races, and print it."""
    task = TASKS[name]
    replay = ReplayConfig(capacity=task.capacity)
    config = TrainConfig(task.env, task.agent, replay, total_timesteps=1_000_000_000, eval_every=0)
    step = measure(config, int(steps), task.warm - task.agent.learning_starts)
    print(json.dumps({**dataclasses.asdict(step), "fraction": step.fraction}))


if __name__ == "__main__":
    main(*sys.argv[1:])
