"""What a person should know of a run that will do less than they may think: one sentence each."""

from __future__ import annotations

import math

from neoteny.replay.registry import make_sampler
from neoteny.settings.config import TrainConfig

_SMALL = "For a short run --preset small scales learning starts, T and evaluation to its length."


def cautions(config: TrainConfig) -> list[str]:
    """Return what to say before a run starts."""
    said = []
    steps, batch = config.total_timesteps, config.agent.batch_size
    if config.agent.learning_starts >= steps and not config.priming_updates:
        said.append(
            f"This run will make no update: learning starts at step {config.agent.learning_starts:,} and the run has "
            f"{steps:,} steps."
        )
    if config.eval_every and config.eval_every > steps:
        said.append(
            f"This run will make no evaluation: the first is due at step {config.eval_every:,} and the run has "
            f"{steps:,} steps."
        )
    reach = _reach(config)
    if steps < reach:
        said.append(
            f"The weights change up to age {reach:,.0f} and the run has {steps:,} steps, so none gets that old."
        )
    if said:
        said.append(_SMALL)
    if config.replay.capacity < min(reach, steps):
        said.append(
            f"The weights change up to age {reach:,.0f} and the replay buffer holds {config.replay.capacity:,} "
            "transitions, so none gets that old: --capacity sets the second, --decay-steps or its like the first."
        )
    if config.replay.capacity < batch:
        said.append(
            f"Every batch will contain the same transitions several times: the replay buffer holds "
            f"{config.replay.capacity:,} and a batch has {batch:,}; --capacity sets the first, --batch-size the second."
        )
    return said


def _reach(config: TrainConfig) -> float:
    """Return the age up to which the weights of a run's replay change; 0 if they never do, or if that is not known."""
    replay = config.replay
    sampler = make_sampler(replay.replay, replay.replay_sampler, config.default_decay_steps(), replay.numbers())
    reach = getattr(getattr(sampler, "schedule", None), "reach", math.inf)
    return reach if math.isfinite(reach) else 0


def shortfalls(config: TrainConfig, updates: int, evaluated: int) -> list[str]:
    """Return what to say after a run that made no update or no evaluation.

    Args:
        config: the run's configuration.
        updates: how many updates it made.
        evaluated: the step of its last evaluation; 0 if it made none.
    """
    said = []
    if updates == 0:
        said.append(f"The agent made no update in {config.total_timesteps:,} steps, so its policy is untrained.")
    if config.eval_every and evaluated == 0:
        said.append(f"The agent was not evaluated: --eval-every is {config.eval_every:,}.")
    return said
