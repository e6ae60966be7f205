"""Double DQN (van Hasselt et al. 2016), as in SWD (ICLR 2026), Tables 4, 5 and 10."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.random import key_data

from neoteny.agents.agent import (
    Agent,
    Network,
    Problem,
    Report,
    copied,
    many_updates,
    step_if_finite,
    td_target,
    weighted_mean,
)
from neoteny.agents.configs import DDQNConfig
from neoteny.networks import MLP, ActionValues, NatureCNN, anatomy, apply

Tree = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything Double DQN needs to go on. `acting` is the key of its random actions."""

    online: Tree
    target: Tree
    opt: Tree
    acting: Array
    updates: Array


def make(config: DDQNConfig, problem: Problem, network: nn.Module | None = None) -> Agent:
    """Double DQN for discrete actions; `network` replaces the trunk."""
    trunk = network or (NatureCNN(config.cnn_width) if problem.pixels else MLP(config.widths))
    values = ActionValues(trunk, problem.num_actions)
    adam = optax.adam(config.lr)
    target_updates = max(1, round(config.target_every * config.utd))
    exploration_steps = max(1.0, config.exploration_fraction * problem.total_timesteps)

    def value_of(params: Tree, obs: Array) -> Array:
        # Stacks come frames first, as they are stored; convolutions want channels last.
        return apply(values, params, jnp.moveaxis(obs, 1, -1) if problem.pixels else obs)

    def policy(params: Tree, obs: Array) -> Array:
        return value_of(params, obs).argmax(axis=-1)

    def explore(params: Tree, obs: Array, key: Array, epsilon: Array | float) -> Array:
        chance_key, action_key = jax.random.split(key)
        greedy = policy(params, obs)
        random = jax.random.randint(action_key, greedy.shape, 0, problem.num_actions)
        return jnp.where(jax.random.uniform(chance_key, greedy.shape) < epsilon, random, greedy)

    def sample(params: Tree, obs: Array, key: Array) -> Array:
        return explore(params, obs, key, config.epsilon_end)

    def init_values(key: Array) -> Tree:
        obs = jnp.zeros((1, *problem.obs_shape), jnp.uint8 if problem.pixels else jnp.float32)
        return values.init(key, jnp.moveaxis(obs, 1, -1) if problem.pixels else obs)

    def init(key: Array) -> State:
        params_key, acting = jax.random.split(key)
        params = init_values(params_key)
        return State(params, copied(params), adam.init(params), key_data(acting), jnp.int32(0))

    def act(params: Tree, acting: Array, obs: Array, step: Array) -> tuple[Array, Array]:
        acting, key = jax.random.split(acting)
        progress = jnp.minimum(step / exploration_steps, 1.0)
        epsilon = config.epsilon_start + progress * (config.epsilon_end - config.epsilon_start)
        return explore(params, obs, key, epsilon), acting

    def chosen_of(values: Array, batch: dict[str, Array]) -> Array:
        return jnp.take_along_axis(values, batch["action"][:, None], axis=1)[:, 0]

    def loss(params: Tree, batch: dict[str, Array], y: Array) -> tuple[Array, tuple[Array, Array]]:
        """The mean of (Q(s, a) - y)^2."""
        chosen = chosen_of(value_of(params, batch["obs"]), batch)
        errors = chosen - y
        return weighted_mean(batch, errors**2), (chosen.mean(), jnp.abs(errors))

    def target(state: State, batch: dict[str, Array]) -> Array:
        """y = r + gamma (1 - terminated) Q'(s', argmax_a Q(s', a))."""
        best = policy(state.online, batch["next_obs"])
        next_values = value_of(state.target, batch["next_obs"])
        next_value = jnp.take_along_axis(next_values, best[:, None], axis=1)[:, 0]
        return td_target(batch, config.gamma, next_value)

    def update_once(state: State, batch: dict[str, Array]) -> tuple[State, Report]:
        y = target(state, batch)
        (cost, (q, errors)), grads = jax.value_and_grad(loss, has_aux=True)(state.online, batch, y)

        def step(state: State) -> State:
            steps, opt = adam.update(grads, state.opt)
            online = optax.apply_updates(state.online, steps)
            updates = state.updates + 1
            sync = updates % target_updates == 0
            new_target = jax.tree.map(lambda new, old: jnp.where(sync, new, old), online, state.target)
            return replace(state, online=online, target=new_target, opt=opt, updates=updates)

        state, finite = step_if_finite(step, state, cost, grads)
        return state, Report({"critic_loss": cost, "q": q}, errors, finite)

    update = many_updates(update_once, unroll=problem.pixels)
    networks = {
        "critics": Network(
            "online",
            ("target",),
            "opt",
            anatomy(values),
            init_values,
            forward=lambda params, state, batch: value_of(params, batch["obs"]),
            loss=lambda values, state, batch, key: (chosen_of(values, batch) - target(state, batch)) ** 2,
            value=lambda values, batch: chosen_of(values, batch)[:, None],
        )
    }
    return Agent(init, act, update, policy, sample, lambda state: state.online, networks)
