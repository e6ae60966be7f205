"""``neoteny bench probes``: what measuring plasticity adds to training time, at the default interval."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.training.config import TrainConfig, limit_threads
from neoteny.training.loop import true_next
from neoteny.training.session import Session
from neoteny.training.setup import Setup, set_up

RUNS = {
    "td3": (TrainConfig("HalfCheetah-v5", TD3Config(), total_timesteps=10_000), 200),
    "sac": (TrainConfig("HalfCheetah-v5", SACConfig(), total_timesteps=10_000), 5),
    "ddqn": (TrainConfig("ALE/Breakout-v5", DDQNConfig(), total_timesteps=10_000), 20),
}
"""Each with how many steps are timed between two measurements."""


def main(argv: list[str]) -> int:
    """Time steps with their update, and measurements, in turn."""
    parser = argparse.ArgumentParser(prog="neoteny bench probes", description=__doc__)
    parser.add_argument("--agent", choices=RUNS, help="only this one; each is best timed in a process of its own")
    parser.add_argument("--rounds", type=int, default=9, help="how often (9)")
    options = parser.parse_args(argv)
    names = [options.agent] if options.agent else list(RUNS)
    print(f"{'agent':<8}{'ms a step':>12}{'ms a probe':>12}{'added':>9}")
    for name in names:
        config, steps = RUNS[name]
        limit_threads(config)
        setup, session = set_up(config, None, None, 10_000)
        with threadpool_limits(1, "blas"):
            step, probe = _measure(session, setup, steps, options.rounds)
        every = config.plasticity.probe_every
        print(f"{name:<8}{step * 1e3:>12.2f}{probe * 1e3:>12.1f}{probe / (every * step):>9.1%}", flush=True)
    print(f"\nadded: a probe every {every:,} updates, over the time of {every:,} steps with an update each.")
    return 0


def _measure(session: Session, setup: Setup, steps: int, rounds: int) -> tuple[float, float]:
    """Seconds of a step with its update, and of a probe: the median over rounds, each of which has both."""
    for _ in range(1_000):
        _step(session)
    batch = _update(session, setup)
    assert setup.probes is not None
    setup.probes.measure(session, *batch)
    stepping, probing = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(steps):
            batch = _update(session, setup)
            _step(session)
        np.asarray(session.metrics["q"] if session.metrics else 0)
        middle = time.perf_counter()
        setup.probes.measure(session, *batch)
        stepping.append((middle - start) / steps)
        probing.append(time.perf_counter() - middle)
    return statistics.median(stepping), statistics.median(probing)


def _update(session: Session, setup: Setup) -> tuple[Any, dict[str, Any]]:
    """One update; the batch that it used, with a leading axis of 1."""
    batch = session.buffer.sample(setup.config.agent.batch_size)
    rows, pixels = batch.rows[None], {name: value[None] for name, value in batch.pixels.items()}
    session.state, report = setup.update(session.state, rows, None, pixels)
    session.metrics = report.metrics
    return rows, pixels


def _step(session: Session) -> None:
    action = session.envs.action_space.sample()
    after, reward, terminated, truncated, info = session.envs.step(action)
    session.buffer.add(
        obs=session.obs,
        action=action,
        reward=reward,
        next_obs=true_next(after, terminated | truncated, info),
        terminated=terminated,
        truncated=truncated,
    )
    session.obs = after
