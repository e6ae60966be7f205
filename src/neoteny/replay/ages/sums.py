"""Sums of a schedule's weights over ages 1 .. n in closed form: what the newest data's share and the sample size need.

With W1(n) = sum_{a <= n} w(a) and W2(n) = sum_{a <= n} w(a)^2, the newest m of N transitions have the share
W1(m) / W1(N) of the draws, and the effective sample size is W1(N)^2 / W2(N). One environment: with more, ages come in
groups, and both are the same up to num_envs / T. A schedule of any other type, also a subclass of ours, is summed
over its ages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from neoteny.replay.ages.ageing import Schedule, evaluate
from neoteny.replay.ages.schedules import (
    EmphasizeRecent,
    ExponentialDecay,
    GeometricDecay,
    InverseAge,
    LinearDecay,
    LinearGrowth,
    PolynomialDecay,
    TruncatedGeometric,
    Uniform,
    Window,
)

EULER = 0.577215664901532860606512


class Sums(NamedTuple):
    """Of the weights of ages 1 .. n, and of their squares."""

    weights: float
    squares: float


def weight_sums(schedule: Schedule, newest: int, size: int) -> Sums:
    """The sums over the `newest` of `size` transitions held."""
    return _CLOSED.get(type(schedule), _one_by_one)(schedule, newest, size)


def _one_by_one(schedule: Schedule, n: int, size: int) -> Sums:
    weights = evaluate(schedule, np.arange(1, n + 1), num_stored=size, clock=size)
    return Sums(float(weights.sum()), float((weights**2).sum()))


def harmonic(n: int) -> float:
    """sum_{a <= n} 1 / a; from 50 on by its asymptotic series, whose error is under 1e-16."""
    if n < 50:
        return math.fsum(1.0 / a for a in range(1, n + 1))
    return math.log(n) + EULER + 1 / (2 * n) - 1 / (12 * n**2) + 1 / (120 * n**4) - 1 / (252 * n**6)


def harmonic_squares(n: int) -> float:
    """sum_{a <= n} 1 / a^2; from 50 on by its asymptotic series, whose error is under 1e-16."""
    if n < 50:
        return math.fsum(1.0 / a**2 for a in range(1, n + 1))
    return math.pi**2 / 6 - 1 / n + 1 / (2 * n**2) - 1 / (6 * n**3) + 1 / (30 * n**5) - 1 / (42 * n**7)


def _before(reach: float, n: int) -> int:
    """How many of the ages 1 .. n lie before `reach`."""
    return n if reach > n else max(0, math.ceil(reach) - 1)


def _decay(n: int, t: float, w: float) -> Sums:
    """With m ages above the floor: m - m(m+1)/2T + w (n - m)."""
    m = _before((1 - w) * t, n)
    first, second = m * (m + 1) / (2 * t), m * (m + 1) * (2 * m + 1) / (6 * t * t)
    return Sums(m - first + w * (n - m), m - 2 * first + second + w * w * (n - m))


def _growth(n: int, t: float, w: float) -> Sums:
    """With m ages below the plateau: w m + m(m+1)/2T + n - m."""
    m = _before((1 - w) * t, n)
    first, second = m * (m + 1) / (2 * t), m * (m + 1) * (2 * m + 1) / (6 * t * t)
    return Sums(w * m + first + (n - m), w * w * m + 2 * w * first + second + (n - m))


def _geometric(n: int, log_q: float, w: float, reach: float) -> Sums:
    """With m ages above the floor: q (1 - q^m) / (1 - q) + w (n - m), and the same of q^2."""
    m = _before(reach, n)
    first, second = (
        math.exp(rate) * math.expm1(rate * m) / math.expm1(rate) if m else 0.0 for rate in (log_q, 2 * log_q)
    )
    return Sums(first + w * (n - m), second + w * w * (n - m))


def _truncated(n: int, loss: float) -> Sums:
    """The newest of which weighs 1: (1 - q^n) / (1 - q), and the same of q^2."""
    if loss == 0.0:
        return Sums(n, n)
    return Sums(*(math.expm1(-rate * n) / math.expm1(-rate) for rate in (loss, 2 * loss)))


def _polynomial(schedule: PolynomialDecay, n: int, size: int) -> Sums:
    """sum_{a <= m} (T - a)^p = (B_{p+1}(T) - B_{p+1}(T - m)) / (p + 1), with B Bernoulli's polynomials, over T^p.

    For whole powers up to 4, clipped; any other is summed one by one.
    """
    if not schedule.clip or schedule.power not in (1, 2, 3, 4):
        return _one_by_one(schedule, n, size)
    t, p, w = schedule.decay_steps, int(schedule.power), schedule.min_weight
    m = _before(schedule.reach, n)
    if m <= 1_000:  # few ages of a long T would be the difference of two numbers nearly alike
        young = (1 - np.arange(1, m + 1) / t) ** p
        return Sums(float(young.sum()) + w * (n - m), float((young**2).sum()) + w * w * (n - m))
    first, second = (
        (bernoulli(power + 1, t) - bernoulli(power + 1, t - m)) / ((power + 1) * t**power) for power in (p, 2 * p)
    )
    return Sums(first + w * (n - m), second + w * w * (n - m))


def bernoulli(degree: int, x: float) -> float:
    """Bernoulli's polynomial of `degree` up to 9 at x."""
    numbers = (1, -1 / 2, 1 / 6, 0, -1 / 30, 0, 1 / 42, 0, -1 / 30, 0)
    return math.fsum(math.comb(degree, k) * numbers[k] * x ** (degree - k) for k in range(degree + 1))


def _recent(schedule: EmphasizeRecent, n: int, size: int) -> Sums:
    """Constant on three ranges but for 1/a past r = max(c_min, N E): harmonic sums."""
    if size <= schedule.c_min:
        return Sums(n, n)
    start, bonus = schedule.range_start(size), schedule.bonus(size)
    young, flat = min(n, int(schedule.c_min)), min(n, int(start))
    low = max(0.0, 1 / start - 1 / size)
    tail, squares = harmonic(n) - harmonic(flat), harmonic_squares(n) - harmonic_squares(flat)
    return Sums(
        bonus * young + low * flat + tail - (n - flat) / size,
        (low + bonus) ** 2 * young + low**2 * (flat - young) + squares - 2 * tail / size + (n - flat) / size**2,
    )


def _constant(n: int) -> Sums:
    return Sums(n, n)


# By exact type, like the samplers' laws (`sampling.law_of`): a subclass may have its own weight.
_CLOSED: dict[type, Callable[[Any, int, int], Sums]] = {
    Uniform: lambda s, n, size: _constant(n),
    Window: lambda s, n, size: _constant(min(n, int(s.steps))),
    LinearDecay: lambda s, n, size: _decay(n, s.steps_of(size), s.min_weight),
    LinearGrowth: lambda s, n, size: _growth(n, s.decay_steps, s.min_weight),
    ExponentialDecay: lambda s, n, size: _geometric(n, -1.0 / (s.decay_steps * s.tau), s.min_weight, s.reach),
    GeometricDecay: lambda s, n, size: _geometric(n, math.log1p(-s.rate), s.min_weight, s.reach),
    TruncatedGeometric: lambda s, n, size: _truncated(n, s.loss_of(size)),
    PolynomialDecay: _polynomial,
    InverseAge: lambda s, n, size: Sums(harmonic(n), harmonic_squares(n)),
    EmphasizeRecent: _recent,
}
