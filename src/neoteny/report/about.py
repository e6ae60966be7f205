"""What the runs of a report were for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NOT_THE_PAPERS = "not in the paper"
"""How `paper` begins where the paper makes no such claim."""


@dataclass(frozen=True)
class About:
    """What the runs were for; its footnote is written on every figure."""

    title: str = "Report"
    name: str = ""
    """Of the plan; empty if there is none."""
    scale: str = ""
    """full, laptop or quick; empty for runs of a user's own, which have no other scale to be told from."""
    paper: str = ""
    """What the paper says of this; empty if the runs have nothing to do with it."""
    reduced: str = ""
    speaks: bool = True
    """Whether these runs can decide anything."""
    planned: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How many runs each method should have on each task."""
    note: str = ""
    """What to write on figures where there is no plan."""

    @property
    def said(self) -> str:
        """What the paper says, as a sentence; empty if it says nothing."""
        if self.paper.startswith(NOT_THE_PAPERS):
            return f"{self.paper[0].upper()}{self.paper[1:]}."
        return f"The paper: {self.paper}." if self.paper else ""

    @property
    def footnote(self) -> str:
        """The scale and what was reduced."""
        if not self.name:
            return self.note or "Runs without a plan."
        if not self.scale:
            return f"The plan {self.name}."
        reduced = f" Reduced: {self.reduced}." if self.reduced else " Nothing reduced."
        return f"{self.name}, {self.scale} scale.{reduced}"
