"""What a statement's check reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Check:
    """One line of the table."""

    name: str
    says: str
    """What is claimed, as it is true: the corrected statement where the paper's is not."""
    measured: str
    problems: int
    """Over how many random problems."""
    held: bool | None
    """Whether it held; None where nothing was expected."""
    printed: str = ""
    """What the paper prints, where it differs, and what became of it here."""
    data: dict[str, Any] = field(default_factory=dict)
    """Numbers for the plots."""
