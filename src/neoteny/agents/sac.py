"""SAC (Haarnoja et al. 2018) with SimBa (Lee et al. 2025), as in SWD (ICLR 2026), Tables 6 to 8 and 11."""

from __future__ import annotations

from collections.abc import Sequence
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
    NetworkState,
    UpdateReport,
    critics_metrics,
    many_updates,
    polyak,
    td_target,
)
from neoteny.agents.configs import SACConfig
from neoteny.agents.continuous import describe_actor, describe_critics
from neoteny.agents.learner import Learner, Remedy
from neoteny.agents.normaliser import Normaliser, normalise, observe
from neoteny.agents.normaliser import init as init_normaliser
from neoteny.agents.problem import Problem
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

    actor: NetworkState
    critics: NetworkState
    log_alpha: Array
    alpha_opt: Tree
    key: Array
    acting: Acting
    updates: Array
    actor_loss: Array
    """Of the actor's last update, so that it can be told in between."""
    entropy: Array
    """Of the policy at the actor's last update."""


def make(
    config: SACConfig, problem: Problem, network: nn.Module | None = None, remedies: Sequence[Remedy] = ()
) -> Agent:
    """SAC for a bounded Box of actions; `network` replaces the trunk of actor and critics."""
    actor_trunk = network if network is not None else SimBa(config.actor_width, config.actor_blocks)
    critic_trunk = network if network is not None else SimBa(config.critic_width, config.critic_blocks)
    actor = Gaussian(actor_trunk, problem.num_actions)
    critics = Critics(critic_trunk, config.num_critics)
    adam = optax.adam(config.lr)
    learner = Learner(remedies)
    apply = learner.apply
    scale, middle = problem.scale()

    def norm(stats: Normaliser, obs: Array) -> Array:
        return normalise(stats, obs) if config.normalise else obs

    def bounded_log_std(raw: Array) -> Array:
        return config.log_std_min + 0.5 * (config.log_std_max - config.log_std_min) * (jnp.tanh(raw) + 1.0)

    def draw(outputs: tuple[Array, Array], key: Array) -> tuple[Array, Array]:
        """An action and its log density, (batch,): Gaussian, tanh, scale, with the change of variables."""
        mean, raw = outputs
        log_std = bounded_log_std(raw)
        noise = jax.random.normal(key, mean.shape)
        x = mean + jnp.exp(log_std) * noise
        log_prob = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2.0 * jnp.pi)
        # log(1 - tanh(x)^2), in a form that keeps its digits where tanh is near 1
        log_prob -= jnp.log(scale) + 2.0 * (jnp.log(2.0) - x - jax.nn.softplus(-2.0 * x))
        return jnp.tanh(x) * scale + middle, log_prob.sum(axis=-1)

    def policy(params: Tree, obs: Array) -> Array:
        actor_params, stats = params
        return jnp.tanh(apply(actor, actor_params, norm(stats, obs))[0]) * scale + middle

    def sample(params: Tree, obs: Array, key: Array) -> Array:
        actor_params, stats = params
        return draw(apply(actor, actor_params, norm(stats, obs)), key)[0]

    def act(params: Tree, acting: Acting, obs: Array, step: Array) -> tuple[Array, Acting]:
        actor_params, _ = params
        acting_key, key = jax.random.split(acting.key)
        stats = observe(acting.norm, obs)
        return sample((actor_params, stats), obs, key), Acting(acting_key, stats)

    def target(state: State, batch: dict[str, Array], key: Array) -> Array:
        """y = r + gamma (1 - terminated) (min_i Q_i'(s', a') - alpha log pi(a'|s')), a' ~ pi."""
        obs = norm(state.acting.norm, batch["next_obs"])
        action, log_prob = draw(apply(actor, state.actor.params, obs), key)
        values = apply(critics, state.critics.target, obs, action).min(axis=0)
        return td_target(batch, config.gamma, values - jnp.exp(state.log_alpha) * log_prob)

    def actor_loss(
        outputs: tuple[Array, Array], state: State, batch: dict[str, Array], key: Array
    ) -> tuple[Array, dict[str, Array]]:
        """alpha log pi(a|s) - min_i Q_i(s, a), a ~ pi; it tells the policy's entropy."""
        action, log_prob = draw(outputs, key)
        values = apply(critics, state.critics.params, norm(state.acting.norm, batch["obs"]), action).min(axis=0)
        return jnp.exp(state.log_alpha) * log_prob - values, {"entropy": -log_prob.mean()}

    def of_observations(params: Tree, state: State, batch: dict[str, Array]) -> tuple[Array, Array]:
        return apply(actor, params, norm(state.acting.norm, batch["obs"]))

    def of_actions(params: Tree, state: State, batch: dict[str, Array]) -> Array:
        return apply(critics, params, norm(state.acting.norm, batch["obs"]), batch["action"])

    def divergence(outputs: tuple[Array, Array], earlier: tuple[Array, Array]) -> Array:
        """KL(pi || pi') of the Gaussians before the tanh, (batch,)."""
        (mean, raw), (mean_then, raw_then) = outputs, earlier
        log_std, log_std_then = bounded_log_std(raw), bounded_log_std(raw_then)
        spread = jnp.exp(2.0 * log_std) + (mean - mean_then) ** 2
        return (log_std_then - log_std + 0.5 * spread * jnp.exp(-2.0 * log_std_then) - 0.5).sum(axis=-1)

    def adamw() -> optax.GradientTransformation:
        return optax.adamw(config.lr, weight_decay=config.weight_decay)

    networks = {
        "actor": describe_actor(
            actor,
            problem,
            adamw(),
            of_observations,
            actor_loss,
            value=lambda outputs: outputs[0],
            distance=divergence,
            has_target=False,
            learning_rate=config.lr,
            tau=config.tau,
        ),
        "critics": describe_critics(critics, problem, adamw(), of_actions, target, config.lr, config.tau),
    }

    def begin_alpha() -> dict[str, Any]:
        log_alpha = jnp.log(jnp.float32(config.alpha))
        return {"log_alpha": log_alpha, "alpha_opt": adam.init(log_alpha)}

    def init(key: Array) -> State:
        actor_key, critics_key, key, acting = jax.random.split(key, 4)
        return State(
            actor=learner.begin(networks["actor"], actor_key),
            critics=learner.begin(networks["critics"], critics_key),
            **begin_alpha(),
            key=key_data(key),
            acting=Acting(key_data(acting), init_normaliser(problem.obs_shape)),
            updates=jnp.int32(0),
            actor_loss=jnp.float32(0),
            entropy=jnp.float32(0),
        )

    def tune_alpha(state: State, loss: Array, told: dict[str, Array]) -> State:
        """A step of alpha towards the target entropy, after one of the actor."""
        state = replace(state, actor_loss=loss, entropy=told["entropy"])
        if not config.tune_alpha:
            return state
        # The gradient of -exp(log_alpha) (log pi + target): CleanRL's, as the paper's.
        slope = jnp.exp(state.log_alpha) * (state.entropy - config.target_entropy * problem.num_actions)
        step, alpha_opt = adam.update(slope, state.alpha_opt)
        return replace(state, log_alpha=optax.apply_updates(state.log_alpha, step), alpha_opt=alpha_opt)

    def improve_policy(state: State, batch: dict[str, Array]) -> tuple[State, Array]:
        """As many steps of actor and alpha as critic updates went by."""
        every = jnp.bool_(True)
        for _ in range(config.policy_delay):
            key, sample_key = jax.random.split(state.key)
            state = replace(state, key=key)
            state, _, _, finite = learner.step(networks["actor"], state, batch, sample_key, tune_alpha)
            every &= finite
        return state, every

    def target_follows(state: State, loss: Array, told: dict[str, Array]) -> State:
        return replace(state, critics=polyak(state.critics, config.tau), updates=state.updates + 1)

    def update_once(state: State, batch: dict[str, Array]) -> tuple[State, UpdateReport]:
        key, sample_key = jax.random.split(state.key)
        state = replace(state, key=key)
        state, loss, told, finite = learner.step(networks["critics"], state, batch, sample_key, target_follows)
        due = finite & (state.updates % config.policy_delay == 0)
        state, policy_finite = jax.lax.cond(due, improve_policy, lambda state, _: (state, True), state, batch)
        metrics = {
            **critics_metrics(loss, told),
            "actor_loss": state.actor_loss,
            "alpha": jnp.exp(state.log_alpha),
            "entropy": state.entropy,
        }
        return state, UpdateReport(metrics, told["errors"], finite & policy_finite)

    def policy_params(state: State) -> Tree:
        return state.actor.params, state.acting.norm

    def renew(state: State) -> State:
        return replace(state, **begin_alpha())

    return Agent(
        init,
        act,
        many_updates(update_once),
        policy,
        sample,
        policy_params,
        networks,
        renew if config.tune_alpha else None,
    )
