"""What is not finite: updates that were not made, and steps that are not stored."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from neoteny.agents.agent import UpdateReport
from neoteny.errors import RunStopped
from neoteny.replay.batch import Batch
from neoteny.runs import files
from neoteny.runs.checkpoint import Checkpoints
from neoteny.runs.run import Run
from neoteny.runs.session import Session
from neoteny.training.progress import Progress
from neoteny.training.setup import Setup
from neoteny.wording import counted

IN_A_ROW = 100
"""So many updates left out, or steps not stored, one after the other, stop a run."""


class NotFinite(Exception):
    """An update that was not finite, which is one too many."""


def count_skipped(
    session: Session, setup: Setup, run: Run, batch: Batch, report: UpdateReport, finite: NDArray[np.bool_]
) -> None:
    """Count updates that were not made; raise NotFinite if the run is to stop because of them."""
    config = setup.config
    session.skipped += int((~finite).sum())
    since = np.flatnonzero(finite)
    ended_by = int(len(finite) - 1 - since[-1]) if since.size else session.skipped_in_a_row + len(finite)
    session.skipped_in_a_row = ended_by
    if config.on_nan == "skip" and session.skipped_in_a_row < IN_A_ROW:
        return
    bad = np.repeat(~finite, config.agent.batch_size)
    dump = run.directory / "nan" / f"{session.step:012}.npz"
    dump.parent.mkdir(exist_ok=True)
    tree = {
        "slots": batch.slots[bad],
        "rows": batch.rows[bad],
        "fields": session.buffer.layout.describe(),
        "errors": np.array(report.errors).reshape(len(bad))[bad],
        **{name: value[bad] for name, value in batch.pixels.items()},
    }
    files.write(dump, files.encode(tree))
    what = "an update" if config.on_nan == "halt" else f"{session.skipped_in_a_row} updates in a row, the last"
    slots = ", ".join(map(str, batch.slots[bad][:8]))
    raise NotFinite(
        f"{what} at step {session.step:,} had a loss or gradient that is not finite, and was not made; its batch, from "
        f"the slots {slots}, ... of the replay, is in {dump}"
    )


def finite(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Of each environment, whether its observation or reward is, as float32, which is what is stored."""
    if values.dtype == np.uint8:
        return np.ones(len(values), bool)
    with np.errstate(over="ignore"):
        whole: NDArray[np.bool_] = np.isfinite(values.astype(np.float32)).reshape(len(values), -1)
    return np.logical_and.reduce(whole, axis=1)


def drop(
    session: Session,
    setup: Setup,
    run: Run,
    progress: Progress,
    checkpoints: Checkpoints,
    after: NDArray[Any],
    bad: NDArray[np.bool_],
    ended: NDArray[np.bool_],
) -> NDArray[Any]:
    """Do not store a step that is not finite, and end the episodes it is part of; the observations to go on from.

    A ring holds whole vector steps, so the other environments' transitions of this step are not stored either. They go
    on, unless they are frames, whose stacks cannot leave out a step.
    """
    session.dropped += 1
    session.dropped_in_a_row += 1
    cut(session, checkpoints)
    again = (np.ones_like(bad) if setup.problem.pixels else bad) & ~ended
    if again.any():
        after = session.envs.reset(options={"reset_mask": again})[0]
    run.log(session.step, dropped_steps=session.dropped)
    if run.once("dropped"):
        progress.say(
            f"At step {session.step:,} the environment returned NaN or infinity: such a step is not stored, and the "
            "episode that it is in ends."
        )
    if not finite(after).all() or session.dropped_in_a_row >= IN_A_ROW:
        raise RunStopped(
            "the environment gave observations or rewards that are not finite, "
            f"{counted(session.dropped_in_a_row, 'step')} in a row, at step {session.step:,}; "
            f"{checkpoints.how_to_go_on()}"
        )
    return after


def cut(session: Session, checkpoints: Checkpoints) -> None:
    """Let no return run on over what follows the newest transitions."""
    session.buffer.cut()
    checkpoints.amend(session.buffer.clock - session.buffer.num_envs)
