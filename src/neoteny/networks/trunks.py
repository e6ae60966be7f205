"""Trunks from observations to features: MLP and two CNNs with their variations, and SimBa."""

from __future__ import annotations

import itertools

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from neoteny.networks.anatomy import HiddenLayer, Parts, chain
from neoteny.networks.layers import Kind, TorchConv, hidden_layer

HE = nn.initializers.he_normal()
ORTHOGONAL = nn.initializers.orthogonal(1.0)
_NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
_SMALL = ((16, 3, 1),)
"""Channels, size and stride of the convolutions."""


class MLP(nn.Module):
    """Dense layers with ReLU; SWD (ICLR 2026), Table 3. `kind` is one of the variations of `hidden_layer`."""

    widths: tuple[int, ...] = (256, 128)
    kind: Kind = "mlp"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for index, width in enumerate(self.widths):
            x = hidden_layer(x, width, index, self.kind, last=index == len(self.widths) - 1)
        return x

    @nn.nowrap
    def parts(self) -> Parts:
        """What it is made of."""
        names = [f"layer_{index}" for index in range(len(self.widths))]
        norms = [f"norm_{index}" for index in range(len(self.widths))] if self.kind == "layernorm" else []
        return _layers([(name, "dense") for name in names], norms)


class NatureCNN(nn.Module):
    """The convolutions of Mnih et al. (2015) and their dense layer; Tables 4 and 5. Frames channels last, uint8.

    `kind` varies the dense layer; layernorm also normalises the channels before each convolution's non-linearity.
    """

    width: int = 512
    kind: Kind = "mlp"

    @nn.compact
    def __call__(self, frames: Array) -> Array:
        return _convolve(frames.astype(jnp.float32) / 255.0, _NATURE, self.width, self.kind)

    @nn.nowrap
    def parts(self) -> Parts:
        """What it is made of."""
        return _convolutions(len(_NATURE), self.kind)


class SmallCNN(nn.Module):
    """The convolution of Young & Tian (2019) for MinAtar and its dense layer. Channels last, each 0 or 1, uint8.

    `kind` varies it as it does the Nature CNN.
    """

    width: int = 128
    kind: Kind = "mlp"

    @nn.compact
    def __call__(self, frames: Array) -> Array:
        return _convolve(frames.astype(jnp.float32), _SMALL, self.width, self.kind)

    @nn.nowrap
    def parts(self) -> Parts:
        """What it is made of."""
        return _convolutions(len(_SMALL), self.kind)


def _convolve(x: Array, convolutions: tuple[tuple[int, int, int], ...], width: int, kind: Kind) -> Array:
    """Convolutions with ReLU, and a dense layer on what they give, in the module that calls."""
    for index, (features, size, stride) in enumerate(convolutions):
        x = TorchConv(features, (size, size), (stride, stride), name=f"conv_{index}")(x)
        x = nn.relu(nn.LayerNorm(name=f"conv_norm_{index}")(x) if kind == "layernorm" else x)
    return hidden_layer(x.reshape(*x.shape[:-3], -1), width, 0, kind, last=True)


def _convolutions(count: int, kind: Kind) -> Parts:
    """The parts of so many convolutions and a dense layer."""
    norms = [*(f"conv_norm_{index}" for index in range(count)), "norm_0"] if kind == "layernorm" else []
    return _layers([*((f"conv_{index}",) for index in range(count)), ("layer_0", "dense")], norms)


def _layers(kernels: list[tuple[str, ...]], norms: list[str]) -> Parts:
    """The parts of layers one after the other, with or without a norm after each."""
    order = [path[0] for path in kernels]
    if norms:
        order = [name for pair in zip(order, norms, strict=True) for name in pair]
    return Parts(chain(kernels, [(norm,) for norm in norms]), tuple(order), kernels[-1][0])


class SimBa(nn.Module):
    """SimBa's encoder: Dense, residual blocks of LayerNorm and a 4 x wider hidden layer, LayerNorm; Tables 6 to 8.

    It begins with `blocks`, and computes as many as its parameters have: they may have grown.
    """

    width: int = 512
    blocks: int = 2

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.Dense(self.width, kernel_init=ORTHOGONAL, name="input")(x)
        for index in itertools.count():
            if index >= self.blocks and not self.has_variable("params", f"expand_{index}"):
                break
            y = nn.LayerNorm(name=f"norm_{index}")(x)
            y = nn.relu(nn.Dense(4 * self.width, kernel_init=HE, name=f"expand_{index}")(y))
            x = x + nn.Dense(self.width, kernel_init=HE, name=f"compress_{index}")(y)
        return nn.LayerNorm(name="norm_out")(x)

    @nn.nowrap
    def parts(self) -> Parts:
        """What it is made of."""
        blocks = range(self.blocks)
        order = ["input", *(f"{part}_{i}" for i in blocks for part in ("norm", "expand", "compress")), "norm_out"]
        hidden = tuple(HiddenLayer((f"expand_{i}",), ((f"compress_{i}",),)) for i in blocks)
        return Parts(hidden, tuple(order), f"norm_{self.blocks - 1}")
