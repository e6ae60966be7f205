"""use_age_weighted_replay: what it changes of a config, what it refuses, and how Tune searches over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.cql import CQLConfig
from ray.rllib.algorithms.dqn import DQN, DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig

from neoteny import LinearDecay, Window
from neoteny.integrations.rllib import AgeWeightedEpisodeReplayBuffer, use_age_weighted_replay

SWD: dict[str, Any] = {"decay_steps": 80_000, "min_weight": 0.1, "capacity": 1_000_000}
ENVS = {DQNConfig: "CartPole-v1", SACConfig: "Pendulum-v1"}
both = pytest.mark.parametrize("kind", [DQNConfig, SACConfig])


def config_of(kind: type[AlgorithmConfig]) -> AlgorithmConfig:
    return kind().environment(ENVS[kind]).env_runners(num_env_runners=0)


@both
def test_replaces_the_buffer_and_nothing_else(kind: type[AlgorithmConfig]) -> None:
    plain = config_of(kind).training(gamma=0.9, n_step=3)
    before = plain.to_dict()
    aged = use_age_weighted_replay(plain, **SWD)
    assert plain.to_dict() == before
    assert isinstance(aged, kind)
    path = "neoteny.integrations.rllib_buffer.AgeWeightedEpisodeReplayBuffer"
    assert aged.replay_buffer_config == {"type": path, **SWD}
    changed = {name for name, value in aged.to_dict().items() if value != before[name]}
    assert changed == {"replay_buffer_config"}
    aged.validate()


@both
def test_may_be_called_again(kind: type[AlgorithmConfig]) -> None:
    once = use_age_weighted_replay(config_of(kind), **SWD)
    twice = use_age_weighted_replay(once, age_weight=Window(9), capacity=10)
    assert twice.replay_buffer_config["age_weight"] == Window(9)
    assert "decay_steps" not in twice.replay_buffer_config
    assert once.replay_buffer_config["capacity"] == 1_000_000
    assert twice.algo_class is once.algo_class


@both
def test_the_algorithm_makes_the_buffer(kind: type[AlgorithmConfig], cluster: None) -> None:
    algorithm = use_age_weighted_replay(config_of(kind), **SWD).build_algo()
    buffer = algorithm.local_replay_buffer
    assert type(buffer) is AgeWeightedEpisodeReplayBuffer
    assert buffer.capacity == 1_000_000
    assert buffer._rows._sampler.schedule == LinearDecay(80_000, 0.1)
    algorithm.stop()


def test_rllibs_own_dqn_makes_the_buffer_too(cluster: None) -> None:
    """What the string is for: with another algorithm class only the checkpoints are missing."""
    config = use_age_weighted_replay(config_of(DQNConfig), **SWD)
    config.algo_class = DQN
    algorithm = config.build_algo()
    assert type(algorithm.local_replay_buffer) is AgeWeightedEpisodeReplayBuffer
    algorithm.stop()


def test_sac_still_checks_the_rest() -> None:
    config = use_age_weighted_replay(config_of(SACConfig), **SWD)
    config.lr = 0.1
    with pytest.raises(ValueError, match="`lr` is not `None`"):
        config.validate()
    other = use_age_weighted_replay(config_of(SACConfig), **SWD).training(replay_buffer_config={"type": "ReplayBuffer"})
    with pytest.raises(ValueError, match="must be of type"):
        other.validate()


@both
def test_another_buffer_afterwards_is_another_buffer(kind: type[AlgorithmConfig], cluster: None) -> None:
    config = use_age_weighted_replay(config_of(kind), **SWD)
    config.training(replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 7})
    algorithm = config.build_algo()
    assert type(algorithm.local_replay_buffer).__name__ == "EpisodeReplayBuffer"
    algorithm.stop()


REFUSED = {
    "another algorithm": (PPOConfig(), SWD, "takes RLlib's DQNConfig.. or SACConfig.., got PPOConfig of PPO"),
    "an offline one": (CQLConfig(), SWD, "got CQLConfig of CQL"),
    "several agents": (DQNConfig().multi_agent(policies={"a", "b"}), SWD, "for one agent"),
    "the old stack": (
        DQNConfig().api_stack(enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False),
        SWD,
        "new API stack",
    ),
    "a capacity of nothing": (DQNConfig(), {**SWD, "capacity": 0}, "capacity must be a whole number .* got 0"),
    "a weight above 1": (SACConfig(), {**SWD, "min_weight": 2}, r"min_weight must be a number in \[0, 1\], got 2"),
    "both": (DQNConfig(), {**SWD, "age_weight": Window(9)}, "leave out decay_steps and min_weight"),
}


@pytest.mark.parametrize(("config", "options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses(config: AlgorithmConfig, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        use_age_weighted_replay(config, **options)


def test_refuses_what_is_no_schedule() -> None:
    with pytest.raises(TypeError, match="a schedule is an object with weight"):
        use_age_weighted_replay(DQNConfig(), age_weight="swd", capacity=10)
    with pytest.raises(TypeError, match="capacity"):
        use_age_weighted_replay(DQNConfig(), decay_steps=10)


def test_several_agents_are_refused_when_it_is_built(cluster: None) -> None:
    config = use_age_weighted_replay(config_of(DQNConfig), **SWD).multi_agent(policies={"a", "b"})
    with pytest.raises(ValueError, match="for one agent"):
        config.build_algo()


def test_tune_searches_over_the_numbers(cluster: None, tmp_path: Path) -> None:
    """SAC's, whose own class would not take the type; DQN is made the same way."""
    space = {"decay_steps": tune.grid_search([100, 1_000]), "min_weight": tune.choice([0.25]), "capacity": 500}
    config = use_age_weighted_replay(config_of(SACConfig), **space)
    config.training(num_steps_sampled_before_learning_starts=50)
    config.reporting(min_sample_timesteps_per_iteration=100, min_time_s_per_iteration=0)
    run = tune.RunConfig(storage_path=str(tmp_path), stop={"training_iteration": 1}, verbose=0)
    results = tune.Tuner(config.algo_class, param_space=config, run_config=run).fit()
    assert not results.errors
    tried = [result.config["replay_buffer_config"] for result in results]
    assert sorted(each["decay_steps"] for each in tried) == [100, 1_000]
    assert {each["min_weight"] for each in tried} == {0.25}


@both
def test_what_tune_hands_over_is_built(kind: type[AlgorithmConfig], cluster: None) -> None:
    """Tune turns the config into a dictionary, and RLlib the type in it into a class."""
    config = use_age_weighted_replay(config_of(kind), **SWD)
    chosen = config.to_dict()
    chosen["replay_buffer_config"]["min_weight"] = 0.5
    algorithm = config.algo_class(config=chosen)
    assert algorithm.local_replay_buffer._rows._sampler.schedule == LinearDecay(80_000, 0.5)
    algorithm.stop()
    chosen["replay_buffer_config"]["min_weight"] = -1
    with pytest.raises(ValueError, match="min_weight must be"):
        config.algo_class(config=chosen)
