"""What a person should know of a run that will do less than they may think: one sentence each."""

from __future__ import annotations

from neoteny.replay.registry import REPLAYS
from neoteny.training.config import TrainConfig

_SMALL = "For a short run --preset small scales learning starts, T and evaluation to its length."


def cautions(config: TrainConfig) -> list[str]:
    """Return what to say before a run starts."""
    said = []
    steps, batch = config.total_timesteps, config.agent.batch_size
    if config.agent.learning_starts >= steps:
        said.append(
            f"This run will make no update: learning starts at step {config.agent.learning_starts:,} and the run has "
            f"{steps:,} steps."
        )
    if config.eval_every and config.eval_every > steps:
        said.append(
            f"This run will make no evaluation: the first is due at step {config.eval_every:,} and the run has "
            f"{steps:,} steps."
        )
    named = REPLAYS.get(config.replay.replay)
    horizon = config.replay.decay_steps or config.default_decay_steps()
    if named is not None and "decay_steps" in named.numbers and horizon > steps:
        said.append(
            f"T is {horizon:,.0f} and the run has {steps:,} steps, so no transition reaches the age at which its "
            "weight stops changing."
        )
    if said:
        said.append(_SMALL)
    if config.replay.capacity < batch:
        said.append(
            f"Every batch will contain the same transitions several times: the replay buffer holds "
            f"{config.replay.capacity:,} and a batch has {batch:,}; --capacity sets the first, --batch-size the second."
        )
    return said


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
