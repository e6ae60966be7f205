"""Stable-Baselines3's DQN on CartPole with prioritised replay, alone or times age weights: one changed class.

pip install '.[sb3]'   # in a clone of Neoteny
python examples/sb3_per.py --steps 20000 --decay-steps 5000
"""

from __future__ import annotations

import argparse

import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from neoteny.integrations.sb3 import PrioritizedDQN


def main(steps: int = 20_000, decay_steps: int | None = None, seed: int = 0) -> float:
    """Train, print and return the mean return of 20 episodes of the greedy policy."""
    torch.set_num_threads(1)  # the network is small
    replay: dict[str, float] = {"alpha": 0.6, "beta": 0.4, "beta_step": 0.6 / steps}  # beta is 1 in the end
    if decay_steps:
        replay["decay_steps"] = decay_steps
    model = PrioritizedDQN(  # was: DQN
        "MlpPolicy",
        make_vec_env("CartPole-v1", 1, seed=seed),
        learning_rate=2.3e-3,
        buffer_size=100_000,
        learning_starts=1_000,
        batch_size=64,
        train_freq=256,
        gradient_steps=128,
        target_update_interval=10,
        exploration_fraction=0.16,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256]},
        replay_buffer_kwargs=replay,
        seed=seed,
        device="cpu",
    )
    model.learn(steps)
    mean, deviation = evaluate_policy(model, make_vec_env("CartPole-v1", 1, seed=100), 20, warn=False)
    print(f"return of 20 episodes after {steps:,} steps: {mean:.0f}, standard deviation {deviation:.0f}")
    return float(mean)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--decay-steps", type=int, help="T of age weights max(0.1, 1 - age / T) to multiply with")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
