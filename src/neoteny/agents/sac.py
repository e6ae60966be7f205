"""SAC (Haarnoja et al. 2018) with SimBa's networks, as in SWD (ICLR 2026), Tables 6 to 8 and 11."""

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
from neoteny.agents.configs import SACConfig
from neoteny.agents.normaliser import Normaliser, normalise, observe
from neoteny.agents.normaliser import init as init_normaliser
from neoteny.networks import Critics, Gaussian, SimBa, anatomy, apply, decayed

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
    low, high = config.log_std_min, config.log_std_max
    actor_trunk = network if network is not None else SimBa(config.actor_width, config.actor_blocks)
    critic_trunk = network if network is not None else SimBa(config.critic_width, config.critic_blocks)
    actor = Gaussian(actor_trunk, problem.num_actions)
    critics = Critics(critic_trunk, config.num_critics)
    adamw = optax.adamw(config.lr, weight_decay=config.weight_decay, mask=decayed)
    adam = optax.adam(config.lr)
    scale, middle = problem.scale()
    target_entropy = config.target_entropy * problem.num_actions

    def norm(stats: Normaliser, obs: Array) -> Array:
        return normalise(stats, obs) if config.normalise else obs

    def draw(params: Tree, obs: Array, key: Array) -> tuple[Array, Array]:
        """An action and its log density, (batch,): Gaussian, tanh, scale, with the change of variables."""
        return draw_from(apply(actor, params, obs), key)

    def draw_from(outputs: tuple[Array, Array], key: Array) -> tuple[Array, Array]:
        mean, raw = outputs
        log_std = low + 0.5 * (high - low) * (jnp.tanh(raw) + 1.0)
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
        return draw(actor_params, norm(stats, obs), key)[0]

    obs_like, action_like = jnp.zeros((1, *problem.obs_shape)), jnp.zeros((1, problem.num_actions))

    def init_actor(key: Array) -> Tree:
        return actor.init(key, obs_like)

    def init_critics(key: Array) -> Tree:
        return critics.init(key, obs_like, action_like)

    def init(key: Array) -> State:
        actor_key, critics_key, key, acting = jax.random.split(key, 4)
        actor_params, critics_params = init_actor(actor_key), init_critics(critics_key)
        log_alpha = jnp.log(jnp.float32(config.alpha))
        return State(
            actor=actor_params,
            actor_opt=adamw.init(actor_params),
            critics=critics_params,
            critics_target=copied(critics_params),
            critics_opt=adamw.init(critics_params),
            log_alpha=log_alpha,
            alpha_opt=adam.init(log_alpha),
            key=key_data(key),
            acting=Acting(key_data(acting), init_normaliser(problem.obs_shape)),
            updates=jnp.int32(0),
            actor_loss=jnp.float32(0),
            entropy=jnp.float32(0),
        )

    def act(params: Tree, acting: Acting, obs: Array, step: Array) -> tuple[Array, Acting]:
        actor_params, _ = params
        acting_key, key = jax.random.split(acting.key)
        stats = observe(acting.norm, obs)
        return sample((actor_params, stats), obs, key), Acting(acting_key, stats)

    def critics_loss(params: Tree, batch: dict[str, Array], target: Array) -> tuple[Array, tuple[Array, Array]]:
        """The sum over critics of the mean of (Q(s, a) - y)^2."""
        values = apply(critics, params, batch["obs"], batch["action"])
        errors = values - target
        return weighted_mean(batch, (errors**2).sum(axis=0)), (values.mean(), jnp.abs(errors).mean(axis=0))

    def actor_losses(
        outputs: tuple[Array, Array], critics_params: Tree, alpha: Array, obs: Array, key: Array
    ) -> tuple[Array, Array]:
        """alpha log pi(a|s) - min_i Q_i(s, a), a ~ pi, (batch,), of the actor's outputs for each s; and log pi."""
        action, log_prob = draw_from(outputs, key)
        values = apply(critics, critics_params, obs, action).min(axis=0)
        return alpha * log_prob - values, log_prob

    def actor_loss(params: Tree, critics_params: Tree, alpha: Array, obs: Array, key: Array) -> tuple[Array, Array]:
        losses, log_prob = actor_losses(apply(actor, params, obs), critics_params, alpha, obs, key)
        return losses.mean(), -log_prob.mean()

    def target(state: State, batch: dict[str, Array], key: Array) -> Array:
        """y = r + gamma (1 - terminated) (min_i Q_i'(s', a') - alpha log pi(a'|s')), a' ~ pi."""
        action, log_prob = draw(state.actor, batch["next_obs"], key)
        values = apply(critics, state.critics_target, batch["next_obs"], action).min(axis=0)
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

    def normalised(state: State, batch: dict[str, Array]) -> dict[str, Array]:
        stats = state.acting.norm
        return {**batch, "obs": norm(stats, batch["obs"]), "next_obs": norm(stats, batch["next_obs"])}

    def update_once(state: State, batch: dict[str, Array]) -> tuple[State, Report]:
        batch = normalised(state, batch)
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

    def losses_of_critics(values: Array, state: State, batch: dict[str, Array], key: Array) -> Array:
        return ((values - target(state, normalised(state, batch), key)) ** 2).sum(axis=0)

    def losses_of_actor(outputs: tuple[Array, Array], state: State, batch: dict[str, Array], key: Array) -> Array:
        obs = norm(state.acting.norm, batch["obs"])
        return actor_losses(outputs, state.critics, jnp.exp(state.log_alpha), obs, key)[0]

    def values_of(params: Tree, state: State, batch: dict[str, Array]) -> Array:
        return apply(critics, params, norm(state.acting.norm, batch["obs"]), batch["action"])

    def outputs_of(params: Tree, state: State, batch: dict[str, Array]) -> tuple[Array, Array]:
        return apply(actor, params, norm(state.acting.norm, batch["obs"]))

    networks = {
        "actor": Network(
            "actor",
            (),
            "actor_opt",
            anatomy(actor),
            init_actor,
            outputs_of,
            losses_of_actor,
            value=lambda outputs, batch: outputs[0],
        ),
        "critics": Network(
            "critics",
            ("critics_target",),
            "critics_opt",
            anatomy(critics),
            init_critics,
            values_of,
            losses_of_critics,
            value=lambda values, batch: values.T,
        ),
    }
    return Agent(init, act, many_updates(update_once), policy, sample, policy_params, networks)
