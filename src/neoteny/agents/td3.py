"""TD3 (Fujimoto et al. 2018), as in SWD (ICLR 2026), Tables 3 and 9."""

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
    UpdateReport,
    adam,
    critics_metrics,
    polyak,
    td_target,
)
from neoteny.agents.configs import TD3Config
from neoteny.agents.continuous import describe_actor, describe_critics
from neoteny.agents.learner import Learner, Remedy, many_updates
from neoteny.agents.problem import Problem
from neoteny.networks import Critics, Deterministic, trunk_of_layers

Tree = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything TD3 needs to go on. `acting` is the key of its exploration noise."""

    actor: NetworkState
    critics: NetworkState
    key: Array
    acting: Array
    updates: Array
    actor_loss: Array
    """Of the actor's last update, so that it can be told in between."""


def make(
    config: TD3Config, problem: Problem, network: nn.Module | None = None, remedies: Sequence[Remedy] = ()
) -> Agent:
    """TD3 for a bounded Box of actions; `network` replaces the trunk of actor and critics."""
    trunk = network if network is not None else trunk_of_layers(config.network, config.widths)
    actor, critics = Deterministic(trunk, problem.num_actions), Critics(trunk)
    learner = Learner(remedies)
    apply = learner.apply
    scale, middle = problem.scale()

    def bounded(raw: Array) -> Array:
        return jnp.tanh(raw) * scale + middle

    def policy(params: Tree, obs: Array) -> Array:
        return bounded(apply(actor, params, obs))

    def sample(params: Tree, obs: Array, key: Array) -> Array:
        action = policy(params, obs)
        noise = config.exploration_noise * scale * jax.random.normal(key, action.shape)
        return jnp.clip(action + noise, middle - scale, middle + scale)

    def act(params: Tree, acting: Array, obs: Array, step: Array) -> tuple[Array, Array]:
        acting, key = jax.random.split(acting)
        return sample(params, obs, key), acting

    def target(state: State, batch: dict[str, Array], key: Array) -> Array:
        """y = r + gamma (1 - terminated) min_i Q_i'(s', pi'(s') + clipped noise)."""
        action = policy(state.actor.target, batch["next_obs"])
        noise = config.target_noise * jax.random.normal(key, action.shape)
        noise = jnp.clip(noise, -config.target_noise_clip, config.target_noise_clip) * scale
        action = jnp.clip(action + noise, middle - scale, middle + scale)
        values = apply(critics, state.critics.target, batch["next_obs"], action)
        return td_target(batch, config.gamma, values.min(axis=0))

    def actor_loss(raw: Array, state: State, batch: dict[str, Array], key: Array) -> tuple[Array, dict[str, Array]]:
        """-Q1(s, pi(s))."""
        return -apply(critics, state.critics.params, batch["obs"], bounded(raw))[0], {}

    def of_observations(params: Tree, state: State, batch: dict[str, Array]) -> Array:
        return apply(actor, params, batch["obs"])

    def of_actions(params: Tree, state: State, batch: dict[str, Array]) -> Array:
        return apply(critics, params, batch["obs"], batch["action"])

    def drift(raw: Array, batch: dict[str, Array], step: Array) -> Array:
        """||pi(s) - a||^2 / (noise variance x |A|): 1 on average for what the present policy does (ours).

        Without exploration noise, in units of the action scale.
        """
        noise = (config.exploration_noise or 1.0) * scale
        return (((bounded(raw) - batch["action"]) / noise) ** 2).mean(axis=-1)

    actor_adam, critics_adam = (adam(rate, config.weight_decay) for rate in (config.actor_lr, config.critic_lr))
    networks = {
        "actor": describe_actor(
            actor,
            problem,
            actor_adam,
            of_observations,
            actor_loss,
            value=lambda raw: raw,
            distance=lambda raw, earlier: ((bounded(raw) - bounded(earlier)) ** 2).mean(axis=-1),
            drift=drift,
            has_target=True,
            learning_rate=config.actor_lr,
            tau=config.tau,
        ),
        "critics": describe_critics(critics, problem, critics_adam, of_actions, target, config.critic_lr, config.tau),
    }

    def init(key: Array) -> State:
        actor_key, critics_key, key, acting = jax.random.split(key, 4)
        return State(
            actor=learner.begin(networks["actor"], actor_key),
            critics=learner.begin(networks["critics"], critics_key),
            key=key_data(key),
            acting=key_data(acting),
            updates=jnp.int32(0),
            actor_loss=jnp.float32(0),
        )

    def targets_follow(state: State, loss: Array, told: dict[str, Array]) -> State:
        actor, critics = polyak(state.actor, config.tau), polyak(state.critics, config.tau)
        return replace(state, actor=actor, critics=critics, actor_loss=loss)

    def improve_policy(state: State, batch: dict[str, Array]) -> tuple[State, Array]:
        state, _, _, finite = learner.step(networks["actor"], state, batch, state.key, targets_follow)
        return state, finite

    def update_once(state: State, batch: dict[str, Array]) -> tuple[State, UpdateReport]:
        key, noise_key = jax.random.split(state.key)
        state, loss, told, finite = learner.step(
            networks["critics"],
            replace(state, key=key),
            batch,
            noise_key,
            lambda state, loss, told: replace(state, updates=state.updates + 1),
        )
        due = finite & (state.updates % config.policy_delay == 0)
        state, policy_finite = jax.lax.cond(due, improve_policy, lambda state, _: (state, True), state, batch)
        metrics = {**critics_metrics(loss, told), "actor_loss": state.actor_loss}
        return state, UpdateReport(metrics, told["errors"], finite & policy_finite)

    return Agent(init, act, many_updates(update_once), policy, sample, lambda state: state.actor.params, networks)
