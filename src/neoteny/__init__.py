"""Neoteny keeps reinforcement-learning agents able to learn.

The public names. Importing them costs NumPy and nothing else; those that train are loaded when first used.
"""

from typing import TYPE_CHECKING

from neoteny.lazy import lazily
from neoteny.replay import (
    SAMPLERS,
    AgeWeightedSampler,
    Batch,
    BucketedSampler,
    Description,
    EmphasizeRecent,
    ExponentialDecay,
    Field,
    Frames,
    GeometricDecay,
    InverseAge,
    LinearDecay,
    LinearGrowth,
    PolynomialDecay,
    PrioritizedSampler,
    ReferenceSampler,
    ReplayBuffer,
    Sampler,
    Schedule,
    TruncatedGeometric,
    Uniform,
    Window,
    describe,
    match,
    transition_fields,
)

if TYPE_CHECKING:  # so that a type checker and an editor know them
    from neoteny.report.scores import load_runs
    from neoteny.runs.policy import load_policy
    from neoteny.settings.config import TrainConfig
    from neoteny.training.evaluation import evaluate
    from neoteny.training.start import resume, train

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
    "TrainConfig",
    "TruncatedGeometric",
    "Uniform",
    "Window",
    "__version__",
    "describe",
    "evaluate",
    "load_policy",
    "load_runs",
    "match",
    "resume",
    "train",
    "transition_fields",
]


if not TYPE_CHECKING:  # these bring JAX and more with them: loaded when first used
    __getattr__ = lazily(
        __name__,
        {
            "TrainConfig": "neoteny.settings.config",
            "evaluate": "neoteny.training.evaluation",
            "load_policy": "neoteny.runs.policy",
            "load_runs": "neoteny.report.scores",
            "resume": "neoteny.training.start",
            "train": "neoteny.training.start",
        },
    )
