"""Priming (Nikishin et al. 2022): many updates on the first few transitions, before a run trains as usual.

The updates of priming are the first ones that a run makes, so that the count of its updates says how far priming is.
"""

from __future__ import annotations

from neoteny.replay.registry import REPLAYS
from neoteny.runs.session import Session
from neoteny.settings.config import TrainConfig
from neoteny.training.setup import Setup

SIZES = (100, 10, 1)
"""Updates in a compiled call: the largest that fits. Each is compiled once."""


def is_collecting(session: Session, config: TrainConfig) -> bool:
    """Whether the next step is one of those that are collected at random for priming."""
    return config.priming_updates > 0 and session.step < config.priming_steps


def is_due(session: Session, config: TrainConfig) -> bool:
    """Whether updates of priming are next, and not a step."""
    collected = session.step >= config.priming_steps and len(session.buffer) > 0
    return collected and session.updates < config.priming_updates


def next_count(before: int, setup: Setup) -> int:
    """The updates of the next compiled call, after `before`, so that no probe and no surgery falls into its midst.

    One at a time where a draw depends on the errors of the update before, and for convolutions, which are compiled
    without a loop.
    """
    config = setup.config
    named = REPLAYS.get(config.replay.replay)
    if setup.problem.pixels or (named is not None and named.prioritised):
        return 1

    def moments(updates: int) -> list[int]:
        plasticity = config.plasticity
        measured = [every for every in (plasticity.probe_every, plasticity.twin_every) if every]
        probes = [(updates > 0) + updates // every for every in measured]  # the first one is after the first update
        return [*probes, *(remedy.done(updates) for remedy in setup.remedies)]

    left = config.priming_updates - before
    return next(
        size
        for size in SIZES
        if size == 1 or (before % size == 0 and size <= left and moments(before + size - 1) == moments(before))
    )
