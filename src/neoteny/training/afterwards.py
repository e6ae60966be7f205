"""Measuring the fresh-twin gap after the fact, from the checkpoints that a run has kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from neoteny.errors import UsageError
from neoteny.machine.threads import limit_threads
from neoteny.runs import checkpoint
from neoteny.runs.manifest import Checkpoint
from neoteny.runs.records import fact, read_config
from neoteny.runs.session import Session, restore
from neoteny.training.setup import Setup, set_up


def fresh_twin_gaps(directory: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The fresh-twin gap at every checkpoint of a run that has transitions, as lines of metrics; and what is damaged.

    Each is what the run itself would have measured at that moment, with --twin-every. Nothing of the run is changed.
    """
    setup, session = opened(directory)
    lines: list[dict[str, Any]] = []

    def use(manifest: Checkpoint, state: dict[str, Any]) -> None:
        put_back(directory, setup, session, manifest, state)
        if measured := setup.fresh_twin.measure(session, session.updates):
            lines.append({"step": session.step, "updates": session.updates, **measured})

    try:
        complaints = checkpoint.use_each(directory, use)
    finally:
        session.envs.close()
    return lines, complaints


def opened(directory: Path) -> tuple[Setup, Session]:
    """A run's agent, replay and measurements, as they were made for it, before a checkpoint is put back."""
    config, facts = read_config(directory)
    for own in ("make_env", "network"):
        if facts["environment"].get(own):
            raise UsageError(
                f"{directory} was trained with {own}=, which no file contains: its checkpoints cannot be measured "
                "afterwards; train with --twin-every"
            )
    limit_threads(dataclasses.replace(config, threads=None))  # the last bits do not matter here
    quiet = dataclasses.replace(config, eval_every=0)
    return set_up(quiet, None, None, fact(directory, facts, "horizon"))


def put_back(directory: Path, setup: Setup, session: Session, manifest: Checkpoint, state: dict[str, Any]) -> None:
    """Make the session the one of a checkpoint, its replay too, but for its environments."""
    restore(session, setup.agent, setup.remedies, state, manifest.step, environments=False)
    checkpoint.put_back(directory, manifest, state["replay"], session.buffer)
