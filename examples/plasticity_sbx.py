"""SBX's SAC, in JAX and Flax: how able to learn its networks are, measured while it trains.

    pip install '.[train]' sbx-rl   # in a clone of Neoteny
    python examples/plasticity_sbx.py --steps 3000 --every 500

Measuring draws nothing from the generators of training: the run is the same as without it.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from sbx import SAC
from sbx.common.policies import ContinuousCritic
from stable_baselines3.common.callbacks import BaseCallback

from neoteny.plasticity import (
    dormant_ratio,
    dormant_score,
    gram_metrics,
    grama_inactive_ratio,
    grama_score,
    l2_norm,
    rank_metrics,
)
from neoteny.plasticity.flax import Collected, activations, collect, modules_of, ntk_gram

SAMPLES = 128
GRAMA_TAU, DORMANT_TAU = 0.01, 0.025
COLUMNS = ["grama_inactive_ratio", "dormant_ratio", "gradient_l2", "effective_rank", "ntk_effective_rank"]
LAYERS = [("Dense_0",), ("Dense_1",), ("Dense_2",)]
"""Of a critic and of the actor alike: two hidden layers, and one that reads the second (of the actor, the mean)."""
Measures = dict[str, float]


def measure(losses: Collected, outputs: Collected, modules: Any) -> Measures:
    """One network; `modules` are its layers."""
    hidden = [activations(losses.layers, *pair) for pair in pairwise(LAYERS)]
    gradients = jax.tree.map(lambda gradient: gradient / len(losses.values), losses.gradients)  # of the mean loss
    scores = [grama_score(losses.layers[path].deltas) for path in LAYERS[:-1]]
    measures = [
        grama_inactive_ratio(scores, GRAMA_TAU),
        dormant_ratio([dormant_score(h) for h in hidden], DORMANT_TAU),
        l2_norm(gradients),
        rank_metrics(hidden[-1]).effective_rank,
        gram_metrics(ntk_gram(outputs.layers, modules)).effective_rank,
    ]
    return dict(zip(COLUMNS, map(float, measures), strict=True))


def measure_sac(model: SAC, seed: int) -> dict[str, Measures]:
    """Both critics and the actor, on transitions from the replay buffer, by the losses SAC trains them with."""
    buffer: Any = model.replay_buffer
    batch = buffer._get_samples(np.random.default_rng(seed).integers(buffer.size(), size=SAMPLES))
    obs, actions, next_obs = (np.asarray(x) for x in (batch.observations, batch.actions, batch.next_observations))
    rewards, dones = np.asarray(batch.rewards)[:, 0], np.asarray(batch.dones)[:, 0]
    actor, critics = model.policy.actor_state, model.policy.qf_state
    entropy_weight = model.ent_coef_state.apply_fn({"params": model.ent_coef_state.params})
    ahead, now = jax.random.split(jax.random.key(seed))

    policy = actor.apply_fn(actor.params, next_obs)
    next_actions = policy.sample(seed=ahead)
    values = critics.apply_fn(critics.target_params, next_obs, next_actions).min(axis=0)[:, 0]
    target = rewards + (1 - dones) * model.gamma * (values - entropy_weight * policy.log_prob(next_actions))

    def actor_loss(policy: Any) -> jax.Array:
        action = policy.sample(seed=now)
        value = critics.apply_fn(critics.params, obs, action).min(axis=0)[:, 0]
        return entropy_weight * policy.log_prob(action) - value

    found = {}
    one = ContinuousCritic(net_arch=model.policy.qf.net_arch, activation_fn=model.policy.qf.activation_fn)
    (stacked,) = critics.params["params"].values()  # the critics' weights are stacked: each is measured alone
    for number in range(model.policy.qf.n_critics):
        params = {"params": jax.tree.map(lambda weights, number=number: weights[number], stacked)}

        def value(params: Any) -> jax.Array:
            return one.apply(params, obs, actions)[:, 0]

        losses = collect(params, value, lambda q: 0.5 * (q - target) ** 2)
        outputs = collect(params, value, lambda q: q)
        found[f"critic {number + 1}"] = measure(losses, outputs, modules_of(partial(value, params)))

    def mean_action(params: Any) -> jax.Array:
        return actor.apply_fn(params, obs).mode()

    losses = collect(actor.params, lambda params: actor.apply_fn(params, obs), actor_loss)
    outputs = collect(actor.params, mean_action, lambda a: a.sum(axis=1))
    found["actor"] = measure(losses, outputs, modules_of(partial(mean_action, actor.params)))
    return found


class Plasticity(BaseCallback):
    """Measures and prints a line for each network, every so many steps."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = every
        self.rows: list[tuple[int, str, Measures]] = []

    def _on_step(self) -> bool:
        if self.n_calls % self.every == 0:
            for network, measures in measure_sac(self.model, seed=self.n_calls).items():
                self.rows.append((self.n_calls, network, measures))
                numbers = "".join(f"{measures[name]:>{len(name) + 2}.3g}" for name in COLUMNS)
                print(f"{self.n_calls:>6}  {network:<8}{numbers}")
        return True


def main(steps: int = 3000, every: int = 500) -> list[tuple[int, str, Measures]]:
    """Train on Pendulum and print a table; its rows are returned too."""
    model = SAC("MlpPolicy", "Pendulum-v1", seed=0)
    print(f"{'step':>6}  {'network':<8}" + "".join(f"  {name}" for name in COLUMNS))
    callback = Plasticity(every)
    model.learn(steps, callback=callback)
    return callback.rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--every", type=int, default=500)
    main(**vars(parser.parse_args()))
