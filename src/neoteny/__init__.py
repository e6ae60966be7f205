"""Neoteny keeps reinforcement-learning agents able to learn.

The public names. Importing them costs NumPy and nothing else; those that train are loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from neoteny.replay.ages.ageing import Description, Schedule, describe
from neoteny.replay.ages.schedules import (
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
from neoteny.replay.batch import Batch
from neoteny.replay.buffer import ReplayBuffer
from neoteny.replay.frames import Frames
from neoteny.replay.priority import PrioritizedSampler
from neoteny.replay.sampling import SAMPLERS, AgeWeightedSampler, BucketedSampler, ReferenceSampler, Sampler
from neoteny.replay.storage import Field, transition_fields

if TYPE_CHECKING:  # so that a type checker and an editor know them: the same names as in _LAZY
    from neoteny.report.scores import load_runs
    from neoteny.runs.policy import load_policy
    from neoteny.settings.config import TrainConfig
    from neoteny.training.start import resume, train

__version__ = "0.1.0"

_LAZY = {
    "TrainConfig": "neoteny.settings.config",
    "load_policy": "neoteny.runs.policy",
    "load_runs": "neoteny.report.scores",
    "resume": "neoteny.training.start",
    "train": "neoteny.training.start",
}
"""Names that bring JAX and more with them: loaded when first used."""

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
    "TrainConfig",
    "Uniform",
    "Window",
    "__version__",
    "describe",
    "load_policy",
    "load_runs",
    "resume",
    "train",
    "transition_fields",
]


if not TYPE_CHECKING:  # a type checker would believe in any name

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'neoteny' has no attribute {name!r}")
        return getattr(import_module(_LAZY[name]), name)
