"""The agents by name."""

from __future__ import annotations

from typing import Any

from neoteny.agents import ddqn, sac, td3
from neoteny.agents.agent import Agent, Problem
from neoteny.agents.configs import AgentConfig, DDQNConfig, SACConfig, TD3Config


def make_agent(config: AgentConfig, problem: Problem, network: Any = None) -> Agent:
    """The agent that `config` describes."""
    match config:
        case TD3Config():
            return td3.make(config, problem, network)
        case SACConfig():
            return sac.make(config, problem, network)
        case DDQNConfig():
            return ddqn.make(config, problem, network)
