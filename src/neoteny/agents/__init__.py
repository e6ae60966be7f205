"""Agents: TD3, SAC with SimBa and Double DQN, as pure functions over one state.

`Agent` says what an agent is, and `neoteny.agents.agent` what its state must contain. `Learner` is the gradient step
that all of them share, and `Remedy` what may act in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.lazy import lazily

if TYPE_CHECKING:
    from neoteny.agents.agent import Agent, NetworkState, Problem, TrainableNetwork, UpdateReport, check_state
    from neoteny.agents.learner import Learner, Remedy, Step, Surgery
    from neoteny.agents.registry import make_agent

__all__ = [
    "Agent",
    "DDQNConfig",
    "Learner",
    "NetworkState",
    "Problem",
    "Remedy",
    "SACConfig",
    "Step",
    "Surgery",
    "TD3Config",
    "TrainableNetwork",
    "UpdateReport",
    "check_state",
    "make_agent",
]

if not TYPE_CHECKING:  # these bring JAX with them: loaded when first used
    __getattr__ = lazily(
        __name__,
        {
            "Agent": "neoteny.agents.agent",
            "NetworkState": "neoteny.agents.agent",
            "Problem": "neoteny.agents.agent",
            "TrainableNetwork": "neoteny.agents.agent",
            "UpdateReport": "neoteny.agents.agent",
            "check_state": "neoteny.agents.agent",
            "Learner": "neoteny.agents.learner",
            "Remedy": "neoteny.agents.learner",
            "Step": "neoteny.agents.learner",
            "Surgery": "neoteny.agents.learner",
            "make_agent": "neoteny.agents.registry",
        },
    )
