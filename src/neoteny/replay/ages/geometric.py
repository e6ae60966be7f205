"""The geometric law over the ages that are stored: how fast it must fall for what it draws to have a given mean age."""

from __future__ import annotations

import math

_NEWTON_STEPS = 12
"""At most; about five are made."""


def log_loss(mean_age: float, num_stored: float) -> float:
    """-ln q of the law q^a over ages 1 .. n whose mean is `mean_age`; 0, uniform, if the uniform law's is no older.

    The mean is 1 / (1 - q) - n / (q^-n - 1). Newton's method, from a start that is right at both ends.
    """
    n = num_stored
    if 2.0 * mean_age >= n + 1.0:
        return 0.0
    if math.isinf(n):
        return -math.log1p(-1.0 / mean_age)
    share = (mean_age - 0.5) / n
    x = (1.0 - 2.0 * share) * (1.0 / share + 4.0) / n
    for _ in range(_NEWTON_STEPS):
        mean, slope = _geometric_mean(x, n)
        before, x = x, max(x / 8.0, min(8.0 * x, x - (mean - mean_age) / slope))
        if abs(x - before) <= 1e-9 * x:  # the error of Newton's next step is of the order of its square
            break
    return x


def _geometric_mean(loss: float, n: float) -> tuple[float, float]:
    """The mean age of q^a over 1 .. n, q = exp(-loss), and its derivative by loss; by series where both are lost."""
    x = loss * n
    if x < 1e-3:  # differences of nearly equal numbers below
        variance = (n * n - 1.0) / 12.0
        return (n + 1.0) / 2.0 - variance * loss + (n**4 - 1.0) * loss**3 / 720.0, -variance
    one, many = -math.expm1(-loss), math.expm1(x) if x < 700.0 else math.inf
    mean = 1.0 / one - n / many
    if math.isinf(many):
        return mean, -math.exp(-loss) / one**2
    return mean, -math.exp(-loss) / one**2 + n * n * (1.0 + 1.0 / many) / many
