"""RLlib's DQN learns CartPole with age-weighted replay, on a Ray cluster of this machine: about a minute.

    pip install '.[rllib]'   # in a clone of Neoteny
    python examples/rllib_dqn.py --steps 10000

On a cluster of many machines nothing changes but --env-runners.
"""

from __future__ import annotations

import argparse

import ray
from ray.rllib.algorithms.dqn import DQNConfig

from neoteny.integrations.rllib import use_age_weighted_replay


def main(argv: list[str] | None = None) -> float:
    """Train, and return the mean return of the last episodes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000, help="transitions to train for (10000)")
    parser.add_argument("--env-runners", type=int, default=0, help="processes that run environments; 0: this one (0)")
    parser.add_argument("--decay-steps", type=float, default=10_000, help="T, in transitions (10000)")
    parser.add_argument("--min-weight", type=float, default=0.1, help="what old transitions keep (0.1)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    ray.init(include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)

    config = DQNConfig().environment("CartPole-v1").debugging(seed=options.seed, log_level="ERROR")
    config.env_runners(num_env_runners=options.env_runners, num_envs_per_env_runner=4, rollout_fragment_length=1)
    config.training(lr=1e-3, target_network_update_freq=400, epsilon=[[0, 1.0], [4_000, 0.05]])
    config.training(num_steps_sampled_before_learning_starts=500)
    config.reporting(min_sample_timesteps_per_iteration=1_000, min_time_s_per_iteration=0)
    config = use_age_weighted_replay(
        config, decay_steps=options.decay_steps, min_weight=options.min_weight, capacity=50_000
    )

    algorithm = config.build_algo()
    buffer, mean_return = algorithm.local_replay_buffer, float("nan")
    while buffer.get_added_timesteps() < options.steps:
        mean_return = algorithm.train()["env_runners"].get("episode_return_mean", mean_return)
        print(f"{buffer.get_added_timesteps():>7,} steps   mean return {mean_return:6.1f}", flush=True)
    algorithm.stop()
    return mean_return


if __name__ == "__main__":
    main()
