"""One run of a plan, in a process of its own: begun, or gone on with from its last checkpoint, to its end.

``python -m neoteny.experiments.work DIRECTORY`` with the configuration as JSON on its standard input. If it fails, the
last line that it writes says why; the exit status is 2 if trying again is of no use.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from pathlib import Path

from neoteny.errors import Interrupted, RunStopped, UsageError
from neoteny.machine.threads import limit_threads
from neoteny.runs.run import is_run, read_config
from neoteny.settings.config import TrainConfig

MISCONFIGURED = 2
"""The exit status of a run whose configuration cannot be carried out: it would fail again."""


def carry_out(config: TrainConfig, directory: Path) -> None:
    """Bring the run in `directory` to its end; nothing if it is there already."""
    if is_done(directory, config.total_timesteps):
        return
    if is_run(directory) and (steps := read_config(directory)[0].total_timesteps) != config.total_timesteps:
        raise UsageError(
            f"{directory} contains a run of {steps:,} steps and {config.total_timesteps:,} are planned: it was resumed "
            "with --steps; move it elsewhere"
        )
    limit_threads(config)
    from neoteny.training.start import resume, train  # JAX, whose threads are set by now

    if is_run(directory):
        resume(directory, quiet=True)
    else:
        train(config, out=directory, quiet=True)


def reason(error: BaseException) -> str:
    """An exception in one line: without the notes that JAX adds to it, with which a traceback ends."""
    said = str(error).strip()
    if isinstance(error, (UsageError, RunStopped, Interrupted)):
        return said
    first = said.splitlines()[0] if said else ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def is_done(directory: Path, steps: int | None = None) -> bool:
    """Whether a run has come to its end. steps: the length that it was planned with; a longer run is another one."""
    if not (directory / "DONE").exists():
        return False
    return steps is None or not is_run(directory) or read_config(directory)[0].total_timesteps == steps


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends, so that no run is left over. Linux only."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it ended before this
        sys.exit(1)


def main() -> int:
    """Carry out one run."""
    die_with_parent()
    try:
        carry_out(TrainConfig.from_json(json.load(sys.stdin)), Path(sys.argv[1]))
    except (Exception, Interrupted) as error:
        sys.stdout.flush()  # the reason comes last in a log that both share
        if not isinstance(error, (UsageError, RunStopped, Interrupted)):
            traceback.print_exc()
        print(reason(error), file=sys.stderr)
        return error.status if isinstance(error, Interrupted) else MISCONFIGURED if isinstance(error, UsageError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
