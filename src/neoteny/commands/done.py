"""What is said when a run has come to its end."""

from __future__ import annotations

import shlex
from pathlib import Path


def print_done(directory: Path) -> None:
    """Say where a finished run is, and what can be done with it."""
    from neoteny.training.evaluation import can_be_evaluated  # with JAX, which a run has loaded

    run = shlex.quote(str(directory))
    print(f"\nDone: {directory}\n  neoteny inspect {run}")
    if can_be_evaluated(directory):
        print(f"  neoteny evaluate {run}")
