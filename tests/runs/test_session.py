"""A session's state: checkpoints from before each network had a state of its own are still read."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest

from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.runs.session import _filled, _leaves
from neoteny.training import DDQNConfig, SACConfig, TD3Config

BOUND = np.ones(2, np.float32)
CONTINUOUS, DISCRETE = Problem((5,), False, 2, -BOUND, BOUND, 100), Problem((5,), False, 2, None, None, 100)
AGENTS: dict[str, tuple[Any, Problem]] = {
    "td3": (TD3Config((8, 6)), CONTINUOUS),
    "sac": (SACConfig(actor_width=4, critic_width=6), CONTINUOUS),
    "ddqn": (DDQNConfig((8, 6)), DISCRETE),
}


def earlier_name(agent: str, name: str) -> str:
    """What the first checkpoints called an array: .actor_opt[0].mu['params'] was Adam's first moment of the actor."""
    name = re.sub(r"\.(mu|nu)\[", r".\1['params'][", name)
    if agent == "ddqn":
        return re.sub(r"^\.critics\.(\w+)", lambda match: {"params": ".online"}.get(match[1], f".{match[1]}"), name)
    name = re.sub(r"^\.(actor|critics)\.params", r".\1", name)
    return re.sub(r"^\.(actor|critics)\.(target|opt)", r".\1_\2", name)


@pytest.mark.parametrize("name", AGENTS)
def test_names_of_the_first_checkpoints(name: str) -> None:
    agent = make_agent(*AGENTS[name])
    state = agent.init(jax.random.key(0))
    saved = _leaves(state)
    earlier = {
        part: {earlier_name(name, own): value for own, value in arrays.items()} for part, arrays in saved.items()
    }
    assert not set(earlier["parameters"]) & {own for own in saved["parameters"] if "params" in own}
    shapes = jax.eval_shape(agent.init, jax.random.key(0))
    for arrays in (saved, earlier):
        jax.tree.map(np.testing.assert_array_equal, _filled(shapes, arrays), state)
