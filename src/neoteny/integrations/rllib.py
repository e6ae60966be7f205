"""RLlib, new API stack: age-weighted replay for DQN and SAC by one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from neoteny.errors import missing_extra
from neoteny.replay.sampling import schedule_of

try:
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
    from ray.rllib.algorithms.dqn.dqn import DQN, DQNConfig
    from ray.rllib.algorithms.sac.sac import SAC, SACConfig
    from ray.tune.search.sample import Domain
except ImportError as error:
    raise ImportError(str(missing_extra(__name__, "rllib", error)), name=error.name) from error

from neoteny.integrations.rllib_buffer import (
    ONE_AGENT,
    REPLAY_STATE,
    AgeWeightedEpisodeReplayBuffer,
    check_capacity,
)

__all__ = [
    "AgeWeightedDQN",
    "AgeWeightedEpisodeReplayBuffer",
    "AgeWeightedSAC",
    "AgeWeightedSACConfig",
    "use_age_weighted_replay",
]
Config = TypeVar("Config", bound=AlgorithmConfig)
BUFFER = f"{AgeWeightedEpisodeReplayBuffer.__module__}.{AgeWeightedEpisodeReplayBuffer.__name__}"
"""By its path, the only form of a type that is not RLlib's own which all of RLlib takes."""


def use_age_weighted_replay(
    config: Config,
    *,
    capacity: Any,
    decay_steps: Any = None,
    min_weight: Any = None,
    age_weight: Any = None,
    decay_fraction: Any = None,
) -> Config:
    """A copy of `config`, a DQNConfig or SACConfig, whose algorithm replays by age: build that, or give it to Tune.

    capacity: transitions held. decay_steps, min_weight: SWD's T and w_min; T may be "auto", a tenth of what is stored,
    or another decay_fraction of it. age_weight: any other schedule instead.
    Each may be a Tune search space. Replaces the replay buffer's whole configuration, priorities included.
    """
    ours = {DQN: AgeWeightedDQN, SAC: AgeWeightedSAC}
    algorithm = ours.get(config.algo_class, config.algo_class)
    if not isinstance(config, (DQNConfig, SACConfig)) or algorithm not in ours.values():
        of = getattr(config.algo_class, "__name__", None)
        raise ValueError(
            f"age-weighted replay takes RLlib's DQNConfig() or SACConfig(), got {type(config).__name__} of {of}"
        )
    if config.is_multi_agent:
        raise ValueError(ONE_AGENT)
    if not config.enable_env_runner_and_connector_v2:
        raise ValueError("age-weighted replay needs RLlib's new API stack: leave out config.api_stack(...=False)")
    numbers = {
        "decay_steps": decay_steps,
        "min_weight": min_weight,
        "age_weight": age_weight,
        "decay_fraction": decay_fraction,
    }
    options = {name: value for name, value in numbers.items() if value is not None}
    # What is wrong is said now and not on some node of a cluster; what Tune will choose, only when it has.
    if not any(map(_is_searched, options.values())):
        schedule_of(age_weight, decay_steps, min_weight, "age_weight", decay_fraction)
    if not _is_searched(capacity):
        check_capacity(capacity)
    copied = config.copy(copy_frozen=False)
    if type(copied) is SACConfig:
        copied.__class__ = AgeWeightedSACConfig  # which has no fields of its own
    copied.algo_class = algorithm
    copied.replay_buffer_config = {"type": BUFFER, "capacity": capacity, **options}
    return copied


class KeepsReplay(Algorithm):
    """What an algorithm of RLlib's is given: our buffer, which its checkpoints carry when asked to."""

    def _create_local_replay_buffer_if_necessary(self, config: AlgorithmConfig) -> Any:
        if not _is_ours(config):
            return super()._create_local_replay_buffer_if_necessary(config)
        if config.is_multi_agent:
            raise ValueError(ONE_AGENT)
        # Tune has made a class of the type, in which RLlib's own function would look for a substring.
        options = {name: value for name, value in config.replay_buffer_config.items() if name != "type"}
        options["metrics_num_episodes_for_smoothing"] = config.metrics_num_episodes_for_smoothing
        return AgeWeightedEpisodeReplayBuffer(**options)

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state, and the buffer's if store_buffer_in_checkpoints is set, which RLlib's new stack ignores."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        if self.config.store_buffer_in_checkpoints and self._check_component(REPLAY_STATE, components, not_components):
            state[REPLAY_STATE] = self.local_replay_buffer.get_state()
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take the state over, the buffer's too if it is there."""
        super().set_state(state)
        if REPLAY_STATE in state:
            self.local_replay_buffer.set_state(state[REPLAY_STATE])


class AgeWeightedDQN(KeepsReplay, DQN):
    """DQN with age-weighted replay; ``use_age_weighted_replay`` chooses it."""


class AgeWeightedSACConfig(SACConfig):
    """SACConfig, but for its check of the buffer's name against four of RLlib's own."""

    replay_buffer_config: dict[str, Any]

    def validate(self) -> None:
        """Check everything else."""
        ours = self.replay_buffer_config
        if _is_ours(self):
            self.replay_buffer_config = {**ours, "type": "EpisodeReplayBuffer"}
        try:
            super().validate()
        finally:
            self.replay_buffer_config = ours


class AgeWeightedSAC(KeepsReplay, SAC):
    """SAC with age-weighted replay; ``use_age_weighted_replay`` chooses it."""

    @classmethod
    def get_default_config(cls) -> AgeWeightedSACConfig:
        """The configuration that a dictionary of Tune's is read into."""
        return AgeWeightedSACConfig()


def _is_ours(config: AlgorithmConfig) -> bool:
    return config.replay_buffer_config["type"] in (BUFFER, AgeWeightedEpisodeReplayBuffer)


def _is_searched(value: Any) -> bool:
    return isinstance(value, Domain) or (isinstance(value, dict) and "grid_search" in value)
