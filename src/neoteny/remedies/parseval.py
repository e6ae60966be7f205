"""Parseval regularisation (Chung et al. 2024): the rows of each hidden layer's weights stay orthogonal.

Added to the loss of every network is the sum over its hidden layers of

    strength (64 / width)^2 ||W W^T - s I||_F^2

W of shape (outputs, inputs), width its outputs, s = 2. Heads and biases are left alone. Strength 1e-3 and s are the
authors', https://github.com/wechu/parseval_reg, who use 1e-4 on LunarLander and the quadruped; 64 is the
width that it was tuned at.

Ours:

- Where a layer has fewer inputs than outputs, W W^T cannot reach s I: the smaller Gram matrix W^T W is used.
- Each layer has a width of its own; theirs all have the same.
- In SimBa every kernel before the heads is a hidden layer: input, expand and compress.
- A convolution's W is its kernel as (channels out, positions x channels in), and its width the channels out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from neoteny.agents.agent import TrainableNetwork
from neoteny.agents.learner import Remedy, Step
from neoteny.networks import Path
from neoteny.remedies.config import RemedyConfig

Tree = Any
TUNED_AT = 64
"""The width of the networks that the strength was tuned for."""


@dataclass(frozen=True)
class Parseval(RemedyConfig):
    """Parseval regularisation (Chung et al. 2024): the weights of hidden layers stay orthogonal."""

    name: ClassVar = "parseval"
    prefix: ClassVar = "parseval"
    kind: ClassVar = "penalty"
    strength: float = 1e-3
    """Strength of Parseval regularisation; 0 for none."""
    scale: float = 2.0
    """The squared length that Parseval regularisation gives each row of weights."""

    def __post_init__(self) -> None:
        for field in ("strength", "scale"):
            self.require(field, 0 <= getattr(self, field) < float("inf"), "a finite number >= 0")

    def check(self, networks: Mapping[str, TrainableNetwork]) -> None:
        """Accept every network: of the heads alone the place must be known."""

    def build(self, planned_updates: int) -> Remedy:
        """Return the remedy."""
        if self.strength == 0:
            return Remedy(self.name)

        def penalty(params: Tree, outputs: Tree, memory: Tree, step: Step) -> Array:
            distances = [
                (TUNED_AT / kernel.shape[-1]) ** 2 * distance(smaller_side_first(kernel), self.scale)
                for kernel in kernels(params, step.network.anatomy.heads)
            ]
            return self.strength * sum(distances, jnp.zeros(()))

        return Remedy(self.name, penalty=penalty)


def kernels(params: Tree, heads: tuple[Path, ...], path: Path = ()) -> Iterator[Array]:
    """Every kernel of a network but those of its heads."""
    for name, value in params.items():
        if isinstance(value, Mapping):
            yield from kernels(value, heads, (*path, name))
        elif name == "kernel" and path not in heads:
            yield value


def smaller_side_first(kernel: Array) -> Array:
    """A kernel as a matrix that has no more rows than columns: W, or W^T where it has fewer inputs than outputs."""
    matrix = kernel.reshape(-1, kernel.shape[-1])
    return matrix if matrix.shape[0] < matrix.shape[1] else matrix.T


@jax.custom_vjp
def distance(rows: Array, scale: float) -> Array:
    """||A A^T - scale I||_F^2 of a matrix A; its gradient is 4 (A A^T - scale I) A.

    The gradient is given, since it is one product: JAX would make two of it, not knowing that A A^T is symmetric.
    """
    return _distance(rows, scale)[0]


def _distance(rows: Array, scale: float) -> tuple[Array, tuple[Array, Array]]:
    error = rows @ rows.T - scale * jnp.eye(rows.shape[0])
    return error.ravel() @ error.ravel(), (error, rows)


def _gradient(kept: tuple[Array, Array], cotangent: Array) -> tuple[Array, None]:
    error, rows = kept
    return 4.0 * cotangent * (error @ rows), None


distance.defvjp(_distance, _gradient)
