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

from neoteny.agents import returns
from neoteny.agents.agent import (
    Agent,
    NetworkState,
    UpdateReport,
    critics_metrics,
    polyak,
)
from neoteny.agents.configs import SACConfig
from neoteny.agents.continuous import VALUES, describe_actor, describe_critics
from neoteny.agents.distributional import categorical
from neoteny.agents.gaussian import SquashedGaussian
from neoteny.agents.learner import Learner, Remedy, many_updates
from neoteny.agents.normaliser import Normaliser, normalise, observe
from neoteny.agents.normaliser import init as init_normaliser
from neoteny.agents.problem import Problem
from neoteny.agents.returns import ReturnStatistics
from neoteny.networks import Critics, Gaussian, trunk_of_blocks

Tree = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Acting:
    """What acting changes: the key of the policy's samples, and the statistics of observations and of returns."""

    key: Array
    norm: Normaliser
    returns: ReturnStatistics | None
    """None if rewards are not scaled by them."""


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
    actor_trunk, critic_trunk = (network, network) if network is not None else trunks(config)
    kind = categorical(config.num_bins, config.value_range) if config.num_bins > 1 else VALUES
    actor = Gaussian(actor_trunk, problem.num_actions)
    critics = Critics(critic_trunk, config.num_critics, kind.size)
    rate = learning_rate(config, problem)
    adam = optax.adam(rate)
    learner = Learner(remedies)
    apply = learner.apply
    gaussian = SquashedGaussian(*problem.scale(), config.log_std_min, config.log_std_max)

    def norm(stats: Normaliser, obs: Array) -> Array:
        return normalise(stats, obs) if config.normalise else obs

    def policy(params: Tree, obs: Array) -> Array:
        actor_params, stats = params
        return gaussian.mean(apply(actor, actor_params, norm(stats, obs)))

    def sample(params: Tree, obs: Array, key: Array) -> Array:
        actor_params, stats = params
        return gaussian.draw(apply(actor, actor_params, norm(stats, obs)), key)[0]

    def act(params: Tree, acting: Acting, obs: Array, step: Array) -> tuple[Array, Acting]:
        actor_params, _ = params
        acting_key, key = jax.random.split(acting.key)
        stats = observe(acting.norm, obs)
        return sample((actor_params, stats), obs, key), replace(acting, key=acting_key, norm=stats)

    def observe_rewards(acting: Acting, reward: Array, ended: Array) -> Acting:
        assert acting.returns is not None
        return replace(acting, returns=returns.observe(acting.returns, reward, ended, config.gamma))

    def target(state: State, batch: dict[str, Array], key: Array) -> Array:
        """y = r + gamma (1 - terminated) (min_i Q_i'(s', a') - alpha log pi(a'|s')), a' ~ pi, or its distribution."""
        obs = norm(state.acting.norm, batch["next_obs"])
        action, log_prob = gaussian.draw(apply(actor, state.actor.params, obs), key)
        outputs = kind.least(apply(critics, state.critics.target, obs, action))
        scaled = returns.with_scaled_rewards(batch, state.acting.returns, config.value_range)
        return kind.bootstrap(scaled, config.gamma, outputs, jnp.exp(state.log_alpha) * log_prob)

    def actor_loss(
        outputs: tuple[Array, Array], state: State, batch: dict[str, Array], key: Array
    ) -> tuple[Array, dict[str, Array]]:
        """alpha log pi(a|s) - min_i Q_i(s, a), a ~ pi; it tells the policy's entropy."""
        action, log_prob = gaussian.draw(outputs, key)
        values = kind.values(apply(critics, state.critics.params, norm(state.acting.norm, batch["obs"]), action))
        return jnp.exp(state.log_alpha) * log_prob - values.min(axis=0), {"entropy": -log_prob.mean()}

    def of_observations(params: Tree, state: State, batch: dict[str, Array]) -> tuple[Array, Array]:
        return apply(actor, params, norm(state.acting.norm, batch["obs"]))

    def of_actions(params: Tree, state: State, batch: dict[str, Array]) -> Array:
        return apply(critics, params, norm(state.acting.norm, batch["obs"]), batch["action"])

    def adamw() -> optax.GradientTransformation:
        return optax.adamw(rate, weight_decay=config.weight_decay)

    networks = {
        "actor": describe_actor(
            actor,
            problem,
            adamw(),
            of_observations,
            actor_loss,
            value=lambda outputs: outputs[0],
            distance=gaussian.divergence,
            drift=gaussian.drift,
            has_target=False,
            learning_rate=config.lr,
            tau=config.tau,
        ),
        "critics": describe_critics(critics, problem, adamw(), of_actions, target, config.lr, config.tau, kind),
    }

    def init(key: Array) -> State:
        actor_key, critics_key, key, acting = jax.random.split(key, 4)
        return State(
            actor=learner.begin(networks["actor"], actor_key),
            critics=learner.begin(networks["critics"], critics_key),
            **begin_alpha(config.alpha, adam),
            key=key_data(key),
            acting=begin_acting(config, problem, acting),
            updates=jnp.int32(0),
            actor_loss=jnp.float32(0),
            entropy=jnp.float32(0),
        )

    def tune_alpha(state: State, loss: Array, told: dict[str, Array]) -> State:
        """A step of alpha towards the target entropy, after one of the actor."""
        state = replace(state, actor_loss=loss, entropy=told["entropy"])
        return tuned(state, adam, config.target_entropy * problem.num_actions) if config.tune_alpha else state

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

    def improve_if_due(state: State, batch: dict[str, Array], finite: Array) -> tuple[State, Array]:
        due = finite & (state.updates % config.policy_delay == 0)
        return jax.lax.cond(due, improve_policy, lambda state, _: (state, True), state, batch)

    def update_once(state: State, batch: dict[str, Array]) -> tuple[State, UpdateReport]:
        if config.actor_first:
            state, policy_finite = improve_if_due(state, batch, jnp.bool_(True))
        key, sample_key = jax.random.split(state.key)
        state = replace(state, key=key)
        state, loss, told, finite = learner.step(networks["critics"], state, batch, sample_key, target_follows)
        if not config.actor_first:
            state, policy_finite = improve_if_due(state, batch, finite)
        metrics = {
            **critics_metrics(loss, told),
            "actor_loss": state.actor_loss,
            "alpha": jnp.exp(state.log_alpha),
            "entropy": state.entropy,
        }
        return state, UpdateReport(metrics, told["errors"], finite & policy_finite)

    def renew(state: State) -> State:
        return replace(state, **begin_alpha(config.alpha, adam))

    return Agent(
        init,
        act,
        many_updates(update_once),
        policy,
        sample,
        lambda state: (state.actor.params, state.acting.norm),
        networks,
        renew if config.tune_alpha else None,
        observe_rewards if config.scale_rewards else None,
    )


def learning_rate(config: SACConfig, problem: Problem) -> optax.ScalarOrSchedule:
    """Return the learning rate, or how it falls over all updates of the run."""
    if config.lr_end is None:
        return config.lr
    return optax.linear_schedule(config.lr, config.lr_end, max(1, int(problem.total_timesteps * config.utd)))


def trunks(config: SACConfig) -> tuple[nn.Module, nn.Module]:
    """Return the trunks of actor and critics."""
    return (
        trunk_of_blocks(config.network, config.actor_width, config.actor_blocks, "--actor-width"),
        trunk_of_blocks(config.network, config.critic_width, config.critic_blocks, "--critic-width"),
    )


def begin_acting(config: SACConfig, problem: Problem, key: Array) -> Acting:
    """Return what acting begins with."""
    statistics = returns.init(problem.num_envs) if config.scale_rewards else None
    return Acting(key_data(key), init_normaliser(problem.obs_shape), statistics)


def begin_alpha(alpha: float, adam: optax.GradientTransformation) -> dict[str, Any]:
    """Return the fields of a state that are alpha's, as they begin."""
    log_alpha = jnp.log(jnp.float32(alpha))
    return {"log_alpha": log_alpha, "alpha_opt": adam.init(log_alpha)}


def tuned(state: State, adam: optax.GradientTransformation, target_entropy: float) -> State:
    """Return the state after a step of alpha towards the target entropy."""
    # The gradient of -exp(log_alpha) (log pi + target): CleanRL's, as the paper's.
    slope = jnp.exp(state.log_alpha) * (state.entropy - target_entropy)
    step, alpha_opt = adam.update(slope, state.alpha_opt)
    return replace(state, log_alpha=optax.apply_updates(state.log_alpha, step), alpha_opt=alpha_opt)
