"""One run of a plan, in a process of its own: begun, or gone on with from its last checkpoint, to its end.

``python -m neoteny.experiments.work DIRECTORY`` with the configuration as JSON on its standard input.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

from neoteny.errors import Interrupted, RunStopped, UsageError
from neoteny.training.config import TrainConfig, limit_threads


def carry_out(config: TrainConfig, directory: Path) -> None:
    """Bring the run in `directory` to its end; nothing if it is there already."""
    if is_done(directory):
        return
    limit_threads(config)
    from neoteny.training.start import resume, train  # JAX, whose threads are set by now

    if (directory / "config.json").exists():
        resume(directory, quiet=True)
    else:
        train(config, out=directory, quiet=True)


def is_done(directory: Path) -> bool:
    """Whether a run has come to its end."""
    return (directory / "DONE").exists()


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
    except (UsageError, RunStopped) as error:
        print(error, file=sys.stderr)
        return 1
    except Interrupted as error:
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
