"""Remedies for the loss of plasticity, one file each; any of them may be combined, but for growth.

A remedy is a configuration, such as `ReDo(tau=0.1)`, that a run takes: ``TrainConfig(env, remedies=(ReDo(),))``, or
``--remedy redo --redo-tau 0.1`` on the command line. `neoteny.remedies.registry` lists all by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neoteny.lazy import lazily
from neoteny.remedies.config import RemedyConfig
from neoteny.remedies.registry import REMEDIES

if TYPE_CHECKING:
    from neoteny.remedies.adam_rel import AdamRel
    from neoteny.remedies.chain import Chain
    from neoteny.remedies.continual_backprop import ContinualBackprop
    from neoteny.remedies.growth import Growth
    from neoteny.remedies.injection import Injection
    from neoteny.remedies.l2_init import L2Init
    from neoteny.remedies.nap import NaP
    from neoteny.remedies.optimiser_reset import OptimiserReset
    from neoteny.remedies.parseval import Parseval
    from neoteny.remedies.pfo import PFO
    from neoteny.remedies.redo import ReDo
    from neoteny.remedies.regrama import ReGraMa
    from neoteny.remedies.reset import Reset
    from neoteny.remedies.shrink_perturb import ShrinkPerturb
    from neoteny.remedies.upgd import UPGD

__all__ = [
    "PFO",
    "REMEDIES",
    "UPGD",
    "AdamRel",
    "Chain",
    "ContinualBackprop",
    "Growth",
    "Injection",
    "L2Init",
    "NaP",
    "OptimiserReset",
    "Parseval",
    "ReDo",
    "ReGraMa",
    "RemedyConfig",
    "Reset",
    "ShrinkPerturb",
]


if not TYPE_CHECKING:  # each brings JAX with it: loaded when first used
    __getattr__ = lazily(__name__, dict(place.split(":")[::-1] for place in REMEDIES.values()))
