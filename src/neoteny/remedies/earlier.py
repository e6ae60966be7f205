"""A network one update ago, as CHAIN and PFO remember it: its trained parameters before its last step.

Before the first step they are the network's own. Parameters that surgery changes get their new values here too, so
that nothing is pulled back to what surgery removed. Constants that surgery adds to a network (injection) are not
remembered: the earlier network is computed with those of the network as it is.
"""

from __future__ import annotations

from typing import Any

from neoteny.agents.agent import NetworkState
from neoteny.agents.learner import Step
from neoteny.remedies.surgery import renewed

Tree = Any
EARLIER = "earlier"
"""The name of the parameters in a remedy's memory; a memory without them remembers nothing."""


def variables_before(memory: Tree, step: Step) -> Tree:
    """The variables of the network one update ago."""
    return {**step.own.params, "params": memory[EARLIER]}


def remember(own: NetworkState, memory: Tree, step: Step) -> tuple[NetworkState, Tree]:
    """Remember the parameters before this step: what a remedy does after it."""
    return own, {**memory, EARLIER: step.own.params["params"]} if EARLIER in memory else memory


def follow(own: NetworkState, memory: Tree, changed: Tree) -> tuple[NetworkState, Tree]:
    """Give remembered parameters the values that somebody's surgery gave the network."""
    return own, {**memory, EARLIER: renewed(memory[EARLIER], own, changed)} if EARLIER in memory else memory
