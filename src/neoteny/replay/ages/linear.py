"""The paper's two schedules: sample weight decay, and its reverse."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from neoteny.replay.ages.ageing import Describing, Floats
from neoteny.replay.ages.checks import require, require_positive, require_unit

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
        require_unit(self, "min_weight")
        if self.decay_steps == "auto" or self.decay_fraction is not None:
            if self.decay_steps not in ("auto", type(self).decay_steps):
                raise ValueError(
                    f"LinearDecay: give decay_steps or decay_fraction, got {self.decay_steps!r} and "
                    f"{self.decay_fraction!r}"
                )
            object.__setattr__(self, "decay_steps", "auto")
            if self.decay_fraction is None:
                object.__setattr__(self, "decay_fraction", AUTO_FRACTION)
            require(self, "decay_fraction", lambda fraction: 1e-9 <= fraction <= 1e9, "from 1e-9 to 1e9")
            return
        require_positive(self, "decay_steps")
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
        require_positive(self, "decay_steps")
        require_unit(self, "min_weight")

    def weight(self, age: ArrayLike) -> Floats:
        return np.minimum(1.0, self.min_weight + np.asarray(age, np.float64) / self.decay_steps)

    @property
    def reach(self) -> float:
        """The age from which the weight no longer changes."""
        return (1.0 - self.min_weight) * self.decay_steps
