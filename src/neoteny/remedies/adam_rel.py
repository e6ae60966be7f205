"""Adam-Rel, Adam with a relative time (Ellis et al. 2024): its count of steps restarts when the target changes.

The moments are kept, so that the steps after a change of the target begin smaller than Adam's and grow back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from neoteny.agents.agent import TrainableNetwork
from neoteny.agents.learner import Remedy
from neoteny.remedies.config import RemedyConfig
from neoteny.remedies.optimiser_reset import at_changes_of_target, check_targets


@dataclass(frozen=True)
class AdamRel(RemedyConfig):
    """Adam-Rel (Ellis et al. 2024): Adam's count of steps to 0 at each change of the target, its moments kept."""

    name: ClassVar = "adam-rel"
    prefix: ClassVar = "adam_rel"
    kind: ClassVar = "optimiser"

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""
        return at_changes_of_target(self.name, with_moments=False)

    def check(self, networks: Mapping[str, TrainableNetwork]) -> None:
        """Raise UsageError if it is not known when a network's target changes."""
        check_targets(self.name, networks)
