"""Networks: trunks from observations to features (MLP, SimBa, Nature CNN), and the heads that go on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

Init = Callable[..., Any]
_HE = nn.initializers.he_normal()
_ORTHOGONAL = nn.initializers.orthogonal(1.0)


def torch_init(fan_in: int) -> Init:
    """What torch begins kernels and biases with, and so CleanRL: uniform in +-1 / sqrt(fan_in)."""
    bound = 1.0 / math.sqrt(fan_in)

    def uniform(key: Array, shape: Any, dtype: Any = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return uniform


class TorchDense(nn.Module):
    """A dense layer begun as torch begins one."""

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        uniform = torch_init(x.shape[-1])
        return nn.Dense(self.features, kernel_init=uniform, bias_init=uniform, name="dense")(x)


class MLP(nn.Module):
    """Dense layers with ReLU; SWD (ICLR 2026), Table 3."""

    widths: tuple[int, ...] = (256, 128)

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for index, width in enumerate(self.widths):
            x = nn.relu(TorchDense(width, name=f"layer_{index}")(x))
        return x


class SimBa(nn.Module):
    """SimBa's encoder: Dense, residual blocks of LayerNorm and a 4 x wider hidden layer, LayerNorm; Tables 6 to 8."""

    width: int = 512
    blocks: int = 2

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.Dense(self.width, kernel_init=_ORTHOGONAL, name="input")(x)
        for index in range(self.blocks):
            y = nn.LayerNorm(name=f"norm_{index}")(x)
            y = nn.relu(nn.Dense(4 * self.width, kernel_init=_HE, name=f"expand_{index}")(y))
            x = x + nn.Dense(self.width, kernel_init=_HE, name=f"compress_{index}")(y)
        return nn.LayerNorm(name="norm_out")(x)


class NatureCNN(nn.Module):
    """The convolutions of Mnih et al. (2015) and their dense layer; Tables 4 and 5. Frames channels last, uint8."""

    width: int = 512

    @nn.compact
    def __call__(self, frames: Array) -> Array:
        x = frames.astype(jnp.float32) / 255.0
        for index, (features, size, stride) in enumerate([(32, 8, 4), (64, 4, 2), (64, 3, 1)]):
            begin = torch_init(size * size * x.shape[-1])
            conv = nn.Conv(
                features,
                (size, size),
                (stride, stride),
                padding="VALID",
                kernel_init=begin,
                bias_init=begin,
                name=f"conv_{index}",
            )
            x = nn.relu(conv(x))
        x = x.reshape(*x.shape[:-3], -1)
        return nn.relu(TorchDense(self.width, name="layer_0")(x))


class Head(nn.Module):
    """A last layer, begun like the trunk it goes on."""

    features: int
    like: nn.Module

    @nn.compact
    def __call__(self, x: Array) -> Array:
        if isinstance(self.like, SimBa):
            return nn.Dense(self.features, kernel_init=_ORTHOGONAL, name="out")(x)
        return TorchDense(self.features, name="out")(x)


class Critics(nn.Module):
    """`count` critics of observation and action, each with its own trunk; shape (count, batch).

    Written out rather than mapped: XLA on the CPU multiplies two matrices faster than a batch of two.
    """

    trunk: nn.Module
    count: int = 2

    @nn.compact
    def __call__(self, obs: Array, action: Array) -> Array:
        x = jnp.concatenate([obs, action], axis=-1)
        values = []
        for index in range(self.count):
            features = self.trunk.clone(parent=self, name=f"trunk_{index}")(x)
            values.append(Head(1, self.trunk, name=f"head_{index}")(features)[..., 0])
        return jnp.stack(values)


class Deterministic(nn.Module):
    """A deterministic actor: tanh of its head, in [-1, 1]."""

    trunk: nn.Module
    num_actions: int

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        features = self.trunk(obs)
        return jnp.tanh(Head(self.num_actions, self.trunk, name="head")(features))


class Gaussian(nn.Module):
    """A stochastic actor: mean and log standard deviation, the latter squashed into bounds, before the tanh."""

    trunk: nn.Module
    num_actions: int
    log_std_bounds: tuple[float, float]

    @nn.compact
    def __call__(self, obs: Array) -> tuple[Array, Array]:
        features = self.trunk(obs)
        mean = Head(self.num_actions, self.trunk, name="mean")(features)
        raw = Head(self.num_actions, self.trunk, name="log_std")(features)
        low, high = self.log_std_bounds
        return mean, low + 0.5 * (high - low) * (jnp.tanh(raw) + 1.0)


class ActionValues(nn.Module):
    """The value of each of a discrete space's actions; shape (batch, num_actions)."""

    trunk: nn.Module
    num_actions: int

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        features = self.trunk(obs)
        return Head(self.num_actions, self.trunk, name="head")(features)
