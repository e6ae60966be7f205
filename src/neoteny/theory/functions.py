"""Function classes for fitted Q-iteration on n = S A cells: linear (tabular is its identity) and a small network.

A function is its parameters, a vector (P,). On the cells it has values (n,) and a Jacobian (n, P), so a weighted
loss E_mu[(f - y)^2], mu and y (n,), has the gradient 2 J^T (mu (f - y)). NumPy in float64 throughout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from neoteny.plasticity.ntk import dense_gram
from neoteny.theory.mdp import Floats


class Approximator(Protocol):
    """What fitted Q-iteration asks of a function class."""

    def initial(self, rng: np.random.Generator) -> Floats:
        """Fresh parameters."""
        ...

    def values(self, theta: Floats) -> Floats:
        """f on every cell, (n,)."""
        ...

    def jacobian(self, theta: Floats) -> Floats:
        """Its gradients, (n, P)."""
        ...

    def fit(self, theta: Floats, mu: Floats, targets: Floats) -> Floats:
        """A minimiser of E_mu[(f - targets)^2], found from `theta`."""
        ...


def loss_gradient(f: Approximator, theta: Floats, mu: Floats, targets: Floats) -> Floats:
    """The gradient of E_mu[(f - y)^2] at `theta`, (P,)."""
    return 2.0 * f.jacobian(theta).T @ (mu * (f.values(theta) - targets))


@dataclass(frozen=True)
class Linear:
    """f = features theta, with the exact argmin."""

    features: Floats
    """(n, P)."""

    def initial(self, rng: np.random.Generator) -> Floats:
        """Zeros."""
        return np.zeros(self.features.shape[1])

    def values(self, theta: Floats) -> Floats:
        """(n,)."""
        return self.features @ theta

    def jacobian(self, theta: Floats) -> Floats:
        """The features."""
        return self.features

    def fit(self, theta: Floats, mu: Floats, targets: Floats) -> Floats:
        """The argmin; of several the one nearest to `theta`, which leaves what was never visited as it was."""
        root = np.sqrt(mu)
        change = np.linalg.lstsq(root[:, None] * self.features, root * (targets - self.features @ theta), rcond=1e-12)
        return theta + change[0]


def tabular(cells: int) -> Linear:
    """One parameter for each cell."""
    return Linear(np.eye(cells))


def random_features(rng: np.random.Generator, cells: int, width: int) -> Linear:
    """Gaussian features; with width < cells most targets cannot be met."""
    return Linear(rng.standard_normal((cells, width)) / np.sqrt(width))


@dataclass(frozen=True)
class NeuralFunction:
    """An MLP of one output on `inputs`; tanh or ReLU, He or Glorot normal kernels, zero biases."""

    inputs: Floats
    """(n, d)."""
    widths: tuple[int, ...] = (32, 32)
    activation: str = "tanh"
    fit_steps: int = 60

    def shapes(self) -> list[tuple[int, int]]:
        """Of each kernel."""
        sizes = (self.inputs.shape[1], *self.widths, 1)
        return list(pairwise(sizes))

    def initial(self, rng: np.random.Generator) -> Floats:
        """Fresh parameters, (P,)."""
        gain = 2.0 if self.activation == "relu" else 1.0
        parts = [(rng.standard_normal(shape) * np.sqrt(gain / shape[0]), np.zeros(shape[1])) for shape in self.shapes()]
        return np.concatenate([part.ravel() for pair in parts for part in pair])

    def layers(self, theta: Floats) -> tuple[list[Floats], list[Floats], Floats]:
        """Of each layer its inputs (n, d_in) and its deltas (n, d_out), and the output (n,)."""
        kernels = list(self._unpack(theta))
        activations, slopes, x = [], [], self.inputs
        for index, (kernel, bias) in enumerate(kernels):
            activations.append(x)
            x = x @ kernel + bias
            if index < len(kernels) - 1:
                x = np.maximum(x, 0.0) if self.activation == "relu" else np.tanh(x)
                slopes.append(np.asarray(x > 0, np.float64) if self.activation == "relu" else 1.0 - x * x)
        deltas = [np.ones((len(self.inputs), 1))]
        for (kernel, _), slope in zip(kernels[:0:-1], slopes[::-1], strict=True):
            deltas.append(deltas[-1] @ kernel.T * slope)
        return activations, deltas[::-1], x[:, 0]

    def values(self, theta: Floats) -> Floats:
        """(n,)."""
        return self.layers(theta)[2]

    def jacobian(self, theta: Floats) -> Floats:
        """(n, P)."""
        activations, deltas, _ = self.layers(theta)
        n = len(self.inputs)
        parts = []
        for a, d in zip(activations, deltas, strict=True):
            parts += [(a[:, :, None] * d[:, None, :]).reshape(n, -1), d]
        return np.concatenate(parts, axis=1)

    def gram(self, theta: Floats) -> Floats:
        """The neural tangent kernel on the inputs, (n, n), by `neoteny.plasticity.ntk`."""
        activations, deltas, _ = self.layers(theta)
        return np.sum([dense_gram(a, d) for a, d in zip(activations, deltas, strict=True)], axis=0)

    def fit(self, theta: Floats, mu: Floats, targets: Floats) -> Floats:
        """A stationary point of the loss, to rounding where the visited cells can be met: Levenberg-Marquardt."""
        seen = mu > 0
        root, damping = np.sqrt(mu[seen]), 1e-2
        error = root * (self.values(theta)[seen] - targets[seen])
        for _ in range(self.fit_steps):
            if float(error @ error) < 1e-28:
                break
            jacobian = root[:, None] * self.jacobian(theta)[seen]
            kernel = jacobian @ jacobian.T
            scale = float(np.trace(kernel)) / len(kernel)
            tried = theta - jacobian.T @ np.linalg.solve(kernel + damping * scale * np.eye(len(kernel)), error)
            new = root * (self.values(tried)[seen] - targets[seen])
            if float(new @ new) < float(error @ error):
                theta, error, damping = tried, new, damping / 10
            else:
                damping *= 10
        return theta

    def descend(self, theta: Floats, mu: Floats, targets: Floats, steps: int, rate: float = 3e-3) -> Floats:
        """`steps` of Adam on the whole loss, as agents are trained: no argmin."""
        first, second = np.zeros_like(theta), np.zeros_like(theta)
        for step in range(1, steps + 1):
            activations, deltas, values = self.layers(theta)
            pull = 2.0 * mu * (values - targets)
            parts = []
            for a, d in zip(activations, deltas, strict=True):
                weighted = d * pull[:, None]
                parts += [(a.T @ weighted).ravel(), weighted.sum(0)]
            gradient = np.concatenate(parts)
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            theta = theta - rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        return theta

    def _unpack(self, theta: Floats) -> Iterator[tuple[Floats, Floats]]:
        start = 0
        for rows, columns in self.shapes():
            middle, end = start + rows * columns, start + rows * columns + columns
            yield theta[start:middle].reshape(rows, columns), theta[middle:end]
            start = end
