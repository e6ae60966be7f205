"""SimBaV2 (Lee et al. 2025): features and the vector of weights into each unit stay on the unit sphere.

With l2(x) = x / |x|, all products without a bias, and s, t, a learned scalers:

    h = l2(s o W l2([x; 3]))
    h <- l2(h + a o (m - h)),  m = l2(W2 (relu(t o W1 h) + 1e-8)),  W1 h of length 4 d, in each of L blocks

A scaler is a learned vector that begins at `scale` and is multiplied by `init` / `scale`, so that it learns at a pace
of its own: s has init = scale = sqrt(2 / d), t half of that, a has init 1 / (L + 1) and scale 1 / sqrt(d). A head is
W4 (u o W3 h) + b, u with init = scale = 1. After every step of the optimiser the columns of every W, the weights into
each unit, get norm 1 again (`unit_columns`).
"""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from neoteny.networks.anatomy import HiddenLayer, Parts
from neoteny.networks.trunks import ORTHOGONAL

Tree = Any
_SHIFT = 3.0
"""What is appended to the observations, so that their length survives the l2 norm."""


def l2(x: Array, axis: int = -1) -> Array:
    """x / |x| along an axis; a vector of length 0 stays as it is."""
    return x / jnp.maximum(jnp.linalg.norm(x, axis=axis, keepdims=True), 1e-8)


def unit_columns(params: Tree) -> Tree:
    """Return the parameters in which the weights into each unit have norm 1: the columns of every kernel."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: l2(leaf, axis=0) if path[-1].key == "kernel" else leaf, params
    )


class Scaler(nn.Module):
    """Multiplies each feature by a learned number, `init` at first, that is learned as if it were `scale`."""

    init_value: float = 1.0
    scale: float = 1.0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        scale = self.param("scale", nn.initializers.constant(self.scale), (x.shape[-1],))
        return scale * self.rate * x

    @property
    def rate(self) -> float:
        """What the parameter is multiplied by."""
        return self.init_value / self.scale


def hyper_dense(features: int, name: str) -> nn.Dense:
    """A product without a bias, orthogonal at first."""
    return nn.Dense(features, use_bias=False, kernel_init=ORTHOGONAL, name=name)


class SimBaV2(nn.Module):
    """SimBaV2's encoder."""

    width: int = 512
    blocks: int = 2

    @nn.compact
    def __call__(self, x: Array) -> Array:
        begin = math.sqrt(2.0 / self.width)
        x = l2(jnp.concatenate([x, jnp.full((*x.shape[:-1], 1), _SHIFT)], axis=-1))
        x = l2(Scaler(begin, begin, name="input_scaler")(hyper_dense(self.width, "input")(x)))
        for index in range(self.blocks):
            y = hyper_dense(4 * self.width, f"expand_{index}")(x)
            y = nn.relu(Scaler(begin / 2, begin / 2, name=f"scaler_{index}")(y)) + 1e-8
            y = l2(hyper_dense(self.width, f"compress_{index}")(y))
            pace = Scaler(1.0 / (self.blocks + 1), 1.0 / math.sqrt(self.width), name=f"pace_{index}")
            x = l2(x + pace(y - x))
        return x

    @nn.nowrap
    def parts(self) -> Parts:
        """What it is made of."""
        blocks = range(self.blocks)
        inner = (f"{part}_{i}" for i in blocks for part in ("expand", "scaler", "compress", "pace"))
        hidden = tuple(HiddenLayer((f"expand_{i}",), ((f"compress_{i}",),), ((f"scaler_{i}",),)) for i in blocks)
        return Parts(hidden, ("input", "input_scaler", *inner), f"expand_{self.blocks - 1}")


class HyperHead(nn.Module):
    """SimBaV2's last layers: W4 (u o W3 h) + b."""

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = Scaler(name="scaler")(hyper_dense(x.shape[-1], "in")(x))
        return nn.Dense(self.features, kernel_init=ORTHOGONAL, name="out")(x)
