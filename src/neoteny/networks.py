"""Networks: trunks from observations to features (MLP, SimBa, two CNNs), the heads on them, and their anatomy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

Init = Callable[..., Any]
Path = tuple[str, ...]
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


class TorchConv(nn.Conv):
    """A convolution without padding, begun as torch begins one.

    Its bias is spread by a product, since the gradient is one too then: XLA's sums over positions are slow on the CPU.
    """

    padding: Any = "VALID"

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        shape = (*self.kernel_size, inputs.shape[-1], self.features)
        uniform = torch_init(math.prod(shape[:-1]))
        kernel, bias = self.param("kernel", uniform, shape), self.param("bias", uniform, (self.features,))
        maps = jax.lax.conv_general_dilated(
            inputs, kernel, self.strides, self.padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return maps + (jnp.ones((maps.size // self.features, 1)) @ bias[None]).reshape(maps.shape)


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
            conv = TorchConv(features, (size, size), (stride, stride), name=f"conv_{index}")
            x = nn.relu(conv(x))
        x = x.reshape(*x.shape[:-3], -1)
        return nn.relu(TorchDense(self.width, name="layer_0")(x))


class SmallCNN(nn.Module):
    """The convolution of Young & Tian (2019) for MinAtar and its dense layer. Channels last, each 0 or 1, uint8."""

    @nn.compact
    def __call__(self, frames: Array) -> Array:
        x = nn.relu(TorchConv(16, (3, 3), (1, 1), name="conv_0")(frames.astype(jnp.float32)))
        return nn.relu(TorchDense(128, name="layer_0")(x.reshape(*x.shape[:-3], -1)))


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
    """A deterministic actor before the tanh that bounds its actions."""

    trunk: nn.Module
    num_actions: int

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        return Head(self.num_actions, self.trunk, name="head")(self.trunk(obs))


class Gaussian(nn.Module):
    """A stochastic actor: mean and log standard deviation, the latter not yet squashed into bounds."""

    trunk: nn.Module
    num_actions: int

    @nn.compact
    def __call__(self, obs: Array) -> tuple[Array, Array]:
        features = self.trunk(obs)
        mean = Head(self.num_actions, self.trunk, name="mean")(features)
        return mean, Head(self.num_actions, self.trunk, name="log_std")(features)


class ActionValues(nn.Module):
    """The value of each of a discrete space's actions; shape (batch, num_actions)."""

    trunk: nn.Module
    num_actions: int

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        features = self.trunk(obs)
        return Head(self.num_actions, self.trunk, name="head")(features)


@dataclass(frozen=True)
class HiddenLayer:
    """A layer of hidden units: the path of its own kernel in the parameters, and of those that read its units."""

    incoming: Path
    outgoing: tuple[Path, ...]


@dataclass(frozen=True)
class Anatomy:
    """What a network is made of, by paths into its parameters."""

    hidden: tuple[HiddenLayer, ...]
    """Its layers of hidden units; in SimBa the 4 h of each block. Not its heads."""
    heads: tuple[Path, ...]
    """Its last layers; the first one's input is what is meant by features."""
    branches: tuple[tuple[Path, ...], ...]
    """All its parts in the order they compute, heads last; one list for each critic."""
    last_block: str
    """Where its last block begins."""

    def names(self) -> tuple[str, ...]:
        """The names that `since` knows, in the order they compute; every head is `head`."""
        return tuple(dict.fromkeys(name for branch in self.branches for name in _names(branch)))

    def since(self, name: str) -> tuple[Path, ...]:
        """The parts from the layer called `name`, or `head`, to the end of every branch; none if there is no such."""
        parts: list[Path] = []
        for branch in self.branches:
            if name in _names(branch):
                parts += branch[_names(branch).index(name) :]
        return tuple(parts)


def _names(branch: tuple[Path, ...]) -> list[str]:
    """Of each part; those of a trunk lie in it, and heads, whatever they are called, beside it."""
    return [part[-1] if len(part) > 1 else "head" for part in branch]


def anatomy(network: nn.Module) -> Anatomy:
    """Of one of the networks above, on a trunk of ours; of another's trunk only the heads are known."""
    match network:
        case Critics():
            trunks = [(f"trunk_{index}", [f"head_{index}"]) for index in range(network.count)]
        case Gaussian():
            trunks = [("trunk", ["mean", "log_std"])]
        case _:
            trunks = [("trunk", ["head"])]
    trunk: Any = network.trunk
    dense = () if isinstance(trunk, SimBa) else ("dense",)
    layers, order, last_block = _of_trunk(trunk)
    hidden: list[HiddenLayer] = []
    heads: list[Path] = []
    branches: list[tuple[Path, ...]] = []
    for name, ends in trunks:
        own = [(end, "out", *dense) for end in ends]
        for incoming, outgoing in layers:
            hidden.append(HiddenLayer((name, *incoming), ((name, *outgoing),) if outgoing else tuple(own)))
        heads += own
        branches.append((*((name, part) for part in order), *((end,) for end in ends)))
    return Anatomy(tuple(hidden), tuple(heads), tuple(branches), last_block)


def _of_trunk(trunk: Any) -> tuple[list[tuple[Path, Path]], tuple[str, ...], str]:
    """Its hidden layers, each with the one that reads it (none: the heads do), its parts in order, its last block."""
    match trunk:
        case MLP():
            names = [f"layer_{index}" for index in range(len(trunk.widths))]
            paths: list[Path] = [(name, "dense") for name in names]
            return list(zip(paths, [*paths[1:], ()], strict=True)), tuple(names), names[-1]
        case SimBa():
            blocks = range(trunk.blocks)
            order = ["input", *(f"{part}_{i}" for i in blocks for part in ("norm", "expand", "compress")), "norm_out"]
            units: list[tuple[Path, Path]] = [((f"expand_{i}",), (f"compress_{i}",)) for i in blocks]
            return units, tuple(order), f"norm_{trunk.blocks - 1}"
        case NatureCNN():
            paths = [("conv_0",), ("conv_1",), ("conv_2",), ("layer_0", "dense")]
            names = [path[0] for path in paths]
            return list(zip(paths, [*paths[1:], ()], strict=True)), tuple(names), "layer_0"
        case SmallCNN():
            return [(("conv_0",), ("layer_0", "dense")), (("layer_0", "dense"), ())], ("conv_0", "layer_0"), "layer_0"
    return [], (), ""
