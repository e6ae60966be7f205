"""The schedules: each a weight for every age, with its equation and where it comes from.

The paper's own two, `LinearDecay` and `LinearGrowth`, are in `neoteny.replay.ages.linear`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from neoteny.replay.ages.ageing import Describing, Floats
from neoteny.replay.ages.checks import require, require_positive, require_unit
from neoteny.replay.ages.geometric import log_loss
from neoteny.replay.ages.linear import AUTO_FRACTION, LinearDecay, LinearGrowth

__all__ = [
    "AUTO_FRACTION",
    "EmphasizeRecent",
    "ExponentialDecay",
    "GeometricDecay",
    "InverseAge",
    "LinearDecay",
    "LinearGrowth",
    "PolynomialDecay",
    "TruncatedGeometric",
    "Uniform",
    "Window",
]


@dataclass(frozen=True)
class ExponentialDecay(Describing):
    """max(min_weight, exp(-(age / decay_steps) / tau)); SWD (ICLR 2026), Table 13.

    Departs from the paper's text, which has the age in raw steps: with tau 1 that meets the floor at age 3
    and is uniform replay. ``decay_steps=1`` gives the paper's text.
    """

    decay_steps: float = 80_000
    """T, the unit in which the age is counted."""
    tau: float = 1.0
    """The time constant, in units of decay_steps."""
    min_weight: float = 0.1
    """The weight that old transitions keep."""

    def __post_init__(self) -> None:
        require_positive(self, "decay_steps")
        require_positive(self, "tau")
        require_unit(self, "min_weight")

    def weight(self, age: ArrayLike) -> Floats:
        age = np.asarray(age, np.float64)
        return np.maximum(self.min_weight, np.exp(-(age / self.decay_steps) / self.tau))

    @property
    def reach(self) -> float:
        """The age from which the weight no longer changes; infinite without a floor."""
        return -self.decay_steps * self.tau * _log(self.min_weight)


@dataclass(frozen=True)
class PolynomialDecay(Describing):
    """max(min_weight, max(0, 1 - age / decay_steps) ** power); SWD (ICLR 2026), Table 13.

    Departs from the paper's text in clipping the base at 0. Unclipped, an even power rises again past
    decay_steps and prefers old data; ``clip=False`` is there only to reproduce the table.
    """

    decay_steps: float = 80_000
    """T, in transitions."""
    power: float = 2.0
    """p, the exponent."""
    min_weight: float = 0.1
    """The weight that old transitions keep."""
    clip: bool = True
    """Whether the base stops at 0."""

    def __post_init__(self) -> None:
        require_positive(self, "decay_steps")
        require_positive(self, "power")
        require_unit(self, "min_weight")
        if not self.clip and self.power != int(self.power):
            raise ValueError(f"PolynomialDecay: power must be a whole number when clip is False, got {self.power!r}")
        if self.clip and self.min_weight == 0 and self.decay_steps <= 1:
            raise ValueError(
                f"PolynomialDecay: decay_steps must be > 1 when min_weight is 0, got {self.decay_steps!r}: "
                "every weight would be 0"
            )

    def weight(self, age: ArrayLike) -> Floats:
        base = 1.0 - np.asarray(age, np.float64) / self.decay_steps
        return np.maximum(self.min_weight, (np.maximum(0.0, base) if self.clip else base) ** self.power)

    @property
    def reach(self) -> float:
        """The age from which the weight no longer changes (with `clip`)."""
        return (1.0 - self.min_weight ** (1.0 / self.power)) * self.decay_steps if self.clip else math.inf


@dataclass(frozen=True)
class GeometricDecay(Describing):
    """max(min_weight, (1 - rate) ** age): the experience-replay decay of FoG, SWD's nearest neighbour."""

    rate: float = 1e-5
    """epsilon, the fraction of its weight that a transition loses each step."""
    min_weight: float = 0.1
    """The weight that old transitions keep."""

    def __post_init__(self) -> None:
        require(self, "rate", lambda rate: 0 < rate < 1, "between 0 and 1, both excluded")
        require_unit(self, "min_weight")

    def weight(self, age: ArrayLike) -> Floats:
        return np.maximum(self.min_weight, np.exp(np.asarray(age, np.float64) * math.log1p(-self.rate)))

    @property
    def reach(self) -> float:
        """The age from which the weight no longer changes; infinite without a floor."""
        return _log(self.min_weight) / math.log1p(-self.rate)


@dataclass(frozen=True)
class TruncatedGeometric(Describing):
    """q ** (age - 1), with q such that the mean age of what is drawn is `mean_age`, whatever the buffer contains.

    It has the largest entropy of all laws over the stored ages with that mean age. While the buffer is so small that
    uniform replay is younger still, it is uniform. `GeometricDecay` with min_weight 0 is the same law with a fixed q.
    """

    mean_age: float = 50_000
    """The mean age of what is drawn, in transitions."""
    uses: ClassVar[tuple[str, ...]] = ("num_stored",)

    def __post_init__(self) -> None:
        require(self, "mean_age", lambda age: 1 < age <= 1e15, "above 1, and at most 1e15")

    def weight(self, age: ArrayLike, num_stored: float = math.inf) -> Floats:
        return np.exp(-self.loss_of(num_stored) * (np.asarray(age, np.float64) - 1.0))

    def loss_of(self, num_stored: float) -> float:
        """-ln q where so many transitions are stored."""
        return log_loss(self.mean_age, num_stored)

    def fixed(self, num_stored: int) -> GeometricDecay | Uniform:
        """The same weights as those of a schedule of the age alone, while so many transitions are stored."""
        loss = self.loss_of(num_stored)
        return GeometricDecay(-math.expm1(-loss), 0.0) if loss > 0 else Uniform()


@dataclass(frozen=True)
class InverseAge(Describing):
    """1 / age."""

    def weight(self, age: ArrayLike) -> Floats:
        return 1.0 / np.asarray(age, np.float64)


@dataclass(frozen=True)
class EmphasizeRecent(Describing):
    """ERE-apx, emphasising recent experience (Wang & Ross 2019), the stationary form of their law.

    With N transitions stored, i the age and E = eta ** 1000:
    1 / max(c_min, N E, i) - 1 / N + [i <= c_min] max(0, ln(c_min / (N E)) / c_min);
    uniform while N <= c_min, where the formula would go negative.
    """

    eta: float = 0.996
    """How strongly recent data are emphasised: 1 not at all."""
    c_min: float = 5_000
    """The least number of newest transitions that a draw ranges over."""
    uses: ClassVar[tuple[str, ...]] = ("num_stored",)

    def __post_init__(self) -> None:
        require(self, "eta", lambda eta: 0 < eta < 1, "between 0 and 1, both excluded")
        require(self, "c_min", lambda c_min: 1 <= c_min < math.inf, "a finite number >= 1")

    def weight(self, age: ArrayLike, num_stored: float = math.inf) -> Floats:
        age = np.asarray(age, np.float64)
        if num_stored <= self.c_min:
            return np.ones_like(age)
        weight = 1.0 / np.maximum(self.range_start(num_stored), age) - 1.0 / num_stored
        return np.maximum(0.0, weight) + np.where(age <= self.c_min, self.bonus(num_stored), 0.0)

    def range_start(self, num_stored: float) -> float:
        """max(c_min, N E): the smallest range of newest transitions that a draw is made from."""
        return max(self.c_min, num_stored * self.eta**1000)

    def bonus(self, num_stored: float) -> float:
        """What the youngest c_min weigh beyond the rest: the draws whose range was cut up to c_min."""
        return max(0.0, math.log(self.c_min) - math.log(num_stored) - 1000 * math.log(self.eta)) / self.c_min

    @property
    def reach(self) -> float:
        """The size of buffer up to which this is uniform."""
        return self.c_min


@dataclass(frozen=True)
class Window(Describing):
    """1 for the newest `steps` transitions, 0 for all older: a sliding window."""

    steps: float = 80_000
    """T, the window's length in transitions."""

    def __post_init__(self) -> None:
        require(self, "steps", lambda steps: 1 <= steps < math.inf, "a finite number >= 1")

    def weight(self, age: ArrayLike) -> Floats:
        return (np.asarray(age) <= self.steps).astype(np.float64)

    @property
    def reach(self) -> float:
        """The window's length."""
        return self.steps


@dataclass(frozen=True)
class Uniform(Describing):
    """1 for every age: ordinary uniform replay."""

    def weight(self, age: ArrayLike) -> Floats:
        return np.ones_like(np.asarray(age, np.float64))


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf
