"""What is measured between updates: plasticity, the fresh-twin gap, drift, and the T that follows from drift."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from neoteny.measuring.drift import Measured
from neoteny.replay.ages.horizon import decay_steps_from_drift, moved
from neoteny.runs.run import Run
from neoteny.runs.session import Session
from neoteny.training.setup import Setup

HORIZON_EVERY = 1_000
"""Updates between changes of a T that follows from drift."""


def measure(
    session: Session, setup: Setup, run: Run, rows: NDArray[Any], pixels: dict[str, NDArray[Any]], updates: int
) -> dict[str, float]:
    """Measure what is due after `updates` updates, and log it.

    Args:
        session: whose `updates` are still those before the newest.
        setup: what measures.
        run: where it is logged.
        rows: the training batch, packed, with a leading axis of 1.
        pixels: its pixels by name, likewise.
        updates: how many the newest makes in all.

    Returns:
        the measures of plasticity by name; none if they are not due.
    """
    probing = setup.probes is not None and _due(session.updates, updates, setup.config.plasticity.probe_every)
    moving = setup.config.follows_drift and _due(session.updates, updates, HORIZON_EVERY)
    twin_every = setup.config.plasticity.twin_every
    drift = setup.drift.measure(session, updates) if setup.drift is not None and (probing or moving) else None
    measured: dict[str, float] = {}
    if probing:
        assert setup.probes is not None
        measured = setup.probes.measure(session, rows, pixels)
    if twin_every and _due(session.updates, updates, twin_every):
        measured |= setup.fresh_twin.measure(session, updates)
    if measured:
        run.log(session.step, updates=updates, **measured, **(drift.numbers() if drift and probing else {}))
    if moving and drift is not None and drift.finite:
        _set_decay_steps(session, run, drift, updates)
    return measured


def _due(before: int, after: int, every: int) -> bool:
    """Whether a multiple of `every` was passed; the first update counts."""
    return before == 0 or after // every > before // every


def _set_decay_steps(session: Session, run: Run, drift: Measured, updates: int) -> None:
    min_weight = session.buffer.sampler.min_weight  # type: ignore[attr-defined] # of a sampler whose T moves
    asked = decay_steps_from_drift(drift.bounds, drift.far, min_weight)
    decay_steps = moved(session.buffer.decay_steps, asked, len(session.buffer))
    session.buffer.set_decay_steps(decay_steps)
    run.log(session.step, updates=updates, decay_steps=decay_steps)
