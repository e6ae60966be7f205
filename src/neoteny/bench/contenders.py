"""One contender of a race, in a process of its own: trains by its library's own entry point, when it is told to.

``python -m neoteny.bench.contenders NAME TASK SECONDS``: each line on the standard input is a turn of about so many
seconds, answered by a line with the steps that were made and the seconds that they took. The first turn warms up.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import gymnasium as gym

from neoteny.agents.configs import AgentConfig, DDQNConfig, SACConfig, TD3Config

STARTS = 1_000
"""Steps before the first update, for all alike."""
WARM = 2_200
"""Steps that are made before anything is timed: by then all is compiled, and plasticity was measured twice."""
ENDLESS = 1_000_000_000


@dataclass(frozen=True)
class Task:
    """What is trained on: the same environment, networks and batch for every contender."""

    env: str
    agent: AgentConfig
    capacity: int = 1_000_000
    warm: int = WARM


TASKS = {
    "hopper": Task("Hopper-v5", TD3Config(learning_starts=STARTS)),
    "humanoid": Task("Humanoid-v5", TD3Config(learning_starts=STARTS)),
    "simba": Task("dm_control/humanoid-run-v0", SACConfig(learning_starts=STARTS), warm=STARTS + 20),
    "breakout": Task("ALE/Breakout-v5", DDQNConfig(learning_starts=STARTS), capacity=100_000, warm=STARTS + 100),
}


class Paced(gym.Wrapper):
    """Makes its steps in turns: after each tells how long it took, and waits for the next."""

    def __init__(self, env: gym.Env, warm: int, seconds: float, tell: TextIO) -> None:
        super().__init__(env)
        self._seconds, self._tell = seconds, tell
        self._steps, self._warm = 0, warm
        self._began = time.perf_counter()

    def step(self, action: Any) -> Any:
        """As the environment's own; at the end of a turn waits first."""
        taken = time.perf_counter() - self._began
        if self._steps >= self._warm and taken >= self._seconds:
            self._tell.write(f"{self._steps} {taken}\n")
            self._tell.flush()
            if not sys.stdin.readline():
                os._exit(0)  # the race is over; libraries would take their time to end
            self._steps, self._warm = 0, 0
            self._began = time.perf_counter()
        self._steps += 1
        return super().step(action)


Pace = Callable[[gym.Env], gym.Env]


def neoteny(task: Task, pace: Pace) -> None:
    """As ``neoteny train`` with its defaults, probes, logs and checkpoints with them; only without evaluations."""
    from neoteny import envs
    from neoteny.settings.config import ReplayConfig, TrainConfig
    from neoteny.training.start import train

    config = TrainConfig(
        task.env,
        task.agent,
        replay=ReplayConfig(capacity=task.capacity),
        total_timesteps=ENDLESS,
        eval_every=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        train(config, out=Path(folder) / "run", make_env=lambda: pace(envs.make(task.env).envs[0]))


def sb3(task: Task, pace: Pace) -> None:
    """Stable-Baselines3, with its own defaults but for the task's networks and batch."""
    import stable_baselines3

    if isinstance(task.agent, DDQNConfig):
        model: Any = stable_baselines3.DQN("CnnPolicy", _sb3_atari(task, pace), **_settings(task))
    else:
        policy = {"net_arch": list(_td3(task).widths)}
        model = stable_baselines3.TD3(
            "MlpPolicy", pace(gym.make(task.env)), policy_kwargs=policy, **_settings(task), **_noise(task)
        )
    model.learn(ENDLESS)


def sbx(task: Task, pace: Pace) -> None:
    """SBX, likewise."""
    import sbx

    policy = {"net_arch": list(_td3(task).widths)}
    model = sbx.TD3("MlpPolicy", pace(gym.make(task.env)), policy_kwargs=policy, **_settings(task), **_noise(task))
    model.learn(ENDLESS)


def _settings(task: Task) -> dict[str, Any]:
    agent = task.agent
    return {
        "learning_starts": agent.learning_starts,
        "batch_size": agent.batch_size,
        "buffer_size": task.capacity,
        "train_freq": round(1 / agent.utd),
        "gradient_steps": 1,
        "learning_rate": agent.lr if isinstance(agent, DDQNConfig) else _td3(task).critic_lr,
    }


def _td3(task: Task) -> TD3Config:
    assert isinstance(task.agent, TD3Config), f"there is no peer for {task.env} here"
    return task.agent


def _noise(task: Task) -> dict[str, Any]:
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise

    size = gym.make(task.env).action_space.shape or ()
    return {"action_noise": NormalActionNoise(np.zeros(size), np.full(size, 0.1))}


def _sb3_atari(task: Task, pace: Pace) -> Any:
    """SB3's own preparation of Atari games: its wrapper, stacks of four."""
    import ale_py
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

    gym.register_envs(ale_py)

    def make() -> gym.Env:
        return pace(AtariWrapper(gym.make(task.env, frameskip=1, repeat_action_probability=0.0)))

    return VecFrameStack(DummyVecEnv([make]), 4)


CONTENDERS = {"neoteny": neoteny, "sbx": sbx, "sb3": sb3}


def main(name: str, task: str, seconds: str) -> None:
    """Train, until the standard input ends."""
    tell = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # what libraries print is not an answer
    sys.stdin.readline()
    chosen = TASKS[task]
    CONTENDERS[name](chosen, lambda env: Paced(env, chosen.warm, float(seconds), tell))


if __name__ == "__main__":
    main(*sys.argv[1:])
