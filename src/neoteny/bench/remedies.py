"""``neoteny bench remedies``: what each remedy costs, as the time of a TD3 step over that without one, in turns."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from neoteny.agents.configs import TD3Config
from neoteny.arguments import Parser
from neoteny.bench.sampling import fill
from neoteny.bench.step import Training, begun
from neoteny.errors import UsageError
from neoteny.remedies.registry import REMEDIES, config_class
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig

AGENT = TD3Config(learning_starts=300)
HELD = 10_000
NETWORK: dict[str, Literal["layernorm"]] = {"nap": "layernorm"}
"""The network that a remedy asks for: its cost is then over that of the same network without it."""


def main(argv: list[str]) -> int:
    """Time steps of every remedy in turn with steps of none, and print the ratios."""
    parser = Parser(prog="neoteny bench remedies", description=__doc__)
    parser.add_argument("--remedy", action="append", help="only this one; may be given more than once (all)")
    parser.add_argument("--rounds", type=int, default=9, help="how often each is timed (9)")
    parser.add_argument("--steps", type=int, default=400, help="steps of each in a round (400)")
    options = parser.parse_args(argv)
    for name in ("rounds", "steps"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name} must be >= 1, got {getattr(options, name)}")
    # Not growth, which needs SimBa's critics and costs what larger ones cost.
    names: Sequence[str] = options.remedy or tuple(name for name in REMEDIES if not config_class(name).alone)
    for name in names:
        config_class(name)
    print(f"TD3 on Hopper-v5, {HELD:,} transitions held, an update a step, the remedy's own defaults\n")
    print(f"{'remedy':<20}{'ms a step':>10}{'x none':>9}{'from':>8}{'to':>8}")
    for name in names:
        milliseconds, ratios = measure(name, options.rounds, options.steps)
        low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
        print(f"{name:<20}{milliseconds:>10.2f}{middle:>9.2f}{low:>8.2f}{high:>8.2f}", flush=True)
    print("\nx none: the time of a step over that without a remedy in the same round, the median; from, to: its range.")
    return 0


def measure(name: str, rounds: int, steps: int) -> tuple[float, list[float]]:
    """The milliseconds of a step with a remedy, and its time over that of a step without, of each round."""
    plain = TrainConfig(
        "Hopper-v5",
        replace(AGENT, network=NETWORK.get(name, AGENT.network)),
        ReplayConfig(capacity=HELD),
        PlasticityConfig(probe_every=0),
        total_timesteps=1_000_000_000,
        eval_every=0,
    )
    remedied = replace(plain, remedies=(config_class(name)(),))
    with contextlib.ExitStack() as stack:
        runs = [stack.enter_context(begun(config, 50)) for config in (plain, remedied)]
        for training in runs:
            fill(training.session.buffer, training.session.obs.shape[1], 3)
            training.steps(steps)
        seconds = [[_step(training, steps) for training in runs] for _ in range(rounds)]
    return statistics.median(one[1] for one in seconds) * 1e3, [one[1] / one[0] for one in seconds]


def _step(training: Training, steps: int) -> float:
    return training.steps(steps) / steps
