"""What is read from updates that have finished: whether they were made, and the errors that set priorities."""

from __future__ import annotations

import numpy as np

from neoteny.runs.run import Run
from neoteny.runs.session import Session
from neoteny.training.guards import count_skipped
from neoteny.training.setup import Setup


def settle(session: Session, setup: Setup, run: Run, under_way: int = 0) -> None:
    """Look at updates that were started, but for the newest `under_way`: leave out what was not finite, tell replay the
    errors. Waits for them."""
    while len(session.pending) > under_way:
        batch, report = session.pending.pop(0)
        finite = np.asarray(report.finite)
        if not finite.all():
            count_skipped(session, setup, run, batch, report, finite)
        else:
            session.skipped_in_a_row = 0
        if batch.weights is not None and finite.any():
            errors = np.array(report.errors)
            if not finite.all():  # what was drawn for an update that was not made keeps its priority
                batch, errors = batch.only(np.repeat(finite, setup.config.agent.batch_size)), errors[finite]
            session.buffer.update_priorities(batch, errors.ravel())
