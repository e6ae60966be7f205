"""ReDo: recycle dormant units, found by their activity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from neoteny.agents.learner import Remedy
from neoteny.remedies.config import RemedyConfig, each
from neoteny.remedies.recycling import recycling, scores_by_activity


@dataclass(frozen=True)
class ReDo(RemedyConfig):
    """ReDo (Sokar et al. 2023), Algorithm 1: recycle dormant units."""

    name: ClassVar = "redo"
    prefix: ClassVar = "redo"
    tau: float = 0.025
    """Units whose dormancy score is at most this are recycled."""
    every: int = 1_000
    """Updates between two ReDo."""

    def __post_init__(self) -> None:
        self.require("every", self.every >= 1, ">= 1")

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""
        return Remedy(self.name, surgery=recycling(scores_by_activity, self.tau), done=each(self.every))
