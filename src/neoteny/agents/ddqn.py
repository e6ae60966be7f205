"""Double DQN (van Hasselt et al. 2016), as in SWD (ICLR 2026), Tables 4, 5 and 10."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array
from jax.random import key_data

from neoteny.agents.agent import (
    Agent,
    NetworkState,
    TrainableNetwork,
    UpdateReport,
    adam,
    critics_metrics,
    squared_errors,
    td_target,
)
from neoteny.agents.configs import DDQNConfig
from neoteny.agents.learner import Learner, Remedy, many_updates
from neoteny.agents.problem import NATURE_SIDE, Problem
from neoteny.errors import UsageError
from neoteny.networks import ActionValues, anatomy, new_variables, projection, trunk_of_layers, trunk_of_pixels

Tree = Any
SMALL_WIDTH = 128
"""Units of the dense layer for frames that are too small for the Nature CNN, as Young & Tian (2019) have it."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything Double DQN needs to go on. `acting` is the key of its random actions."""

    critics: NetworkState
    acting: Array
    updates: Array


def make(
    config: DDQNConfig, problem: Problem, network: nn.Module | None = None, remedies: Sequence[Remedy] = ()
) -> Agent:
    """Double DQN for discrete actions; `network` replaces the trunk."""
    trunk = network or _trunk(config, problem)
    values = ActionValues(trunk, problem.num_actions)
    learner = Learner(remedies)
    target_updates = max(1, round(config.target_every * config.utd))
    exploration_steps = max(1.0, config.exploration_fraction * problem.total_timesteps)

    def seen(obs: Array) -> Array:
        """Stacks come frames and their channels first, as they are stored; convolutions want channels last."""
        return jnp.moveaxis(obs.reshape(len(obs), -1, *obs.shape[-2:]), 1, -1) if problem.pixels else obs

    def value_of(params: Tree, obs: Array) -> Array:
        return learner.apply(values, params, seen(obs))

    def value_at(values: Array, action: Array) -> Array:
        return jnp.take_along_axis(values, action[:, None], axis=1)[:, 0]

    def policy(params: Tree, obs: Array) -> Array:
        return value_of(params, obs).argmax(axis=-1)

    def explore(params: Tree, obs: Array, key: Array, epsilon: Array | float) -> Array:
        chance_key, action_key = jax.random.split(key)
        greedy = policy(params, obs)
        random = jax.random.randint(action_key, greedy.shape, 0, problem.num_actions)
        return jnp.where(jax.random.uniform(chance_key, greedy.shape) < epsilon, random, greedy)

    def epsilon_at(step: Array) -> Array:
        progress = jnp.minimum(step / exploration_steps, 1.0)
        return config.epsilon_start + progress * (config.epsilon_end - config.epsilon_start)

    def sample(params: Tree, obs: Array, key: Array) -> Array:
        return explore(params, obs, key, config.epsilon_end)

    def act(params: Tree, acting: Array, obs: Array, step: Array) -> tuple[Array, Array]:
        acting, key = jax.random.split(acting)
        return explore(params, obs, key, epsilon_at(step)), acting

    def drift(values: Array, batch: dict[str, Array], step: Array) -> Array:
        """[a != argmax Q(s, .)] - epsilon (1 - 1 / |A|), the disagreement with what is greedy now beyond that of random
        actions: 0 on average for what the present policy does (ours)."""
        differs = values.argmax(axis=-1) != batch["action"]
        return differs - epsilon_at(step) * (1.0 - 1.0 / problem.num_actions)

    def target(state: State, batch: dict[str, Array]) -> Array:
        """y = r + gamma (1 - terminated) Q'(s', argmax_a Q(s', a))."""
        best = policy(state.critics.params, batch["next_obs"])
        next_values = value_of(state.critics.target, batch["next_obs"])
        return td_target(batch, config.gamma, value_at(next_values, best))

    critics = TrainableNetwork(
        "critics",
        "value",
        anatomy(values),
        init=lambda key: new_variables(
            values, key, seen(jnp.zeros((1, *problem.obs_shape), jnp.uint8 if problem.pixels else jnp.float32))
        ),
        optimiser=adam(config.lr, config.weight_decay),
        forward=lambda params, state, batch: value_of(params, batch["obs"]),
        loss=lambda values, state, batch, key: squared_errors(
            value_at(values, batch["action"])[None], target(state, batch)
        ),
        value=lambda values, batch: value_at(values, batch["action"])[:, None],
        learning_rate=config.lr,
        target_every=target_updates,
        acts=True,
        project=projection(values),
        distance=lambda values, earlier: ((values - earlier) ** 2).mean(axis=-1),
        drift=drift,
    )

    def init(key: Array) -> State:
        params_key, acting = jax.random.split(key)
        return State(learner.begin(critics, params_key), key_data(acting), jnp.int32(0))

    def copy_now_and_then(state: State, loss: Array, told: dict[str, Array]) -> State:
        updates = state.updates + 1
        own, sync = state.critics, updates % target_updates == 0
        new = jax.tree.map(lambda new, old: jnp.where(sync, new, old), own.params, own.target)
        return replace(state, critics=replace(own, target=new), updates=updates)

    def update_once(state: State, batch: dict[str, Array]) -> tuple[State, UpdateReport]:
        no_key = state.acting  # this loss draws nothing
        state, loss, told, finite = learner.step(critics, state, batch, no_key, copy_now_and_then)
        return state, UpdateReport(critics_metrics(loss, told), told["errors"], finite)

    update = many_updates(update_once, unroll=problem.pixels)
    return Agent(init, act, update, policy, sample, lambda state: state.critics.params, {"critics": critics})


def _trunk(config: DDQNConfig, problem: Problem) -> nn.Module:
    """The hidden layers for observations of this kind."""
    if not problem.pixels:
        return trunk_of_layers(config.network, config.widths)
    if not problem.small_frames:
        return trunk_of_pixels(config.network, config.cnn_width)
    if config.cnn_width != DDQNConfig.cnn_width:
        height, width = problem.obs_shape[-2:]
        raise UsageError(
            f"--cnn-width {config.cnn_width} is for frames of at least {NATURE_SIDE} x {NATURE_SIDE}, and these are "
            f"{height} x {width}, whose dense layer has {SMALL_WIDTH} units: leave it out"
        )
    return trunk_of_pixels(config.network, SMALL_WIDTH, small=True)
