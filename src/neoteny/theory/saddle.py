"""How long gradient descent stays at a saddle, against the size of its first gradient; SWD (ICLR 2026), Section 4.2.

The paper: a smaller first gradient means a longer stay. Two things it does not say. The stay grows with the logarithm
of 1 / gradient, so a gradient ten times smaller costs a constant number of steps more. And what counts is the
gradient's part along the unstable directions (as the paper it cites has it), not its size: the rest dies out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neoteny.theory.mdp import Floats


@dataclass(frozen=True)
class Escapes:
    """Starts near saddles and what became of them, (starts,) each."""

    steps: Floats
    """Until the unstable coordinate reaches `RADIUS`."""
    unstable: Floats
    """Size of the first gradient along the unstable direction."""
    whole: Floats
    """Size of the whole first gradient."""
    predicted: Floats
    """Steps in closed form: log(RADIUS curvature / unstable) / log(1 + rate curvature)."""


RADIUS = 0.1


def quadratic_saddles(rng: np.random.Generator, problems: int, dimension: int = 6, rate: float = 0.05) -> Escapes:
    """Descent on x' A x / 2 + |x|^4 / 4, A with one negative eigenvalue -c and random axes, from starts of many sizes.

    Near 0 the unstable coordinate grows by 1 + rate c a step.
    """
    curvature = rng.uniform(0.5, 1.5, problems)
    axes = np.linalg.qr(rng.standard_normal((problems, dimension, dimension)))[0]
    spectrum = np.concatenate([-curvature[:, None], rng.uniform(0.2, 2.0, (problems, dimension - 1))], axis=1)
    matrix = (axes * spectrum[:, None, :]) @ axes.transpose(0, 2, 1)
    inside = np.concatenate(
        [10 ** rng.uniform(-7, -2, (problems, 1)), rng.standard_normal((problems, dimension - 1)) * 1e-2], axis=1
    )
    x = (axes @ inside[..., None])[..., 0]
    first = (matrix @ x[..., None])[..., 0]
    direction = axes[..., 0]
    steps = np.full(problems, -1.0)
    for step in range(5_000):
        out = (np.abs((x * direction).sum(-1)) >= RADIUS) & (steps < 0)
        steps[out] = step
        if (steps >= 0).all():
            break
        x = x - rate * ((matrix @ x[..., None])[..., 0] + (x * x).sum(-1, keepdims=True) * x)
    unstable = np.abs((first * direction).sum(-1))
    predicted = np.log(RADIUS * curvature / unstable) / np.log1p(rate * curvature)
    return Escapes(steps, unstable, np.linalg.norm(first, axis=-1), predicted)


def network_saddles(rng: np.random.Generator, problems: int, width: int = 4, rate: float = 0.05) -> Escapes:
    """A two-layer linear network, loss (v'u - 1)^2 / 2, near its saddle at 0: curvature -1 along v = u.

    The unstable coordinates are (u + v) / sqrt 2; together they grow by 1 + rate a step.
    """
    u, v = 10 ** rng.uniform(-7, -2, (problems, 1)) * rng.standard_normal((2, problems, width))
    unstable = np.linalg.norm(u + v, axis=-1) / np.sqrt(2)  # times the curvature, 1
    whole = np.sqrt((u * u).sum(-1) + (v * v).sum(-1))
    steps = np.full(problems, -1.0)
    for step in range(5_000):
        out = (np.linalg.norm(u + v, axis=-1) / np.sqrt(2) >= RADIUS) & (steps < 0)
        steps[out] = step
        if (steps >= 0).all():
            break
        error = (u * v).sum(-1, keepdims=True) - 1.0
        u, v = u - rate * error * v, v - rate * error * u
    return Escapes(steps, unstable, whole, np.log(RADIUS / unstable) / np.log1p(rate))


def slope(sizes: Floats, steps: Floats) -> tuple[float, float]:
    """Steps more for each factor e that `sizes` are smaller, by least squares, and the share of variance explained."""
    x = np.log(1.0 / sizes)
    fitted = float(np.cov(x, steps)[0, 1] / x.var(ddof=1))
    return fitted, float(np.corrcoef(x, steps)[0, 1] ** 2)
