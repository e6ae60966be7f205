"""``neoteny lab recovery``: which remedies bring back a network that was made dormant on purpose.

TD3's networks are made dormant: nine tenths of the units of every hidden layer get a bias that keeps them silent on all
of the data. The agent is then trained on that data under each remedy in turn. Afterwards the critics are measured: the
share of dormant units, and how well they learn something new: the loss that 1,000 steps of Adam leave on a new function
of the same inputs, whose variance is 1. Without a remedy a silent unit has no gradient and stays silent; a new network,
and an agent that was never silenced, show what could be reached and what training alone costs.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from neoteny.agents.agent import Agent, TrainableNetwork
from neoteny.agents.configs import TD3Config
from neoteny.agents.learner import OTHER, Remedy, forward_and_hidden
from neoteny.agents.operating import operate
from neoteny.agents.problem import Problem
from neoteny.agents.registry import make_agent
from neoteny.arguments import Parser
from neoteny.errors import UsageError
from neoteny.plasticity.neurons import dormant_ratio
from neoteny.remedies.config import RemedyConfig
from neoteny.remedies.recycling import scores_by_activity
from neoteny.remedies.registry import REMEDIES, config_class
from neoteny.remedies.surgery import at, losses_of, put

Tree = Any
Data = dict[str, Any]
OBS, ACTIONS, STORED = 5, 2, 4_096
AGENT = TD3Config((64, 64), batch_size=64)
UPDATES, AT_ONCE = 5_500, 10
"""Gradient steps, and how many of them one call makes; surgery falls between calls."""
SHARE = 0.9
"""The share of the units of each hidden layer that is silenced."""
MARGIN = 1.0
"""How far below zero a silenced unit is at the transition that comes nearest."""
SOONER = {"every": 2_000, "maturity": 500, "rate": 1e-2}
"""Numbers of remedies for so short a run, where a remedy's own would come too late to act: the smaller interval, the
larger rate."""
FITTING = 1_000
"""Steps of Adam on the new function."""


@dataclass(frozen=True)
class Outcome:
    """What a remedy made of dormant critics, for each seed."""

    dormant: list[float]
    """The share of dormant units (a dormancy score of at most 0.025)."""
    relearning: list[float]
    """The loss left on a new function of variance 1."""


def main(argv: list[str]) -> int:
    """Train dormant agents under every remedy, and print a table."""
    parser = Parser(prog="neoteny lab recovery", description=__doc__)
    parser.add_argument("--remedy", action="append", help="only this one; may be given more than once (all)")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of each (5)")
    parser.add_argument("--updates", type=int, default=UPDATES, help=f"gradient steps of each ({UPDATES:,})")
    options = parser.parse_args(argv)
    for name in ("seeds", "updates"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name} must be >= 1, got {getattr(options, name)}")
    remedies = {name: sooner(name) for name in options.remedy or REMEDIES}
    print(f"TD3's critics after {options.updates:,} updates, {SHARE:.0%} of all hidden units silenced before them\n")
    print(f"{'':<22}{'dormant units':>22}{'loss on a new function':>26}")
    _show("a new network", lambda: recover(None, options.seeds, 0, share=0.0))
    _show("never silenced", lambda: recover(None, options.seeds, options.updates, share=0.0))
    _show("no remedy", lambda: recover(None, options.seeds, options.updates))
    for name, remedy in remedies.items():
        _show(name, lambda remedy=remedy: recover(remedy, options.seeds, options.updates))  # type: ignore[misc]
    print(
        "\nThe mean over seeds, with the least and the most. A loss of 1 is the function's variance: nothing learned."
    )
    return 0


def sooner(name: str) -> RemedyConfig:
    """Return the configuration of the remedy called `name`, with numbers that let it act within this experiment."""
    config = config_class(name)()
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        usual = getattr(config, field.name)
        if field.name in SOONER and usual is not None:
            values[field.name] = (max if field.name == "rate" else min)(usual, SOONER[field.name])
    return replace(config, **values)


def recover(remedy: RemedyConfig | None, seeds: int, updates: int, share: float = SHARE) -> Outcome:
    """Silence a share of the units of agents, train these under a remedy, and measure their critics."""
    remedies = () if remedy is None else (remedy.build(updates),)
    agent = agent_under(remedies)
    if remedy is not None:
        remedy.check_agent(agent)
    update, asks = jax.jit(agent.update), any(one.second_batch for one in remedies)
    outcome = Outcome([], [])
    for seed in range(1, seeds + 1):
        data, rng = transitions(seed), np.random.default_rng([seed, 1])
        state = silenced(agent, agent.init(jax.random.key(seed)), data, share, seed)
        for done in range(0, updates, AT_ONCE):
            batch = _drawn(rng, data, AT_ONCE)
            more = {OTHER + name: value for name, value in _drawn(rng, data, AT_ONCE).items()} if asks else {}
            state, _ = update(state, {**batch, **more})
            for one in remedies:
                if one.surgery is not None and one.done(done + AT_ONCE) > one.done(done):
                    first = {name: value[0] for name, value in batch.items()}
                    state = operate(one, remedies, agent, state, first, jax.random.key(int(rng.integers(2**31))))
        outcome.dormant.append(dormant(agent, state, data))
        outcome.relearning.append(relearning(agent, state, data, seed))
    return outcome


def agent_under(remedies: Sequence[Remedy]) -> Agent:
    """Return TD3 for the made-up problem, under these remedies."""
    bound = np.ones(ACTIONS, np.float32)
    return make_agent(AGENT, Problem((OBS,), False, ACTIONS, -bound, bound, 100), remedies=remedies)


def transitions(seed: int) -> Data:
    """Return transitions whose rewards and next observations are smooth functions of observation and action."""
    rng = np.random.default_rng([seed, 0])
    obs, action = rng.normal(size=(STORED, OBS)), rng.uniform(-1, 1, (STORED, ACTIONS))
    mixed = np.concatenate([obs, action], axis=1) @ rng.normal(size=(OBS + ACTIONS, OBS + 1)) / np.sqrt(OBS + ACTIONS)
    fields = {
        "obs": obs,
        "action": action,
        "reward": np.tanh(mixed[:, 0]),
        "next_obs": 0.5 * obs + np.tanh(mixed[:, 1:]),
        "terminated": np.zeros(STORED),
    }
    return {name: value.astype(np.float32) for name, value in fields.items()}


def silenced(agent: Agent, state: Tree, data: Data, share: float, seed: int) -> Tree:
    """Return the state in which this share of each layer's units is silent on all data, targets too."""
    rng = np.random.default_rng([seed, 2])
    for network in agent.networks.values():
        for layer in network.anatomy.hidden:  # in their order, since each changes what the next is given
            own = getattr(state, network.name)
            passed = forward_and_hidden(network, own.params, state, data)[1][layer.incoming].preactivations
            bias = at(own.params["params"], layer.incoming)["bias"]
            silent = rng.permutation(bias.size).reshape(bias.shape) < share * bias.size
            highest = passed.reshape(-1, *bias.shape).max(axis=0)
            lowered = jnp.where(silent, bias - highest - MARGIN, bias)
            params = put(own.params["params"], (*layer.incoming, "bias"), lowered)
            own = replace(own, params={**own.params, "params": params}, target={**own.params, "params": params})
            state = replace(state, **{network.name: own})
    return jax.tree.map(jnp.copy, state)  # donated buffers must not alias


def dormant(agent: Agent, state: Tree, data: Data) -> float:
    """Return the share of dormant units of the critics."""
    network = agent.networks["critics"]
    batch = {name: value[:256] for name, value in data.items()}
    passed = losses_of(state, network, batch, jax.random.key(0)).layers
    return float(dormant_ratio(list(scores_by_activity(passed, network.anatomy.hidden).values()), 0.025))


def relearning(agent: Agent, state: Tree, data: Data, seed: int) -> float:
    """Return the loss that the critics leave on a new function of the same inputs, which has a variance of 1."""
    network, rng = agent.networks["critics"], np.random.default_rng([seed, 3])
    inputs = np.concatenate([data["obs"], data["action"]], axis=1)
    slopes = rng.normal(size=(2, inputs.shape[1], 1)) / np.sqrt(inputs.shape[1])
    function = np.sin(2 * inputs @ slopes[0]) + np.tanh(inputs @ slopes[1])
    target = ((function - function.mean()) / function.std()).astype(np.float32)
    rows = rng.integers(STORED, size=(FITTING, AGENT.batch_size))
    return _left(network, getattr(state, network.name).params, data, target, rows)


def _left(network: TrainableNetwork, variables: Tree, data: Data, target: Any, rows: Any) -> float:
    """The loss that is left after Adam's steps on these rows, over all data."""
    adam = optax.adam(AGENT.critic_lr)

    def loss(params: Tree, batch: Data, target: Array) -> Array:
        outputs = network.forward({**variables, "params": params}, None, batch)
        return jnp.square(network.value(outputs, batch) - target).mean()

    def step(fit: tuple[Tree, Tree], rows: Array) -> tuple[tuple[Tree, Tree], None]:
        params, opt = fit
        batch = {name: jnp.asarray(value)[rows] for name, value in data.items()}
        updates, opt = adam.update(jax.grad(loss)(params, batch, jnp.asarray(target)[rows]), opt, params)
        return (optax.apply_updates(params, updates), opt), None

    start = variables["params"]
    (params, _), _ = jax.jit(lambda start: jax.lax.scan(step, (start, adam.init(start)), rows))(start)
    return float(loss(params, data, target))


def _drawn(rng: np.random.Generator, data: Data, count: int) -> Data:
    """Batches for `count` updates, leading axes (updates, batch_size)."""
    rows = rng.integers(STORED, size=(count, AGENT.batch_size))
    return {name: value[rows] for name, value in data.items()}


def _show(name: str, experiment: Callable[[], Outcome]) -> None:
    """Print an outcome as a row, or why there is none."""
    try:
        outcome = experiment()
    except UsageError as error:
        print(f"{name:<22}{error}", flush=True)
        return
    both = outcome.dormant, outcome.relearning
    cells = [f"{statistics.mean(one):.2f} ({min(one):.2f} to {max(one):.2f})" for one in both]
    print(f"{name:<22}{cells[0]:>22}{cells[1]:>26}", flush=True)
