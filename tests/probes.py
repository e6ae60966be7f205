"""Probe environments: so small that what an agent must learn in them is known."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Probe(gym.Env):
    """Observations in {0, 1}; subclasses say what an action does."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, discrete: bool) -> None:
        self.action_space = spaces.Discrete(2) if discrete else spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0.0
        return self.observe(), {}

    def observe(self) -> np.ndarray:
        return np.array([self.at], np.float32)


class TwoSteps(Probe):
    """Reward 0, then reward 1 and the end: Q(0) = gamma, Q(1) = 1."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward, terminated = self.at, self.at == 1.0
        self.at = 1.0
        return self.observe(), reward, terminated, False, {}


class Endless(Probe):
    """Reward 1 for ever, cut after every step: Q = 1 / (1 - gamma), if truncation is bootstrapped through."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self.observe(), 1.0, False, True, {}


class Aim(Probe):
    """One step; the reward is largest for action 1 (discrete), or for action 0.5 in [-2, 2]."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        chosen = float(np.asarray(action).reshape(-1)[0])
        reward = chosen if isinstance(self.action_space, spaces.Discrete) else -((chosen - 0.5) ** 2)
        return self.observe(), reward, True, False, {}


class Pixels(gym.Env):
    """Frames that are dark or bright; the right action is to name which. Episodes of 4 steps."""

    observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 4
        self.stack = np.repeat(self.frame()[None], 4, axis=0)
        return self.stack, {}

    def frame(self) -> np.ndarray:
        self.bright = int(self.np_random.integers(2))
        return np.full((84, 84), 255 * self.bright, np.uint8)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.bright)
        self.left -= 1
        self.stack = np.concatenate([self.stack[1:], self.frame()[None]])
        return self.stack, reward, False, self.left == 0, {}
