"""What drawing and gathering a batch takes by each replay, alone, from a full buffer of a task's rows."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np

from neoteny import envs
from neoteny.bench.contenders import Task
from neoteny.bench.timing import alternate
from neoteny.replay.buffer import ReplayBuffer
from neoteny.replay.registry import make_sampler
from neoteny.replay.storage import transition_fields


def sampling(task: Task, rounds: int = 101) -> dict[str, float]:
    """Seconds of a sample by uniform, swd and per, whose priorities are updated with it."""
    vector_env = envs.make(task.env)
    observation, action = vector_env.single_observation_space, vector_env.single_action_space
    vector_env.close()
    assert isinstance(observation, gym.spaces.Box)
    assert isinstance(action, gym.spaces.Box)
    fields = transition_fields(observation.shape, action.shape)
    buffer = ReplayBuffer(task.capacity, fields, make_sampler("uniform", "exact", 1, {}), seed=0)
    fill(buffer, observation.shape[0], action.shape[0])
    batch = task.agent.batch_size
    by = {
        replay: buffer.with_sampler(make_sampler(replay, "exact", 100_000, {}), seed=0)
        for replay in ("uniform", "swd", "per")
    }
    errors = np.abs(np.random.default_rng(0).normal(size=batch))

    def prioritised() -> None:
        by["per"].update_priorities(by["per"].sample(batch), errors)

    taken = alternate(
        {"uniform": lambda: by["uniform"].sample(batch), "swd": lambda: by["swd"].sample(batch), "per": prioritised},
        rounds,
    )
    return {name: microseconds / 1e6 for name, microseconds in taken.items()}


def fill(buffer: ReplayBuffer, obs: int, action: int) -> None:
    """Fill a buffer with transitions of random numbers."""
    rng = np.random.default_rng(0)
    chunk = math.gcd(buffer.capacity, 20_000)
    rows = rng.random((chunk, obs), np.float32)
    for _ in range(buffer.capacity // chunk):
        buffer.extend(
            obs=rows,
            action=np.zeros((chunk, action), np.float32),
            reward=np.zeros(chunk, np.float32),
            next_obs=rows,
            terminated=np.zeros(chunk, bool),
            truncated=np.zeros(chunk, bool),
        )
