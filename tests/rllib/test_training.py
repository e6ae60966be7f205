"""RLlib's DQN and SAC with our buffer, on a real cluster: they learn, resume, and follow their seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.sac import SACConfig

from neoteny.integrations.rllib import use_age_weighted_replay
from ticking import draw

pytestmark = pytest.mark.usefixtures("cluster")
SWD: dict[str, Any] = {"decay_steps": 10_000, "min_weight": 0.1, "capacity": 50_000}


def dqn(num_envs: int = 4) -> DQNConfig:
    config = DQNConfig().environment("CartPole-v1").debugging(seed=0, log_level="ERROR")
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs, rollout_fragment_length=1)
    config.training(lr=1e-3, target_network_update_freq=400, epsilon=[[0, 1.0], [4_000, 0.05]])
    config.training(num_steps_sampled_before_learning_starts=500)
    return config.reporting(min_sample_timesteps_per_iteration=500, min_time_s_per_iteration=0)


def sac() -> SACConfig:
    config = SACConfig().environment("Pendulum-v1").debugging(seed=0, log_level="ERROR")
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=2, rollout_fragment_length=3)
    config.training(num_steps_sampled_before_learning_starts=500, train_batch_size_per_learner=128, n_step=3)
    config.training(gamma=0.95, actor_lr=7e-4, critic_lr=2e-3, alpha_lr=1e-3, tau=0.01)
    config.rl_module(model_config={"fcnet_hiddens": [128, 128], "fcnet_activation": "relu", "head_fcnet_hiddens": []})
    config.reporting(metrics_num_episodes_for_smoothing=4)
    return config.reporting(min_sample_timesteps_per_iteration=400, min_time_s_per_iteration=0)


def best_return(config: AlgorithmConfig, enough: float, steps: int) -> float:
    algorithm, best = config.build_algo(), -np.inf
    while best < enough and algorithm.local_replay_buffer.get_added_timesteps() < steps:
        best = max(best, algorithm.train()["env_runners"].get("episode_return_mean", -np.inf))
    algorithm.stop()
    return best


def test_dqn_learns_cartpole() -> None:
    assert best_return(use_age_weighted_replay(dqn(), **SWD), 120, 10_000) >= 120


def test_sac_learns_pendulum() -> None:
    assert best_return(use_age_weighted_replay(sac(), **SWD), -600, 16_000) >= -600


def test_n_step_and_several_env_runners() -> None:
    """Fragments of two processes with two environments each; the newest vector step is of all four."""
    config = use_age_weighted_replay(dqn(2).training(n_step=3), **{**SWD, "capacity": 600})
    config.env_runners(num_env_runners=2, rollout_fragment_length=3).training(
        num_steps_sampled_before_learning_starts=100
    )
    algorithm = config.build_algo()
    for _ in range(3):
        result = algorithm.train()
    buffer = algorithm.local_replay_buffer
    assert result["learners"]["default_policy"]["num_module_steps_trained_lifetime"] > 0
    assert buffer._lanes == 4
    assert buffer.get_num_episodes_evicted() > 0
    assert len(buffer._rows) == len(buffer._indices) == len(buffer) <= 600
    assert (np.diff(buffer._rows.stamps) >= 0).all()
    assert np.bincount(buffer._rows.stamps).max() == 4
    held = {(index, time) for index, time in buffer._indices}
    assert held == {
        (index + buffer._num_episodes_evicted, time)
        for index, each in enumerate(buffer.episodes)
        for time in range(len(each))
    }
    algorithm.stop()


@pytest.mark.parametrize("make", [dqn, sac])
def test_the_seed_fixes_the_draws(make: Any) -> None:
    def drawn(seed: int) -> list[Any]:
        config = use_age_weighted_replay(make(), **SWD).debugging(seed=seed)
        config.reporting(min_sample_timesteps_per_iteration=100).training(num_steps_sampled_before_learning_starts=50)
        algorithm = config.build_algo()
        algorithm.train()
        batch = algorithm.local_replay_buffer.sample(64, n_step=1, sample_episodes=True)
        algorithm.stop()
        return [np.asarray(each.get_observations(0)).tolist() for each in batch]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@pytest.mark.parametrize("make", [dqn, sac])
def test_a_checkpoint_carries_the_buffer_when_asked(make: Any, tmp_path: Path) -> None:
    config = use_age_weighted_replay(make(), **SWD).training(store_buffer_in_checkpoints=True)
    config.reporting(min_sample_timesteps_per_iteration=100).training(num_steps_sampled_before_learning_starts=50)
    first = config.build_algo()
    first.train()
    first.save_to_path(tmp_path / "kept")
    second = Algorithm.from_checkpoint(str(tmp_path / "kept"))
    assert type(second) is type(first)
    assert len(second.local_replay_buffer) == len(first.local_replay_buffer) >= 100
    assert draw(second.local_replay_buffer, 64) == draw(first.local_replay_buffer, 64)
    second.train()
    assert len(second.local_replay_buffer) >= 200
    for algorithm in (first, second):
        algorithm.stop()


def test_a_checkpoint_is_without_it_when_not(tmp_path: Path) -> None:
    config = use_age_weighted_replay(dqn(), **SWD).reporting(min_sample_timesteps_per_iteration=100)
    first = config.build_algo()
    first.train()
    first.save_to_path(tmp_path / "not")
    second = Algorithm.from_checkpoint(str(tmp_path / "not"))
    assert len(second.local_replay_buffer) == 0
    for algorithm in (first, second):
        algorithm.stop()
