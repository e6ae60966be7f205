"""The agents by name, and what is asked of a network of the user's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from neoteny.agents import ddqn, sac, td3
from neoteny.agents.agent import Agent
from neoteny.agents.configs import AgentConfig, DDQNConfig, SACConfig, TD3Config
from neoteny.agents.learner import Remedy
from neoteny.agents.problem import Problem
from neoteny.errors import UsageError

MAKERS: dict[type[Any], Callable[..., Agent]] = {
    TD3Config: td3.make,
    SACConfig: sac.make,
    DDQNConfig: ddqn.make,
}
"""What makes the agent of each configuration: (config, problem, network, remedies) -> agent."""
_BATCH = 3


def make_agent(config: AgentConfig, problem: Problem, network: Any = None, remedies: Sequence[Remedy] = ()) -> Agent:
    """The agent that `config` describes; `network` replaces its trunks, `remedies` act on how it learns."""
    if network is not None:
        check_network(network, problem)
        chosen = getattr(config, "network", None)
        if chosen != getattr(type(config), "network", None):
            raise UsageError(f"network= replaces the agent's own network: leave out --network {chosen}")
    return MAKERS[type(config)](config, problem, network, remedies)


def check_network(network: Any, problem: Problem) -> None:
    """Refuse what is not a Linen module from a batch of inputs to features, (batch, features)."""
    if isinstance(network, type):
        raise UsageError(f"network must be a module, got the class {network.__name__}: pass {network.__name__}()")
    if not isinstance(network, nn.Module):
        kind = type(network)
        raise UsageError(
            f"network must be a Flax Linen module (flax.linen.Module), got a {kind.__module__}.{kind.__qualname__}"
        )
    for name, like in _inputs(problem).items():
        try:
            variables: Any = jax.eval_shape(network.init, jax.random.key(0), like)
            if more := sorted(set(variables) - {"params"}):
                raise UsageError(f"network may have parameters only, and this one also has {', '.join(more)}")
            # As agents do: without a key, nothing mutable.
            features: Any = jax.eval_shape(network.apply, variables, like)
        except UsageError:
            raise
        except Exception as error:  # whatever a user's own code raises
            reason = str(error).split("\n")[0]
            raise UsageError(
                f"network fails on a batch of {name}, of shape {like.shape}: {type(error).__name__}: {reason}"
            ) from error
        shape = getattr(features, "shape", None)
        if shape is None or len(shape) != 2 or shape[0] != _BATCH:
            got = f"shape {shape}" if shape is not None else type(features).__name__
            raise UsageError(
                f"network must return features, (batch, features), to which the agent adds its own last layer; for a "
                f"batch of {_BATCH} {name} it returned {got}"
            )


def _inputs(problem: Problem) -> dict[str, Any]:
    """What a network of this problem is given: stacks channels last, and in critics actions after observations."""
    if problem.pixels:
        *stack, height, width = problem.obs_shape
        return {"stacked frames": jnp.zeros((_BATCH, height, width, math.prod(stack)), jnp.uint8)}
    inputs = {"observations": jnp.zeros((_BATCH, *problem.obs_shape))}
    if problem.action_low is not None:
        both = (_BATCH, problem.obs_shape[0] + problem.num_actions)
        inputs["observations and actions"] = jnp.zeros(both)
    return inputs
