"""Replay: what is remembered, what is replayed, and how often by age. NumPy only; `neoteny.replay.device` is on JAX.

A `ReplayBuffer` is a ring and a sampler. A schedule gives the weight of each age, such as `LinearDecay`; an
`AgeWeightedSampler` draws by it exactly, at the price of uniform sampling.
"""

from neoteny.replay.ages.ageing import Description, Schedule, describe
from neoteny.replay.ages.matching import match
from neoteny.replay.ages.schedules import (
    EmphasizeRecent,
    ExponentialDecay,
    GeometricDecay,
    InverseAge,
    LinearDecay,
    LinearGrowth,
    PolynomialDecay,
    TruncatedGeometric,
    Uniform,
    Window,
)
from neoteny.replay.batch import Batch
from neoteny.replay.buffer import ReplayBuffer
from neoteny.replay.combined import CombinedSampler
from neoteny.replay.frames import Frames
from neoteny.replay.priority import PrioritizedSampler
from neoteny.replay.sampling import SAMPLERS, AgeWeightedSampler, BucketedSampler, ReferenceSampler, Sampler
from neoteny.replay.storage import Field, transition_fields

__all__ = [
    "SAMPLERS",
    "AgeWeightedSampler",
    "Batch",
    "BucketedSampler",
    "CombinedSampler",
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
    "TruncatedGeometric",
    "Uniform",
    "Window",
    "describe",
    "match",
    "transition_fields",
]
