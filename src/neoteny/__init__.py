"""Neoteny keeps reinforcement-learning agents able to learn.

The public names. Importing them costs NumPy and nothing else.
"""

from neoteny.replay.ageing import Description, Schedule, describe
from neoteny.replay.batch import Batch
from neoteny.replay.buffer import ReplayBuffer
from neoteny.replay.frames import Frames
from neoteny.replay.priority import PrioritizedSampler
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
    "Frames",
    "GeometricDecay",
    "InverseAge",
    "LinearDecay",
    "LinearGrowth",
    "PolynomialDecay",
    "PrioritizedSampler",
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
