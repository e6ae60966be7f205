"""``neoteny bench growth``: how the time of a TD3 step grows with replay, batch, updates and network."""

from __future__ import annotations

import statistics
from dataclasses import replace

from neoteny.agents.configs import TD3Config
from neoteny.arguments import Parser
from neoteny.bench.sampling import fill
from neoteny.bench.step import begun
from neoteny.errors import UsageError
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig

AGENT = TD3Config(learning_starts=300)
KINDS: dict[str, list[tuple[str, TD3Config, int]]] = {
    "replay": [(f"{held:,} held", AGENT, held) for held in (10_000, 100_000, 1_000_000)],
    "batch": [(f"batch {size}", replace(AGENT, batch_size=size), 10_000) for size in (32, 128, 512)],
    "updates": [(f"UTD {utd:g}", replace(AGENT, utd=utd), 10_000) for utd in (0.25, 1.0, 4.0)],
    "width": [
        (f"{'x'.join(map(str, widths))}", replace(AGENT, widths=widths), 10_000)
        for widths in ((128, 64), (256, 128), (512, 256), (1_024, 512))
    ],
}


def main(argv: list[str]) -> int:
    """Time steps of each."""
    parser = Parser(prog="neoteny bench growth", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="how often each is timed (7)")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        raise UsageError(f"--rounds must be >= 1, got {options.rounds}")
    print("TD3 on Hopper-v5; 256x128, batch 128, UTD 1 and 10,000 held where nothing else is said\n")
    print(f"{'':<18}{'ms a step':>10}")
    for cases in KINDS.values():
        for title, agent, held in cases:
            print(f"{title:<18}{_measure(agent, held, options.rounds) * 1e3:>10.2f}", flush=True)
    return 0


def _measure(agent: TD3Config, held: int, rounds: int, steps: int = 200) -> float:
    config = TrainConfig(
        "Hopper-v5",
        agent,
        ReplayConfig(capacity=held),
        PlasticityConfig(probe_every=0),
        total_timesteps=1_000_000_000,
        eval_every=0,
    )
    with begun(config, 50) as training:
        fill(training.session.buffer, training.session.obs.shape[1], 3)
        training.steps(steps)
        return statistics.median(training.steps(steps) / steps for _ in range(rounds))
