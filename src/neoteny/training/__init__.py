"""Training: configure a run, train it, resume it, evaluate it, load its policy.

``train(TrainConfig("Hopper-v5", TD3Config(), ReplayConfig("swd")))`` is a run; the directory that it returns has
everything that `resume` and `load_policy` need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neoteny.agents.configs import DDQNConfig, SACConfig, TD3Config
from neoteny.lazy import lazily
from neoteny.settings.config import PlasticityConfig, ReplayConfig, TrainConfig

if TYPE_CHECKING:
    from neoteny.runs.policy import load_policy
    from neoteny.training.callbacks import Callback, Moment
    from neoteny.training.evaluation import Evaluation, evaluate
    from neoteny.training.start import resume, train

__all__ = [
    "Callback",
    "DDQNConfig",
    "Evaluation",
    "Moment",
    "PlasticityConfig",
    "ReplayConfig",
    "SACConfig",
    "TD3Config",
    "TrainConfig",
    "evaluate",
    "load_policy",
    "resume",
    "train",
]

if not TYPE_CHECKING:  # these bring JAX with them: loaded when first used
    __getattr__ = lazily(
        __name__,
        {
            "Callback": "neoteny.training.callbacks",
            "Evaluation": "neoteny.training.evaluation",
            "Moment": "neoteny.training.callbacks",
            "evaluate": "neoteny.training.evaluation",
            "load_policy": "neoteny.runs.policy",
            "resume": "neoteny.training.start",
            "train": "neoteny.training.start",
        },
    )
