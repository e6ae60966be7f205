"""Starting updates: their batches, one compiled call for all of them, then the probes and the surgery that are due."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from neoteny.runs.run import Run
from neoteny.runs.session import Session
from neoteny.training.measurements import measure
from neoteny.training.progress import Progress
from neoteny.training.setup import Setup


def dispatch_updates(session: Session, setup: Setup, run: Run, progress: Progress, count: int) -> None:
    """Start `count` updates in one compiled call, each with a fresh batch; then do what is due after them."""
    config = setup.config
    size = config.agent.batch_size
    batch = session.buffer.sample(size, batches=count)
    rows = batch.rows.reshape(count, size, -1)
    weights = None if batch.weights is None else batch.weights.astype(np.float32).reshape(count, size)
    pixels = {name: value.reshape(count, size, *value.shape[1:]) for name, value in batch.pixels.items()}
    other = _second_batches(session, setup, count, size)
    session.state, report = setup.update(session.state, rows, weights, pixels, other)
    before, after = session.updates, session.updates + count
    session.metrics = report.metrics
    session.pending.append((batch, report))
    measured = measure(session, setup, run, rows[:1], {name: value[:1] for name, value in pixels.items()}, after)
    if measured:
        progress.measured(measured)
    for index, (remedy, operate) in enumerate(setup.surgeries):
        turns = range(remedy.done(before), remedy.done(after))
        if remedy.surgery_of is None:  # then once, however often it was due
            turns = range(min(1, len(turns)))
        for turn in turns:
            key = jax.random.fold_in(jax.random.key(config.seed), after)
            session.state = operate(session.state, rows, pixels, jax.random.fold_in(key, index), turn)
            run.log(session.step, updates=after, remedy=remedy.name)
    session.updates = after  # last: a run that fails above, and is resumed, applies what is due


def _second_batches(session: Session, setup: Setup, count: int, size: int) -> Any:
    """Return the rows and pixels of a second batch for each update, if a remedy asks for one.

    Their generator is of this update alone, so that the first batches are the same with and without them, and a resumed
    run needs no state of it.
    """
    if not any(remedy.second_batch for remedy in setup.remedies):
        return None
    rng = np.random.default_rng([setup.config.seed, 4, session.updates])
    batch = session.buffer.sample_by_age(rng, count * size)
    return (
        batch.rows.reshape(count, size, -1),
        {name: value.reshape(count, size, *value.shape[1:]) for name, value in batch.pixels.items()},
    )
