"""Surgery on a whole agent: what a remedy's surgery changes, what follows it, and which shapes the state then has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
from jax import Array

from neoteny.agents.agent import Agent
from neoteny.agents.learner import Remedy, projected, remembering

Tree = Any


def operate(
    remedy: Remedy,
    remedies: Sequence[Remedy],
    agent: Agent,
    state: Tree,
    batch: dict[str, Array],
    key: Array,
    turn: int = 0,
) -> Tree:
    """The surgery of one remedy on every network, each seen as it was before any was changed.

    Args:
        remedy: the one that operates.
        remedies: all of the agent's, whose memory follows what is changed.
        agent: whose networks they are.
        state: the agent's state.
        batch: transitions, by field.
        key: the randomness of the surgery.
        turn: how often it has operated before, for one whose surgeries differ.
    """
    surgery = remedy.surgery if remedy.surgery_of is None else remedy.surgery_of(turn)
    assert surgery is not None
    changes = {}
    for network, own_key in zip(agent.networks.values(), jax.random.split(key, len(agent.networks)), strict=True):
        own, changed = surgery(network, getattr(state, network.name), state, batch, own_key)
        for other in remedies:
            if other.followed is not None:
                own, memory = other.followed(own, own.memory.get(other.name), changed)
                own = remembering(own, other, memory)
        changes[network.name] = projected(network, own)
    state = replace(state, **changes)
    return agent.renew(state) if remedy.renews and agent.renew is not None else state


def shapes_after(agent: Agent, remedies: Sequence[Remedy], updates: int) -> Tree:
    """The shapes of an agent's state after so many updates, with what surgery has changed of them until then."""

    def state_after(key: Array) -> Tree:
        state = agent.init(key)
        for remedy in remedies:
            for turn in range(remedy.done(updates) if remedy.reshapes else 0):
                state = operate(remedy, remedies, agent, state, {}, key, turn)
        return state

    return jax.eval_shape(state_after, jax.random.key(0))
