"""What is said when a run has come to its end."""

from __future__ import annotations

import shlex
from pathlib import Path


def print_done(directory: Path) -> None:
    """Say where a finished run is, and what can be done with it."""
    run = shlex.quote(str(directory))
    print(f"\nDone: {directory}\n  neoteny inspect {run}\n  neoteny evaluate {run}")
