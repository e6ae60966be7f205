"""Stable-Baselines3 and SBX: age-weighted replay buffers, and callbacks that measure and restore plasticity."""

from neoteny.integrations.sb3.buffers import (
    AgeWeightedDictReplayBuffer,
    AgeWeightedNStepReplayBuffer,
    AgeWeightedReplayBuffer,
)
from neoteny.integrations.sb3.callbacks import PlasticityCallback
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
    "ReDoCallback",
    "ReGraMaCallback",
    "ResetCallback",
    "ShrinkPerturbCallback",
]
