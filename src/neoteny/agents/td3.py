"""TD3 (Fujimoto et al. 2018), as in SWD (ICLR 2026), Tables 3 and 9."""

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
    polyak,
    step_if_finite,
    td_target,
    weighted_mean,
)
from neoteny.agents.configs import TD3Config
from neoteny.networks import MLP, Critics, Deterministic, anatomy, apply

Tree = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything TD3 needs to go on. `acting` is the key of its exploration noise."""

    actor: Tree
    actor_target: Tree
    actor_opt: Tree
    critics: Tree
    critics_target: Tree
    critics_opt: Tree
    key: Array
    acting: Array
    updates: Array
    actor_loss: Array
    """Of the actor's last update, so that it can be told in between."""


def make(config: TD3Config, problem: Problem, network: nn.Module | None = None) -> Agent:
    """TD3 for a bounded Box of actions; `network` replaces the trunk of actor and critics."""
    trunk = network if network is not None else MLP(config.widths)
    actor, critics = Deterministic(trunk, problem.num_actions), Critics(trunk)
    actor_adam, critics_adam = optax.adam(config.actor_lr), optax.adam(config.critic_lr)
    scale, middle = problem.scale()

    def policy(params: Tree, obs: Array) -> Array:
        return jnp.tanh(apply(actor, params, obs)) * scale + middle

    obs_like, action_like = jnp.zeros((1, *problem.obs_shape)), jnp.zeros((1, problem.num_actions))

    def init_actor(key: Array) -> Tree:
        return actor.init(key, obs_like)

    def init_critics(key: Array) -> Tree:
        return critics.init(key, obs_like, action_like)

    def init(key: Array) -> State:
        actor_key, critics_key, key, acting = jax.random.split(key, 4)
        actor_params, critics_params = init_actor(actor_key), init_critics(critics_key)
        return State(
            actor=actor_params,
            actor_target=copied(actor_params),
            actor_opt=actor_adam.init(actor_params),
            critics=critics_params,
            critics_target=copied(critics_params),
            critics_opt=critics_adam.init(critics_params),
            key=key_data(key),
            acting=key_data(acting),
            updates=jnp.int32(0),
            actor_loss=jnp.float32(0),
        )

    def sample(params: Tree, obs: Array, key: Array) -> Array:
        action = policy(params, obs)
        noise = config.exploration_noise * scale * jax.random.normal(key, action.shape)
        return jnp.clip(action + noise, middle - scale, middle + scale)

    def act(params: Tree, acting: Array, obs: Array, step: Array) -> tuple[Array, Array]:
        acting, key = jax.random.split(acting)
        return sample(params, obs, key), acting

    def critics_loss(params: Tree, batch: dict[str, Array], target: Array) -> tuple[Array, tuple[Array, Array]]:
        """The sum over critics of the mean of (Q(s, a) - y)^2."""
        values = apply(critics, params, batch["obs"], batch["action"])
        errors = values - target
        return weighted_mean(batch, (errors**2).sum(axis=0)), (values.mean(), jnp.abs(errors).mean(axis=0))

    def actor_losses(raw: Array, critics_params: Tree, obs: Array) -> Array:
        """-Q1(s, pi(s)), (batch,), of the actor's output for each s."""
        return -apply(critics, critics_params, obs, jnp.tanh(raw) * scale + middle)[0]

    def actor_loss(params: Tree, critics_params: Tree, obs: Array) -> Array:
        return actor_losses(apply(actor, params, obs), critics_params, obs).mean()

    def target(state: State, batch: dict[str, Array], key: Array) -> Array:
        """y = r + gamma (1 - terminated) min_i Q_i'(s', pi'(s') + clipped noise)."""
        action = policy(state.actor_target, batch["next_obs"])
        noise = config.target_noise * jax.random.normal(key, action.shape)
        noise = jnp.clip(noise, -config.target_noise_clip, config.target_noise_clip) * scale
        action = jnp.clip(action + noise, middle - scale, middle + scale)
        values = apply(critics, state.critics_target, batch["next_obs"], action)
        return td_target(batch, config.gamma, values.min(axis=0))

    def improve_policy(state: State, obs: Array) -> tuple[State, Array]:
        loss, grads = jax.value_and_grad(actor_loss)(state.actor, state.critics, obs)

        def step(state: State) -> State:
            steps, opt = actor_adam.update(grads, state.actor_opt)
            params = optax.apply_updates(state.actor, steps)
            return replace(
                state,
                actor=params,
                actor_opt=opt,
                actor_target=polyak(state.actor_target, params, config.tau),
                critics_target=polyak(state.critics_target, state.critics, config.tau),
                actor_loss=loss,
            )

        return step_if_finite(step, state, loss, grads)

    def update_once(state: State, batch: dict[str, Array]) -> tuple[State, Report]:
        key, noise_key = jax.random.split(state.key)
        y = target(state, batch, noise_key)
        (loss, (q, errors)), grads = jax.value_and_grad(critics_loss, has_aux=True)(state.critics, batch, y)

        def step(state: State) -> State:
            steps, opt = critics_adam.update(grads, state.critics_opt)
            params = optax.apply_updates(state.critics, steps)
            return replace(state, critics=params, critics_opt=opt, updates=state.updates + 1)

        state, finite = step_if_finite(step, replace(state, key=key), loss, grads)
        due = finite & (state.updates % config.policy_delay == 0)
        state, policy_finite = jax.lax.cond(due, improve_policy, lambda state, _: (state, True), state, batch["obs"])
        metrics = {"critic_loss": loss, "q": q, "actor_loss": state.actor_loss}
        return state, Report(metrics, errors, finite & policy_finite)

    networks = {
        "actor": Network(
            "actor",
            ("actor_target",),
            "actor_opt",
            anatomy(actor),
            init_actor,
            forward=lambda params, state, batch: apply(actor, params, batch["obs"]),
            loss=lambda raw, state, batch, key: actor_losses(raw, state.critics, batch["obs"]),
            value=lambda raw, batch: raw,
        ),
        "critics": Network(
            "critics",
            ("critics_target",),
            "critics_opt",
            anatomy(critics),
            init_critics,
            forward=lambda params, state, batch: apply(critics, params, batch["obs"], batch["action"]),
            loss=lambda values, state, batch, key: ((values - target(state, batch, key)) ** 2).sum(axis=0),
            value=lambda values, batch: values.T,
        ),
    }
    return Agent(init, act, many_updates(update_once), policy, sample, lambda state: state.actor, networks)
