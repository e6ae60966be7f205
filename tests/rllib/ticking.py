"""Environments that show real stamps, run by RLlib's own env runner, and the law that these stamps ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer


class Ticking(gym.Env):
    """An environment that shows its number and how often it was stepped or reset; episodes end after 6 to 20 steps.

    All environments of one vector are stepped or reset together, so that equal ticks are one vector step.
    """

    observation_space = gym.spaces.Box(0, 1e9, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config: dict[str, Any]) -> None:
        self.number = next(config["numbers"])
        self.tick = -1
        self.rng = np.random.default_rng(self.number)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.left = int(self.rng.integers(6, 21))
        return self._look(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.left -= 1
        return self._look(), float(self.tick), self.left == 0, False, {}

    def _look(self) -> np.ndarray:
        self.tick += 1
        return np.array([self.number, self.tick], np.float64)


class Stamped:
    """A buffer of RLlib's, filled by its env runner with transitions that know when they were made."""

    def __init__(self, buffer: EpisodeReplayBuffer, *, num_envs: int, fragment: int) -> None:
        config = DQNConfig().environment(Ticking, env_config={"numbers": iter(range(num_envs))})
        config.env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs, rollout_fragment_length=fragment)
        self.runner = SingleAgentEnvRunner(config=config.copy())
        self.buffer = buffer
        self.all_ticks: list[float] = []
        """The tick of every transition ever made."""

    def fill(self, transitions: int) -> Stamped:
        while len(self.all_ticks) < transitions:
            fragments = self.runner.sample(random_actions=True)
            self.buffer.add(fragments)
            self.all_ticks += [obs[1] for fragment in fragments for obs in fragment.get_observations()[:-1]]
        return self

    def held(self) -> list[tuple[int, int]]:
        """The number and the tick of every transition in the buffer, from its episodes."""
        return [key(obs) for episode in self.buffer.episodes for obs in episode.get_observations()[:-1]]

    def algorithm_1(self, weight: Callable[[int], float]) -> np.ndarray:
        """SWD (ICLR 2026), Algorithm 1: the probability of each held transition, from when it was really made."""
        before = {tick: sum(other < tick for other in self.all_ticks) for tick in set(self.all_ticks)}
        now = before[max(self.all_ticks)] + 1
        weights = np.array([weight(now - before[tick]) for _, tick in self.held()])
        return weights / weights.sum()

    def counts(self, drawn: list[tuple[int, int]]) -> np.ndarray:
        place = {each: i for i, each in enumerate(self.held())}
        return np.bincount([place[each] for each in drawn], minlength=len(place))


def key(obs: np.ndarray) -> tuple[int, int]:
    return int(obs[0]), int(obs[1])


def draw(buffer: EpisodeReplayBuffer, times: int, **options: Any) -> list[tuple[int, int]]:
    """The first observations of what the buffer's own sample returns, as the algorithm calls it."""
    episodes = buffer.sample(num_items=times, sample_episodes=True, **{"n_step": 1, "gamma": 0.9, **options})
    return [key(episode.get_observations(0)) for episode in episodes]


def episode(name: str, length: int, *, start: int = 0, terminated: bool = False) -> SingleAgentEpisode:
    """A fragment whose observations, actions and rewards are its time steps."""
    return SingleAgentEpisode(
        id_=name,
        observations=[np.array([0.0, start + i]) for i in range(length + 1)],
        actions=list(range(start, start + length)),
        rewards=[float(start + i) for i in range(length)],
        terminated=terminated,
        t_started=start,
        len_lookback_buffer=0,
    )
