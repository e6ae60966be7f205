"""What is said when a run has come to its end."""

from __future__ import annotations

from pathlib import Path


def print_done(directory: Path) -> None:
    """Say where a finished run is, and what can be done with it."""
    print(f"\nDone: {directory}\n  neoteny inspect {directory}\n  neoteny evaluate {directory}")
