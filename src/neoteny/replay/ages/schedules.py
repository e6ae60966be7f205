"""The schedules: each a weight for every age, with its equation and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from neoteny.replay.ages.ageing import Describing, Floats

AUTO_FRACTION = 0.1
"""The fraction of what is stored that ``decay_steps="auto"`` makes T."""


@dataclass(frozen=True, repr=False)
class LinearDecay(Describing):
    """Sample weight decay: max(min_weight, 1 - age / decay_steps).

    SWD (ICLR 2026), Algorithm 1. The newest age is 1, so the newest weight is 1 - 1 / decay_steps.

    With ``decay_steps="auto"`` T is a fraction of what is stored, a tenth or `decay_fraction`, and grows with the
    buffer. Such a schedule does the same to a buffer of any size: the newest transition is drawn
    1 / (fraction (1 - w_min)^2 / 2 + w_min) times as often as under uniform replay, and with w_min 0 every transition
    is drawn the same number of times in its life, whenever it was added.
    """

    decay_steps: float | Literal["auto"] = 80_000
    """T, in transitions. The paper has 80,000 for SAC and Double DQN, 100,000 for TD3. "auto": a fraction of what is
    stored."""
    min_weight: float = 0.1
    """w_min, the weight that old transitions keep."""
    decay_fraction: float | None = None
    """T over what is stored, instead of decay_steps; 0.1 if decay_steps is "auto"."""

    def __post_init__(self) -> None:
        _require_unit(self, "min_weight")
        if self.decay_steps == "auto" or self.decay_fraction is not None:
            if self.decay_steps not in ("auto", type(self).decay_steps):
                raise ValueError(
                    f"LinearDecay: give decay_steps or decay_fraction, got {self.decay_steps!r} and "
                    f"{self.decay_fraction!r}"
                )
            object.__setattr__(self, "decay_steps", "auto")
            if self.decay_fraction is None:
                object.__setattr__(self, "decay_fraction", AUTO_FRACTION)
            _require(self, "decay_fraction", lambda fraction: 1e-9 <= fraction <= 1e9, "from 1e-9 to 1e9")
            return
        _require_positive(self, "decay_steps")
        if self.min_weight == 0 and self.decay_steps <= 1:
            raise ValueError(
                f"LinearDecay: decay_steps must be > 1 when min_weight is 0, got {self.decay_steps!r}: "
                "every weight would be 0"
            )

    def __repr__(self) -> str:
        """As the numbers that make it again."""
        t = f"decay_steps={self.decay_steps!r}" if not self.uses else f"decay_fraction={self.decay_fraction!r}"
        return f"LinearDecay({t}, min_weight={self.min_weight!r})"

    @property
    def uses(self) -> tuple[str, ...]:
        """What its weights depend on beyond the age: the size, if T is a fraction of it."""
        return ("num_stored",) if self.decay_fraction is not None else ()

    def steps_of(self, num_stored: float) -> float:
        """T where so many transitions are stored; of a fraction at least 2, so that the newest has a weight."""
        if self.decay_fraction is None:
            return float(self.decay_steps)
        return max(2.0, self.decay_fraction * num_stored)

    def fixed(self, num_stored: int) -> LinearDecay:
        """The same weights as those of a schedule with a T of its own, while so many transitions are stored."""
        return LinearDecay(self.steps_of(num_stored), self.min_weight)

    def weight(self, age: ArrayLike, num_stored: float | None = None) -> Floats:
        if num_stored is None and self.uses:
            raise TypeError(f"{self} depends on what is stored: weight(age, num_stored=...)")
        return np.maximum(self.min_weight, 1.0 - np.asarray(age, np.float64) / self.steps_of(num_stored or 0))

    @property
    def reach(self) -> float:
        """The age from which the weight no longer changes; infinite if it depends on what is stored."""
        return math.inf if self.uses else (1.0 - self.min_weight) * float(self.decay_steps)


@dataclass(frozen=True)
class LinearGrowth(Describing):
    """Sample weight augmentation, the reverse control: min(1, min_weight + age / decay_steps).

    SWD (ICLR 2026), Algorithm 2 (SWA).
    """

    decay_steps: float = 80_000
    """T, in transitions."""
    min_weight: float = 0.1
    """w_min, the weight that the newest transitions start from."""

    def __post_init__(self) -> None:
        _require_positive(self, "decay_steps")
        _require_unit(self, "min_weight")

    def weight(self, age: ArrayLike) -> Floats:
        return np.minimum(1.0, self.min_weight + np.asarray(age, np.float64) / self.decay_steps)

    @property
    def reach(self) -> float:
        """The age from which the weight no longer changes."""
        return (1.0 - self.min_weight) * self.decay_steps


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
        _require_positive(self, "decay_steps")
        _require_positive(self, "tau")
        _require_unit(self, "min_weight")

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
        _require_positive(self, "decay_steps")
        _require_positive(self, "power")
        _require_unit(self, "min_weight")
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
        _require(self, "rate", lambda rate: 0 < rate < 1, "between 0 and 1, both excluded")
        _require_unit(self, "min_weight")

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
        _require(self, "mean_age", lambda age: 1 < age <= 1e15, "above 1, and at most 1e15")

    def weight(self, age: ArrayLike, num_stored: float = math.inf) -> Floats:
        return np.exp(-self.loss_of(num_stored) * (np.asarray(age, np.float64) - 1.0))

    def loss_of(self, num_stored: float) -> float:
        """-ln q where so many transitions are stored."""
        return log_loss(self.mean_age, num_stored)

    def fixed(self, num_stored: int) -> GeometricDecay | Uniform:
        """The same weights as those of a schedule of the age alone, while so many transitions are stored."""
        loss = self.loss_of(num_stored)
        return GeometricDecay(-math.expm1(-loss), 0.0) if loss > 0 else Uniform()


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


_NEWTON_STEPS = 12
"""At most; about five are made."""


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
        _require(self, "eta", lambda eta: 0 < eta < 1, "between 0 and 1, both excluded")
        _require(self, "c_min", lambda c_min: 1 <= c_min < math.inf, "a finite number >= 1")

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
        _require(self, "steps", lambda steps: 1 <= steps < math.inf, "a finite number >= 1")

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


def _require(schedule: object, name: str, allowed: Callable[[float], bool], allowed_in_words: str) -> None:
    value = getattr(schedule, name)
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float, np.integer, np.floating))
        or not allowed(float(value))
    ):
        raise ValueError(f"{type(schedule).__name__}: {name} must be {allowed_in_words}, got {value!r}")


def _require_positive(schedule: object, name: str) -> None:
    _require(schedule, name, lambda value: 0 < value < math.inf, "a finite number > 0")
    # Beyond, closed forms divide infinities, and on the device, in float32, zeros.
    _require(schedule, name, lambda value: 1e-30 <= value <= 1e30, "from 1e-30 to 1e30")


def _require_unit(schedule: object, name: str) -> None:
    _require(schedule, name, lambda value: 0 <= value <= 1, "a number in [0, 1]")


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf
