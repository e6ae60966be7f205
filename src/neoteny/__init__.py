"""Neoteny keeps reinforcement-learning agents able to learn.

The public names. Importing them costs NumPy and nothing else.
"""

from neoteny.replay.ageing import Description, Schedule, describe
from neoteny.replay.buffer import Batch, ReplayBuffer
from neoteny.replay.sampling import SAMPLERS, AgeWeightedSampler, BucketedSampler, ReferenceSampler, Sampler
from neoteny.replay.schedules import (
    EmphasizeRecent,
    ExponentialDecay,
    GeometricDecay,
    InverseAge,
    LinearDecay,
    LinearGrowth,
    PolynomialDecay,
    Uniform,
    Window,
)
from neoteny.replay.storage import Field, transition_fields

__version__ = "0.1.0"

__all__ = [
    "SAMPLERS",
    "AgeWeightedSampler",
    "Batch",
    "BucketedSampler",
    "Description",
    "EmphasizeRecent",
    "ExponentialDecay",
    "Field",
    "GeometricDecay",
    "InverseAge",
    "LinearDecay",
    "LinearGrowth",
    "PolynomialDecay",
    "ReferenceSampler",
    "ReplayBuffer",
    "Sampler",
    "Schedule",
    "Uniform",
    "Window",
    "__version__",
    "describe",
    "transition_fields",
]
