"""Where the time of a training step goes, as the thread that runs the loop sees it."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from threadpoolctl import threadpool_limits

from neoteny.training.allocation import memory_kept
from neoteny.training.checkpoint import Checkpoints
from neoteny.training.config import TrainConfig
from neoteny.training.loop import tick
from neoteny.training.progress import Progress
from neoteny.training.run import Run
from neoteny.training.session import Session
from neoteny.training.setup import Setup, set_up

PARTS = ("acting", "simulator", "replay", "update", "logging", "probes", "rest")
"""What a step's time is divided into. update: its call, and waiting for it where the next action needs it."""


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
        jax.block_until_ready(self.session.state)
        return time.perf_counter() - start


def begin(config: TrainConfig, folder: Path, warm: int) -> Training:
    """Begin a run, and make its first steps until everything is compiled."""
    setup, session = set_up(config, None, None, config.total_timesteps)
    run = Run(folder / "run", config, setup.facts)
    training = Training(setup, session, run, Progress(config, quiet=False), Checkpoints(run.directory))
    training.steps(config.agent.learning_starts + warm)
    return training


def shares(config: TrainConfig, steps: int, warm: int = 1_100) -> tuple[float, dict[str, float]]:
    """Seconds of a step, and the share of each part in it."""
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1, "blas"), memory_kept():
        training = begin(config, Path(folder), warm)
        parts = Parts()
        training.setup = _counted(training.setup, parts)
        parts.of(training.session.envs, step="simulator")
        parts.of(
            training.session.buffer, sample="replay", add="replay", update_priorities="replay", statistics="logging"
        )
        parts.of(training.run, log="logging", log_timing="logging")
        parts.of(training.progress, tick="logging", metrics="logging", episode="logging", measured="logging")
        if training.setup.probes is not None:
            parts.of(training.setup.probes, measure="probes")
        total = training.steps(steps)
        training.run.close()
    parts.seconds["rest"] = total - sum(parts.seconds.values())
    return total / steps, {part: parts.seconds[part] / total for part in PARTS}


def _counted(setup: Setup, parts: Parts) -> Setup:
    """The same, with the time of acting and updating counted; waiting for an update is counted as updating."""
    wait = parts.timed("update", jax.block_until_ready)
    act = parts.timed("acting", lambda *args: jax.block_until_ready(setup.act(*args)))

    def acting(state: Any, obs: Any, step: Any) -> Any:
        wait(state)
        return act(state, obs, step)

    return dataclasses.replace(setup, act=acting, update=parts.timed("update", setup.update))
