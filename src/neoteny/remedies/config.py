"""What a remedy's configuration is, and the moments at which surgery is due. No JAX here."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from neoteny.errors import UsageError

if TYPE_CHECKING:
    from neoteny.agents.agent import Agent, TrainableNetwork
    from neoteny.agents.configs import AgentConfig
    from neoteny.agents.learner import Remedy


@dataclass(frozen=True)
class RemedyConfig:
    """What can be set of a remedy: one frozen dataclass in one file for each, whose fields become flags and settings.

    A field `every` of a remedy with the prefix `redo` is the flag --redo-every and a plan's setting redo_every. A
    field's docstring is the flag's help.
    """

    name: ClassVar[str]
    """What --remedy takes."""
    prefix: ClassVar[str]
    """What the names of its flags begin with."""
    kind: ClassVar[Literal["penalty", "optimiser", "projection", "surgery"]] = "surgery"
    """Where it acts. A run has at most one that decides how the optimiser steps."""
    alone: ClassVar[bool] = False
    """Whether a run that has it may have no other, since none follows what it changes."""

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy, for a run that is planned to make so many updates."""
        raise NotImplementedError

    def check(self, networks: Mapping[str, TrainableNetwork]) -> None:
        """Raise UsageError if the remedy cannot act on these networks."""
        for label, network in networks.items():
            if not network.anatomy.hidden:
                raise UsageError(f"--remedy {self.name} does not know the layers of the {label}'s own network")

    def check_agent(self, agent: Agent) -> None:
        """Raise UsageError if the remedy cannot act on this agent: by default, if it cannot act on its networks."""
        self.check(agent.networks)

    def check_settings(self, agent: AgentConfig) -> None:
        """Raise UsageError if the remedy would leave a setting of the agent without effect; by default none is."""

    def canonical(self, planned_updates: int) -> dict[str, Any]:
        """Return the fields that differ from their defaults: those that are part of a run's id."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }

    def flag(self, field: str) -> str:
        """Return the flag of a field."""
        return "--" + self.setting(field).replace("_", "-")

    @classmethod
    def setting(cls, field: str) -> str:
        """Return the name of a field as a plan's setting and in a run's id."""
        return f"{cls.prefix}_{field.rstrip('_')}"

    def require(self, field: str, right: bool, should: str) -> None:
        """Raise UsageError unless the value of `field` is right; should: what it must be, in words."""
        if not right:
            raise UsageError(f"{self.flag(field)} must be {should}, got {getattr(self, field)}")


def each(every: int) -> Callable[[int], int]:
    """How often a remedy has acted after so many updates, if it acts each time another `every` were made."""
    return lambda updates: updates // every


def once(at: int) -> Callable[[int], int]:
    """How often a remedy has acted after so many updates, if it acts at the update number `at` alone."""
    return lambda updates: int(updates >= at)


def at_each(moments: Sequence[int]) -> Callable[[int], int]:
    """How often a remedy has acted after so many updates, if it acts at these numbers of updates, which increase."""
    return lambda updates: bisect_right(moments, updates)
