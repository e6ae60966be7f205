"""Whole episodes without exploration, in environments of their own, seeded by (seed, step) alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

from neoteny.wording import counted

ATARI_EPSILON = 0.001
"""The share of random actions in evaluations of Atari games."""


class Episode(NamedTuple):
    """An episode that was played to its end."""

    value: float
    """The sum of its rewards."""
    length: int
    """Its steps, each a decision of the policy."""


def play(
    policy: Callable[[NDArray[Any]], NDArray[Any]],
    envs: SyncVectorEnv,
    seed: int,
    step: int,
    epsilon: float = 0.0,
    turns: int = 1,
) -> list[Episode]:
    """Play one episode in each of `envs`, with raw rewards; `turns` times, one after the other.

    Args:
        policy: from a batch of observations to a batch of actions.
        envs: where to play.
        seed: of the episodes, together with `step`.
        step: how far training was.
        epsilon: the share of random actions.
        turns: how often every environment is reset and played.
    """
    entropy = np.random.SeedSequence([seed, step])
    rng = np.random.default_rng(entropy)
    seeds = [int(s) for s in entropy.generate_state(envs.num_envs * turns)]
    played: list[Episode] = []
    for start in range(0, len(seeds), envs.num_envs):
        played += _play_once(policy, envs, seeds[start : start + envs.num_envs], rng, epsilon)
    return played


def _play_once(
    policy: Callable[[NDArray[Any]], NDArray[Any]],
    envs: SyncVectorEnv,
    seeds: list[int],
    rng: np.random.Generator,
    epsilon: float,
) -> list[Episode]:
    obs, _ = envs.reset(seed=list(seeds))
    played: dict[int, Episode] = {}
    while len(played) < envs.num_envs:
        actions = policy(obs)
        if epsilon > 0:
            random = rng.integers(0, envs.single_action_space.n, envs.num_envs)  # type: ignore[attr-defined]
            actions = np.where(rng.random(envs.num_envs) < epsilon, random, actions)
        obs, _, _, _, info = envs.step(actions)
        for index, episode in finished(info):
            played.setdefault(index, Episode(episode["r"], int(episode["l"])))
    return [played[index] for index in range(envs.num_envs)]


def described(returns: Sequence[float]) -> str:
    """An evaluation in one sentence, which names the episodes whose return is not finite."""
    finite = [value for value in returns if math.isfinite(value)]
    others = [str(number) for number, value in enumerate(returns, 1) if not math.isfinite(value)]
    if not finite:
        every = counted(len(returns), "episode")
        return f"there is no mean return: the environment returned NaN or infinity in all of {every}"
    text = f"{counted(len(finite), 'episode')}: mean return {sum(finite) / len(finite):.2f}"
    text += f", from {min(finite):.2f} to {max(finite):.2f}" if len(finite) > 1 else ""
    if others:
        left_out = f"episode{'s' * (len(others) > 1)} {', '.join(others)} of {len(returns)}"
        text += f"; left out: {left_out}, where the environment returned NaN or infinity"
    return text


def finished(info: dict[str, Any]) -> list[tuple[int, dict[str, float]]]:
    """The environments whose episode (in Atari: whole game) ended in this step, with its return r and length l."""
    final = info.get("final_info", {})
    if "episode" not in final:
        return []
    episode, ended = final["episode"], final["_episode"]
    return [(int(i), {"r": float(episode["r"][i]), "l": int(episode["l"][i])}) for i in np.flatnonzero(ended)]
