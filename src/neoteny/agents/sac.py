"""SAC (Haarnoja et al. 2018) with SimBa's networks, as in SWD (ICLR 2026), Tables 6 to 8 and 11."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array

from neoteny.agents.agent import (
    Agent,
    Problem,
    Report,
    copied,
    many_updates,
    polyak,
    step_if_finite,
    td_target,
    weighted_mean,
)
from neoteny.agents.configs import SACConfig
from neoteny.agents.normaliser import Normaliser, normalise, observe
from neoteny.agents.normaliser import init as init_normaliser
from neoteny.networks import Critics, Gaussian, SimBa

Tree = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Acting:
    """What acting changes: the key of the policy's samples, and the observations' statistics."""

    key: Array
    norm: Normaliser


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """Everything SAC needs to go on."""

    actor: Tree
    actor_opt: Tree
    critics: Tree
    critics_target: Tree
    critics_opt: Tree
    log_alpha: Array
    alpha_opt: Tree
    key: Array
    acting: Acting
    updates: Array
    actor_loss: Array
    entropy: Array


def make(config: SACConfig, problem: Problem, network: nn.Module | None = None) -> Agent:
    """SAC for a bounded Box of actions; `network` replaces the trunk of actor and critics."""
    bounds = (config.log_std_min, config.log_std_max)
    actor_trunk = network if network is not None else SimBa(config.actor_width, config.actor_blocks)
    critic_trunk = network if network is not None else SimBa(config.critic_width, config.critic_blocks)
    actor = Gaussian(actor_trunk, problem.num_actions, bounds)
    critics = Critics(critic_trunk, config.num_critics)
    adamw = optax.adamw(config.lr, weight_decay=config.weight_decay)
    adam = optax.adam(config.lr)
    scale, middle = problem.scale()
    target_entropy = config.target_entropy * problem.num_actions

    def norm(stats: Normaliser, obs: Array) -> Array:
        return normalise(stats, obs) if config.normalise else obs

    def draw(params: Tree, obs: Array, key: Array) -> tuple[Array, Array]:
        """An action and its log density, (batch,): Gaussian, tanh, scale, with the change of variables."""
        mean, log_std = actor.apply(params, obs)
        noise = jax.random.normal(key, mean.shape)
        x = mean + jnp.exp(log_std) * noise
        log_prob = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2.0 * jnp.pi)
        # log(1 - tanh(x)^2), in a form that keeps its digits where tanh is near 1
        log_prob -= jnp.log(scale) + 2.0 * (jnp.log(2.0) - x - jax.nn.softplus(-2.0 * x))
        return jnp.tanh(x) * scale + middle, log_prob.sum(axis=-1)

    def policy(params: Tree, obs: Array) -> Array:
        actor_params, stats = params
        return jnp.tanh(actor.apply(actor_params, norm(stats, obs))[0]) * scale + middle

    def sample(params: Tree, obs: Array, key: Array) -> Array:
        actor_params, stats = params
        return draw(actor_params, norm(stats, obs), key)[0]

    def init(key: Array) -> State:
        actor_key, critics_key, key, acting = jax.random.split(key, 4)
        obs, action = jnp.zeros((1, *problem.obs_shape)), jnp.zeros((1, problem.num_actions))
        actor_params = actor.init(actor_key, obs)
        critics_params = critics.init(critics_key, obs, action)
        log_alpha = jnp.log(jnp.float32(config.alpha))
        return State(
            actor=actor_params,
            actor_opt=adamw.init(actor_params),
            critics=critics_params,
            critics_target=copied(critics_params),
            critics_opt=adamw.init(critics_params),
            log_alpha=log_alpha,
            alpha_opt=adam.init(log_alpha),
            key=key,
            acting=Acting(acting, init_normaliser(problem.obs_shape)),
            updates=jnp.int32(0),
            actor_loss=jnp.float32(0),
            entropy=jnp.float32(0),
        )

    def act(state: State, obs: Array, step: Array) -> tuple[Array, Acting]:
        acting_key, key = jax.random.split(state.acting.key)
        stats = observe(state.acting.norm, obs)
        return sample((state.actor, stats), obs, key), Acting(acting_key, stats)

    def critics_loss(params: Tree, batch: dict[str, Array], target: Array) -> tuple[Array, tuple[Array, Array]]:
        """The sum over critics of the mean of (Q(s, a) - y)^2."""
        values = critics.apply(params, batch["obs"], batch["action"])
        errors = values - target
        return weighted_mean(batch, (errors**2).sum(axis=0)), (values.mean(), jnp.abs(errors).mean(axis=0))

    def actor_loss(params: Tree, critics_params: Tree, alpha: Array, obs: Array, key: Array) -> tuple[Array, Array]:
        """alpha log pi(a|s) - min_i Q_i(s, a), a ~ pi."""
        action, log_prob = draw(params, obs, key)
        values = critics.apply(critics_params, obs, action).min(axis=0)
        return (alpha * log_prob - values).mean(), -log_prob.mean()

    def target(state: State, batch: dict[str, Array], key: Array) -> Array:
        """y = r + gamma (1 - terminated) (min_i Q_i'(s', a') - alpha log pi(a'|s')), a' ~ pi."""
        action, log_prob = draw(state.actor, batch["next_obs"], key)
        values = critics.apply(state.critics_target, batch["next_obs"], action).min(axis=0)
        return td_target(batch, config.gamma, values - jnp.exp(state.log_alpha) * log_prob)

    def improve_policy(state: State, obs: Array) -> tuple[State, Array]:
        """As many steps of actor and alpha as critic updates went by."""
        every = jnp.bool_(True)
        for _ in range(config.policy_delay):
            key, sample_key = jax.random.split(state.key)
            state, finite = improve_once(replace(state, key=key), obs, sample_key)
            every &= finite
        return state, every

    def improve_once(state: State, obs: Array, key: Array) -> tuple[State, Array]:
        alpha = jnp.exp(state.log_alpha)
        (loss, entropy), grads = jax.value_and_grad(actor_loss, has_aux=True)(
            state.actor, state.critics, alpha, obs, key
        )

        def step(state: State) -> State:
            steps, opt = adamw.update(grads, state.actor_opt, state.actor)
            params = optax.apply_updates(state.actor, steps)
            state = replace(state, actor=params, actor_opt=opt, actor_loss=loss, entropy=entropy)
            if not config.tune_alpha:
                return state
            # The gradient of -exp(log_alpha) (log pi + target): CleanRL's, as the paper's.
            slope = jnp.exp(state.log_alpha) * (entropy - target_entropy)
            alpha_step, alpha_opt = adam.update(slope, state.alpha_opt)
            return replace(state, log_alpha=optax.apply_updates(state.log_alpha, alpha_step), alpha_opt=alpha_opt)

        return step_if_finite(step, state, loss, grads)

    def update_once(state: State, batch: dict[str, Array]) -> tuple[State, Report]:
        stats = state.acting.norm
        batch = {**batch, "obs": norm(stats, batch["obs"]), "next_obs": norm(stats, batch["next_obs"])}
        key, sample_key = jax.random.split(state.key)
        y = target(state, batch, sample_key)
        (loss, (q, errors)), grads = jax.value_and_grad(critics_loss, has_aux=True)(state.critics, batch, y)

        def step(state: State) -> State:
            steps, opt = adamw.update(grads, state.critics_opt, state.critics)
            params = optax.apply_updates(state.critics, steps)
            return replace(
                state,
                critics=params,
                critics_opt=opt,
                critics_target=polyak(state.critics_target, params, config.tau),
                updates=state.updates + 1,
            )

        state, finite = step_if_finite(step, replace(state, key=key), loss, grads)
        due = finite & (state.updates % config.policy_delay == 0)
        state, policy_finite = jax.lax.cond(due, improve_policy, lambda state, _: (state, True), state, batch["obs"])
        metrics = {
            "critic_loss": loss,
            "q": q,
            "actor_loss": state.actor_loss,
            "alpha": jnp.exp(state.log_alpha),
            "entropy": state.entropy,
        }
        return state, Report(metrics, errors, finite & policy_finite)

    def policy_params(state: State) -> Tree:
        return state.actor, state.acting.norm

    return Agent(init, act, many_updates(update_once), policy, sample, policy_params)
