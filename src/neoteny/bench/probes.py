"""``neoteny bench probes``: what measuring plasticity adds to training time, at the default interval."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

from neoteny.agents.configs import AgentConfig, DDQNConfig, SACConfig, TD3Config
from neoteny.arguments import Parser
from neoteny.bench.step import Training, batch_of, begun
from neoteny.plasticity.fresh_twin import UPDATES
from neoteny.settings.config import PlasticityConfig, TrainConfig

STARTS = 1_000
RUNS: dict[str, tuple[str, AgentConfig, int]] = {
    "td3": ("HalfCheetah-v5", TD3Config(learning_starts=STARTS), 200),
    "sac": ("HalfCheetah-v5", SACConfig(learning_starts=STARTS), 5),
    "ddqn": ("ALE/Breakout-v5", DDQNConfig(learning_starts=STARTS), 20),
}
"""Each with how many steps are timed between two measurements."""
TIMED = 100
"""Updates of twins that are timed."""


def main(argv: list[str]) -> int:
    """Time steps with their update, and measurements, in turn."""
    parser = Parser(prog="neoteny bench probes", description=__doc__)
    parser.add_argument("--agent", choices=RUNS, help="only this one; each is best timed in a process of its own")
    parser.add_argument("--rounds", type=int, default=9, help="how often (9)")
    options = parser.parse_args(argv)
    names = [options.agent] if options.agent else list(RUNS)
    every = PlasticityConfig().probe_every
    print(f"{'agent':<8}{'ms a step':>12}{'ms a probe':>12}{'added':>9}{'s a twin':>12}")
    for name in names:
        env, agent, steps = RUNS[name]
        config = TrainConfig(env, replace(agent, utd=1.0), total_timesteps=10**9, eval_every=0)
        config = replace(config, plasticity=PlasticityConfig(probe_every=10**9))  # measured below, and not in between
        with begun(config, 20) as training:
            step, probe = _measure(training, steps, options.rounds)
            twin = _twin(training)
        added = f"{probe / (every * step):>9.1%}"
        print(f"{name:<8}{step * 1e3:>12.2f}{probe * 1e3:>12.1f}{added}{twin:>12.1f}", flush=True)
    print(f"\nadded: a probe every {every:,} updates, over the time of {every:,} steps with an update each.")
    print(f"s a twin: a fresh-twin gap, {UPDATES:,} updates of each network, by the time of {TIMED} of them.")
    return 0


def _measure(training: Training, steps: int, rounds: int) -> tuple[float, float]:
    """Seconds of a step with its update, and of a probe: the median over rounds, each of which has both."""
    probes, drift, session = training.setup.probes, training.setup.drift, training.session
    assert probes is not None
    assert drift is not None
    stepping, probing = [], []
    for _ in range(rounds):
        stepping.append(training.steps(steps) / steps)
        batch = batch_of(session, training.setup.config)
        start = time.perf_counter()
        drifted = drift.measure(session, session.updates)
        assert drifted is not None
        training.run.log(session.step, **probes.measure(session, *batch), **drifted.numbers())
        probing.append(time.perf_counter() - start)
    return statistics.median(stepping), statistics.median(probing)


def _twin(training: Training) -> float:
    """Seconds of a fresh-twin gap, once it is compiled: the time of some of its updates, times what all of them are."""
    twin, session = training.setup.fresh_twin, training.session
    twin.gap("critics", session, session.updates, TIMED)
    start = time.perf_counter()
    twin.gap("critics", session, session.updates, TIMED)
    return (time.perf_counter() - start) * UPDATES / TIMED
