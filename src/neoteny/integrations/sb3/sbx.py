"""A pass through each network of SBX's SAC, TD3, DDPG and DQN, by the loss that it is trained with. In Flax."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces
from jax import Array
from sbx import DQN, SAC, TD3
from sbx.common.policies import ContinuousCritic, VectorCritic

from neoteny.integrations.sb3.passes import Pass
from neoteny.plasticity.flax import activations, collect

Tree = Any


def check(model: Any) -> None:
    """Refuse an agent whose loss is not known here."""
    if isinstance(model.observation_space, spaces.Dict):
        raise TypeError("no measures for SBX with Dict observations: SB3's own agents have them")
    if not isinstance(model, DQN) and not (isinstance(model, (SAC, TD3)) and isinstance(model.policy.qf, VectorCritic)):
        raise TypeError(
            f"no measures for {type(model).__name__} with {type(model.policy).__name__}: "
            "SAC, TD3, DDPG and DQN of SB3 and SBX have them, with MlpPolicy"
        )


def passes(model: Any, batch: Any, seed: int) -> dict[str, Pass]:
    """Every network of `model` on `batch`. SBX's own key is not used."""
    check(model)
    obs, action, after, rewards, dones = (
        np.asarray(part)
        for part in (batch.observations, batch.actions, batch.next_observations, batch.rewards, batch.dones)
    )
    rewards, dones = rewards[:, 0], dones[:, 0]
    discounts = model.gamma if batch.discounts is None else np.asarray(batch.discounts)[:, 0]

    def target(values: Array) -> Array:
        return rewards + (1 - dones) * discounts * values

    if isinstance(model, DQN):
        state = model.policy.qf_state
        wanted = target(state.apply_fn(state.target_params, after).max(axis=1))

        def huber(values: Array) -> Array:
            taken = jnp.take_along_axis(values, action.astype(np.int64), axis=1)[:, 0]
            return optax.huber_loss(taken, wanted)

        return {"critic": _pass(state.params, lambda params: state.apply_fn(params, obs), huber, heads=1)}

    actor, critics, whole = model.policy.actor_state, model.policy.qf_state, model.policy.qf
    ahead, now, dropout = jax.random.split(jax.random.key(seed), 3)

    def least(params: Tree, obs: Any, action: Array) -> Array:
        return critics.apply_fn(params, obs, action, rngs={"dropout": dropout}).min(axis=0)[:, 0]

    if isinstance(model, SAC):
        alpha = model.ent_coef_state.apply_fn({"params": model.ent_coef_state.params})
        policy = actor.apply_fn(actor.params, after)
        next_action = policy.sample(seed=ahead)
        values = least(critics.target_params, after, next_action) - alpha * policy.log_prob(next_action)
    else:
        limit = model.target_noise_clip
        noise = jnp.clip(jax.random.normal(ahead, action.shape) * model.target_policy_noise, -limit, limit)
        next_action = jnp.clip(actor.apply_fn(actor.target_params, after) + noise, -1, 1)
        values = least(critics.target_params, after, next_action)
    wanted = target(values)

    def worth(acted: Any) -> Array:
        if not isinstance(model, SAC):
            return -least(critics.params, obs, acted)
        drawn = acted.sample(seed=now)
        return alpha * acted.log_prob(drawn) - least(critics.params, obs, drawn)

    # The critics' weights are stacked, and mapped over by Flax: each is measured alone, then all are taken together.
    one = ContinuousCritic(whole.net_arch, whole.use_layer_norm, None, whole.activation_fn)
    (stacked,) = critics.params["params"].values()
    each = [
        _pass(
            {"params": jax.tree.map(lambda leaf, index=index: leaf[index], stacked)},
            lambda params: one.apply(params, obs, action)[:, 0],
            lambda q: 0.5 * (q - wanted) ** 2,
            heads=1,
        )
        for index in range(whole.n_critics)
    ]
    return {
        "critic": Pass(
            [gradient for single in each for gradient in single.gradients],
            {f"{index}/{name}": delta for index, single in enumerate(each) for name, delta in single.deltas.items()},
            {f"{index}/{name}": read for index, single in enumerate(each) for name, read in single.activations.items()},
        ),
        "actor": _pass(
            actor.params, lambda params: actor.apply_fn(params, obs), worth, heads=2 if isinstance(model, SAC) else 1
        ),
    }


def _pass(params: Tree, forward: Any, loss: Any, heads: int) -> Pass:
    """heads: how many of the last layers read the last hidden one."""
    collected = collect(params, forward, loss)
    layers = {path: layer for path, layer in collected.layers.items() if "LayerNorm" not in path[-1]}
    paths = list(layers)
    pairs = list(pairwise(paths[: len(paths) - heads + 1]))
    count = len(collected.values)
    return Pass(
        [np.asarray(gradient) / count for gradient in jax.tree.leaves(collected.gradients)],
        {"/".join(layer): np.asarray(layers[layer].deltas) for layer, _ in pairs},
        {"/".join(layer): np.asarray(activations(layers, layer, reader)) for layer, reader in pairs},
    )
