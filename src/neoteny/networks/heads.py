"""Whole networks: a trunk with the heads of an actor, of critics or of action values, and the anatomy of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from neoteny.networks.anatomy import Anatomy, Parts, assemble
from neoteny.networks.layers import TorchDense
from neoteny.networks.simbav2 import HyperHead, SimBaV2, unit_columns
from neoteny.networks.trunks import ORTHOGONAL, SimBa

Tree = Any


class Head(nn.Module):
    """A last layer, begun like the trunk it goes on; SimBaV2's has a layer before it."""

    features: int
    like: nn.Module

    @nn.compact
    def __call__(self, x: Array) -> Array:
        if isinstance(self.like, SimBa):
            return nn.Dense(self.features, kernel_init=ORTHOGONAL, name="out")(x)
        if isinstance(self.like, SimBaV2):
            return HyperHead(self.features, name="out")(x)
        return TorchDense(self.features, name="out")(x)


class Critics(nn.Module):
    """`count` critics of observation and action, each with its own trunk; shape (count, batch, outputs).

    With one output, which is then a value, the shape is (count, batch). Written out rather than mapped: XLA on the CPU
    multiplies two matrices faster than a batch of two.
    """

    trunk: nn.Module
    count: int = 2
    outputs: int = 1

    @nn.compact
    def __call__(self, obs: Array, action: Array) -> Array:
        x = jnp.concatenate([obs, action], axis=-1)
        values = []
        for index in range(self.count):
            features = self.trunk.clone(parent=self, name=f"trunk_{index}")(x)
            out = Head(self.outputs, self.trunk, name=f"head_{index}")(features)
            values.append(out[..., 0] if self.outputs == 1 else out)
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


def anatomy(network: nn.Module) -> Anatomy:
    """Of one of the networks above; of a trunk that has no method `parts` only the heads are known."""
    match network:
        case Critics():
            trunks = [(f"trunk_{index}", [f"head_{index}"]) for index in range(network.count)]
        case Gaussian():
            trunks = [("trunk", ["mean", "log_std"])]
        case _:
            trunks = [("trunk", ["head"])]
    trunk: Any = network.trunk
    match trunk:
        case SimBa():
            last_layer: tuple[str, ...] = ("out",)
        case SimBaV2():
            last_layer = ("out", "out")
        case _:
            last_layer = ("out", "dense")
    return assemble(trunk.parts() if hasattr(trunk, "parts") else Parts((), (), ""), trunks, last_layer)


def projection(network: nn.Module) -> Callable[[Tree], Tree] | None:
    """Return what keeps the trained parameters of one of the networks above to its constraint; None if it has none."""
    trunk: Any = network.trunk
    return unit_columns if isinstance(trunk, SimBaV2) else None


def new_variables(network: nn.Module, key: Array, *inputs: Array) -> Tree:
    """Return new variables of one of the networks above, which keep to its constraint."""
    variables: Any = network.init(key, *inputs)
    project = projection(network)
    return variables if project is None else {**variables, "params": project(variables["params"])}
