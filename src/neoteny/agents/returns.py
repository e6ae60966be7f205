"""Rewards scaled by the returns that were met (SimBaV2), whose statistics are updated by interaction only.

G is the discounted return of the episode so far, G <- gamma G + r from 0 at its first step. Rewards are divided by
max(sqrt(Var G + 1e-8), max |G| / reach), so that returns vary by about 1 and none leaves [-reach, reach]. The authors'
code starts G anew one step early, with an episode's last reward, and takes that reward over into the next episode.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from neoteny.agents import normaliser
from neoteny.agents.normaliser import Normaliser


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ReturnStatistics:
    """The returns of the present episodes, and statistics of every return met."""

    current: Array
    """G of each environment."""
    spread: Normaliser
    largest: Array
    """max |G|."""


def init(num_envs: int) -> ReturnStatistics:
    """No return met: variance 1."""
    return ReturnStatistics(jnp.zeros(num_envs), normaliser.init(()), jnp.float32(0))


def observe(statistics: ReturnStatistics, reward: Array, ended: Array, gamma: float) -> ReturnStatistics:
    """The statistics with one step of every environment added.

    Args:
        statistics: those before.
        reward: of each environment, (num_envs,).
        ended: whether its episode ended with this step, (num_envs,).
        gamma: the discount.
    """
    current = gamma * statistics.current + reward
    spread = normaliser.observe(statistics.spread, current)
    largest = jnp.maximum(statistics.largest, jnp.abs(current).max())
    return ReturnStatistics(jnp.where(ended, 0.0, current), spread, largest)


def scale(statistics: ReturnStatistics, reach: float) -> Array:
    """What rewards are divided by."""
    return jnp.maximum(jnp.sqrt(statistics.spread.var + 1e-8), statistics.largest / reach)


def with_scaled_rewards(batch: dict[str, Array], stats: ReturnStatistics | None, reach: float) -> dict[str, Array]:
    """Return a batch whose rewards are divided by `scale`; as it is where no statistics are kept."""
    return batch if stats is None else {**batch, "reward": batch["reward"] / scale(stats, reach)}
