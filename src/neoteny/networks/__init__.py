"""Networks: trunks from observations to features, the heads on them, and their anatomy.

`layers.py` has the layers and their variations, `trunks.py` MLP, Nature CNN and SimBa, `simbav2.py` SimBaV2, `heads.py`
whole networks, `choice.py` what --network asks for, `anatomy.py` what remedies and probes know of a network.
"""

from neoteny.networks.anatomy import Anatomy, HiddenLayer, Parts, Path
from neoteny.networks.choice import trunk_of_blocks, trunk_of_layers, trunk_of_pixels
from neoteny.networks.heads import (
    ActionValues,
    Critics,
    Deterministic,
    Gaussian,
    Head,
    anatomy,
    new_variables,
    projection,
)
from neoteny.networks.layers import SpectralDense, TorchConv, TorchDense, largest_singular_value, torch_init
from neoteny.networks.simbav2 import Scaler, SimBaV2, unit_columns
from neoteny.networks.trunks import MLP, NatureCNN, SimBa, SmallCNN

__all__ = [
    "MLP",
    "ActionValues",
    "Anatomy",
    "Critics",
    "Deterministic",
    "Gaussian",
    "Head",
    "HiddenLayer",
    "NatureCNN",
    "Parts",
    "Path",
    "Scaler",
    "SimBa",
    "SimBaV2",
    "SmallCNN",
    "SpectralDense",
    "TorchConv",
    "TorchDense",
    "anatomy",
    "largest_singular_value",
    "new_variables",
    "projection",
    "torch_init",
    "trunk_of_blocks",
    "trunk_of_layers",
    "trunk_of_pixels",
    "unit_columns",
]
