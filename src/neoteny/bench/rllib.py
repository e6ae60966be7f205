"""``python -m neoteny.bench.rllib``: what age-weighted replay costs in RLlib, over its own EpisodeReplayBuffer."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from neoteny.bench.timing import alternate

EPISODE = 200
"""Transitions in an episode, each with an observation of 17 numbers and an action of 6."""


def rllib_rows(capacity: int = 100_000, rounds: int = 15) -> list[tuple[str, float, float]]:
    """For each case its name, and the median microseconds of RLlib's buffer and of ours, both full."""
    from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer

    from neoteny.integrations.rllib import AgeWeightedEpisodeReplayBuffer

    buffers = [EpisodeReplayBuffer(capacity), AgeWeightedEpisodeReplayBuffer(capacity, decay_steps=80_000)]
    names = count()
    whole, steps = _fragment(EPISODE, done=True).to_numpy(), [_fragment(1, done=False) for _ in range(8)]

    def add(buffer: Any, fragments: list[Any]) -> None:
        for fragment in fragments:
            fragment.id_ = str(next(names))
        buffer.add(fragments)

    for buffer in buffers:
        for _ in range(capacity // EPISODE):
            add(buffer, [whole])
    gc.collect()
    gc.freeze()  # or what is timed is mostly Python looking through a million small objects
    cases: dict[str, Callable[[Any], object]] = {
        "sample 32": lambda buffer: buffer.sample(32, n_step=1, sample_episodes=True),
        "sample 32, 3-step": lambda buffer: buffer.sample(32, n_step=3, sample_episodes=True),
        "sample 256": lambda buffer: buffer.sample(256, n_step=1, sample_episodes=True),
        "add an episode, evict one": lambda buffer: add(buffer, [whole]),
        "add a step of 8 environments": lambda buffer: add(buffer, steps),
    }
    rows: list[Any] = []
    for name, case in cases.items():
        timed = alternate({type(buffer).__name__: partial(case, buffer) for buffer in buffers}, rounds, 0.1)
        rows.append((name, *timed.values()))
    gc.unfreeze()
    return rows


def main(argv: list[str]) -> int:
    """Print the rows as a table."""
    parser = argparse.ArgumentParser(prog="python -m neoteny.bench.rllib", description=__doc__)
    parser.add_argument("--capacity", type=int, default=100_000, help="transitions held (100000)")
    parser.add_argument("--rounds", type=int, default=15, help="how often (15)")
    options = parser.parse_args(argv)
    print(f"{'microseconds':<30}{'RLlib, uniform':>16}{'age-weighted':>14}{'ratio':>8}")
    for name, theirs, ours in rllib_rows(options.capacity, options.rounds):
        print(f"{name:<30}{theirs:>16,.0f}{ours:>14,.0f}{ours / theirs:>8.2f}")
    return 0


def _fragment(length: int, *, done: bool) -> Any:
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    rng = np.random.default_rng(0)
    return SingleAgentEpisode(
        observations=list(rng.standard_normal((length + 1, 17))),
        actions=list(rng.standard_normal((length, 6))),
        rewards=list(rng.standard_normal(length)),
        terminated=done,
        len_lookback_buffer=0,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
