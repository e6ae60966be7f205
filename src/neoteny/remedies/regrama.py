"""ReGraMa: recycle units that receive little gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from neoteny.agents.learner import Remedy
from neoteny.remedies.config import RemedyConfig, each
from neoteny.remedies.recycling import recycling, scores_by_gradient


@dataclass(frozen=True)
class ReGraMa(RemedyConfig):
    """ReGraMa (Liu et al. 2025), as in SWD (ICLR 2026), Figure 8: recycle units that receive little gradient."""

    name: ClassVar = "regrama"
    prefix: ClassVar = "regrama"
    tau: float = 0.01
    """Units whose GraMa score is at most this are recycled."""
    every: int = 1_000
    """Updates between two ReGraMa."""

    def __post_init__(self) -> None:
        self.require("every", self.every >= 1, ">= 1")

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""
        return Remedy(self.name, surgery=recycling(scores_by_gradient, self.tau), done=each(self.every))
