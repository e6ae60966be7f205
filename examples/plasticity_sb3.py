"""Stable-Baselines3's SAC, in torch: how able to learn its networks are, measured while it trains.

    pip install '.[sb3]'   # in a clone of Neoteny
    python examples/plasticity_sb3.py --steps 3000 --every 500

Measuring draws nothing from the generators of training: the run is the same as without it.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor

from neoteny.plasticity import (
    dormant_ratio,
    dormant_score,
    gram_metrics,
    grama_inactive_ratio,
    grama_score,
    l2_norm,
    rank_metrics,
)
from neoteny.plasticity.torch import Collected, activations, collect, ntk_gram

SAMPLES = 128
GRAMA_TAU, DORMANT_TAU = 0.01, 0.025
COLUMNS = ["grama_inactive_ratio", "dormant_ratio", "gradient_l2", "effective_rank", "ntk_effective_rank"]
Measures = dict[str, float]


def measure(module: torch.nn.Module, losses: Collected, outputs: Collected, layers: list[str]) -> Measures:
    """One network, of which `layers` read each other from first to last, the last being its head."""
    hidden = [activations(losses.layers, *pair) for pair in pairwise(layers)]
    gradients = [gradient / len(losses.values) for gradient in losses.gradients.values()]  # of the mean loss
    scores = [grama_score(losses.layers[name].deltas) for name in layers[:-1]]
    measures = [
        grama_inactive_ratio(scores, GRAMA_TAU),
        dormant_ratio([dormant_score(h) for h in hidden], DORMANT_TAU),
        l2_norm(gradients),
        rank_metrics(hidden[-1]).effective_rank,
        gram_metrics(ntk_gram(outputs.layers, module)).effective_rank,
    ]
    return dict(zip(COLUMNS, map(float, measures), strict=True))


def measure_sac(model: SAC, seed: int) -> dict[str, Measures]:
    """Both critics and the actor, on transitions from the replay buffer, by the losses SAC trains them with."""
    buffer: Any = model.replay_buffer
    batch = buffer._get_samples(np.random.default_rng(seed).integers(buffer.size(), size=SAMPLES))
    entropy_weight = model.log_ent_coef.exp().detach()
    actor, critic = model.actor, model.critic

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        with torch.no_grad():
            actions, log_prob = actor.action_log_prob(batch.next_observations)
            values = torch.cat(model.critic_target(batch.next_observations, actions), dim=1).min(dim=1).values
            values = values - entropy_weight * log_prob
            target = batch.rewards[:, 0] + (1 - batch.dones[:, 0]) * model.gamma * values

        def actor_loss(drawn: tuple[Tensor, Tensor]) -> Tensor:
            action, log_prob = drawn
            return entropy_weight * log_prob - torch.cat(critic(batch.observations, action), dim=1).min(dim=1).values

        found = {}
        for number, network in enumerate(critic.q_networks, start=1):

            def value(network: torch.nn.Module = network) -> Tensor:
                return network(torch.cat([batch.observations, batch.actions], dim=1))[:, 0]

            losses = collect(network, value, lambda q: 0.5 * (q - target) ** 2)
            outputs = collect(network, value, lambda q: q)
            found[f"critic {number}"] = measure(network, losses, outputs, ["0", "2", "4"])

        losses = collect(actor, lambda: actor.action_log_prob(batch.observations), actor_loss)
        outputs = collect(actor, lambda: actor(batch.observations, deterministic=True), lambda a: a.sum(dim=1))
        found["actor"] = measure(actor, losses, outputs, ["latent_pi.0", "latent_pi.2", "mu"])
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
    torch.set_num_threads(
        1
    )  # the networks are small: on a busy machine, threads that wait for each other cost far more
    model = SAC("MlpPolicy", "Pendulum-v1", seed=0, device="cpu")
    print(f"{'step':>6}  {'network':<8}" + "".join(f"  {name}" for name in COLUMNS))
    callback = Plasticity(every)
    model.learn(steps, callback=callback)
    return callback.rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--every", type=int, default=500)
    main(**vars(parser.parse_args()))
