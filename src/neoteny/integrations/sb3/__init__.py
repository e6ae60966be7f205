"""Stable-Baselines3 and SBX: age-weighted and prioritised replay, and callbacks that measure and restore plasticity."""

from neoteny.integrations.sb3.buffers import (
    AgeWeightedDictReplayBuffer,
    AgeWeightedNStepReplayBuffer,
    AgeWeightedReplayBuffer,
)
from neoteny.integrations.sb3.callbacks import PlasticityCallback
from neoteny.integrations.sb3.priorities import (
    PrioritizedDictReplayBuffer,
    PrioritizedNStepReplayBuffer,
    PrioritizedReplayBuffer,
)
from neoteny.integrations.sb3.prioritized import PrioritizedDQN, PrioritizedSAC, PrioritizedTD3
from neoteny.integrations.sb3.remedies import (
    InjectionCallback,
    ReDoCallback,
    ReGraMaCallback,
    ResetCallback,
    ShrinkPerturbCallback,
)

__all__ = [
    "AgeWeightedDictReplayBuffer",
    "AgeWeightedNStepReplayBuffer",
    "AgeWeightedReplayBuffer",
    "InjectionCallback",
    "PlasticityCallback",
    "PrioritizedDQN",
    "PrioritizedDictReplayBuffer",
    "PrioritizedNStepReplayBuffer",
    "PrioritizedReplayBuffer",
    "PrioritizedSAC",
    "PrioritizedTD3",
    "ReDoCallback",
    "ReGraMaCallback",
    "ResetCallback",
    "ShrinkPerturbCallback",
]
