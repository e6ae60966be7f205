"""``neoteny bench probes``: what measuring plasticity adds to training time, at the default interval."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from neoteny.agents.configs import AgentConfig, SACConfig, TD3Config
from neoteny.training.config import TrainConfig, limit_threads
from neoteny.training.session import Session
from neoteny.training.setup import Setup, set_up

AGENTS: dict[str, tuple[AgentConfig, int]] = {"td3": (TD3Config(), 200), "sac": (SACConfig(), 5)}
"""Each with how many steps are timed between two measurements."""


def main(argv: list[str]) -> int:
    """Time steps with their update, and measurements, in turn."""
    parser = argparse.ArgumentParser(prog="neoteny bench probes", description=__doc__)
    parser.add_argument("--agent", choices=AGENTS, help="only this one; each is best timed in a process of its own")
    parser.add_argument("--rounds", type=int, default=9, help="how often (9)")
    options = parser.parse_args(argv)
    names = [options.agent] if options.agent else list(AGENTS)
    print(f"{'agent':<8}{'ms a step':>12}{'ms a probe':>12}{'added':>9}")
    for name in names:
        agent, steps = AGENTS[name]
        config = TrainConfig("HalfCheetah-v5", agent, total_timesteps=10_000, eval_every=0)
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
    rows = _update(session, setup)
    assert setup.probes is not None
    setup.probes.measure(session, rows, {})
    stepping, probing = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(steps):
            rows = _update(session, setup)
            _step(session)
        np.asarray(session.metrics["q"] if session.metrics else 0)
        middle = time.perf_counter()
        setup.probes.measure(session, rows, {})
        stepping.append((middle - start) / steps)
        probing.append(time.perf_counter() - middle)
    return statistics.median(stepping), statistics.median(probing)


def _update(session: Session, setup: Setup) -> Any:
    rows = session.buffer.sample(setup.config.agent.batch_size).rows[None]
    session.state, report = setup.update(session.state, rows, None, {})
    session.metrics = report.metrics
    return rows


def _step(session: Session) -> None:
    action = session.envs.action_space.sample()
    after, reward, terminated, truncated, _ = session.envs.step(action)
    session.buffer.add(
        obs=session.obs, action=action, reward=reward, next_obs=after, terminated=terminated, truncated=truncated
    )
    session.obs = after
