"""Numbers of an agent that follow from the environment, where they are given as auto."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from neoteny.agents.configs import AUTO
from neoteny.settings.config import TrainConfig


def settled(config: TrainConfig) -> TrainConfig:
    """Return a configuration in which no number of the agent is auto."""
    names = [name for name in ("gamma", "utd", "num_critics") if getattr(config.agent, name, None) == AUTO]
    if not names:
        return config
    from neoteny import envs  # Gymnasium, which is not needed to read most configurations

    repeat = envs.frames_per_step(config.env, config.action_repeat)
    rules: dict[str, Any] = {
        "gamma": lambda: discount(envs.episode_steps(config.env) / repeat),
        "utd": lambda: float(repeat),
        "num_critics": lambda: 2 if envs.may_terminate(config.env) else 1,
    }
    return replace(config, agent=replace(config.agent, **{name: rules[name]() for name in names}))


def discount(decisions: float) -> float:
    """Return the discount for episodes of so many decisions, 1 - 5 / decisions from 0.95 to 0.995, as in TD-MPC2."""
    return min(max(1.0 - 5.0 / decisions, 0.95), 0.995)
