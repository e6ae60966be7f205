"""Closed forms: the laws of linear and geometric schedules and of windows, drawn in constant time without a table."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from neoteny.replay.ages.ageing import Floats, Ints
from neoteny.replay.ages.laws import per_position, spread
from neoteny.replay.ages.schedules import ExponentialDecay, GeometricDecay, LinearDecay, TruncatedGeometric


@dataclass(frozen=True)
class WindowLaw:
    """Uniform over the newest vector steps whose age is at most `steps`: a window, or all if infinite."""

    steps: float
    num_envs: int

    def positions(self, rng: np.random.Generator, size: int, num_stored: int, clock: int | None) -> Ints:
        return rng.integers(0, self._width(num_stored), size)

    def pmf(self, num_stored: int, clock: int | None) -> Floats:
        width = self._width(num_stored)
        return np.where(np.arange(num_stored) < width, 1.0 / width, 0.0)

    def _width(self, num_stored: int) -> int:
        if self.steps >= num_stored:
            return num_stored
        return min(num_stored, (1 + (int(self.steps) - 1) // self.num_envs) * self.num_envs)


@dataclass(frozen=True)
class LinearDecayLaw:
    """max(w, 1 - age / T) as a mixture of two laws that need no table.

    Of g vector steps the newest q are above the floor. What they weigh beyond it is a line in r that falls
    by s = E / T a step and ends at c >= 0 in r = q - 1: the law of min(x, floor(y)), with x uniform on
    0 .. q-1 and y uniform on [0, L), L = q - 1 + 2 c / s. Its mass is s q L / 2; that of the floor, uniform
    on all g, is w g. One uniform number u picks the part, and what is left of it serves there: as y in the
    first, as the step itself on the floor.
    """

    schedule: LinearDecay
    num_envs: int

    def positions(self, rng: np.random.Generator, size: int, num_stored: int, clock: int | None) -> Ints:
        g, q, length, share = self._parts(num_stored)
        if q == 0:
            return rng.integers(0, num_stored, size)

        # A hair short, so that rounding never lifts the last of the floor to g itself.
        floor_scale = g / (1.0 - share) * (1.0 - 2.0**-50) if share < 1.0 else 0.0

        def steps(size: int) -> Ints:
            u = rng.random(size)
            young = (u < share).nonzero()[0]
            drawn = u - share
            drawn *= floor_scale
            x = rng.random(young.size)
            x *= q
            y = u.take(young)
            y *= length / share
            drawn[young] = np.minimum(x, y, out=x)
            return drawn.astype(np.int64)

        return spread(steps, rng, size, num_stored, self.num_envs)

    def pmf(self, num_stored: int, clock: int | None) -> Floats:
        g, q, length, share = self._parts(num_stored)
        p = np.full(g, (1.0 - share) / g)
        if q:
            p[:q] += share * _falling(q, length)
        return per_position(p, num_stored, self.num_envs)

    def _parts(self, num_stored: int) -> tuple[int, int, float, float]:
        """g, q, L, and the share of draws that fall in the first part."""
        g = -(-num_stored // self.num_envs)
        floor, decay_steps = float(self.schedule.min_weight), self.schedule.steps_of(num_stored)
        q = _steps_to_plateau(decay_steps, floor, self.num_envs, g)
        slope = self.num_envs / decay_steps
        end = max(0.0, 1.0 - floor - (1 + (q - 1) * self.num_envs) / decay_steps)
        length = q - 1 + 2.0 * end / slope
        young = slope * q * length / 2.0
        if young == 0.0:
            return g, 0, 0.0, 0.0
        return g, q, length, young / (young + floor * g)


@dataclass(frozen=True)
class LinearGrowthLaw:
    """min(1, w + age / T) as a mixture of three laws that need no table.

    Beyond w, which is uniform on all g vector steps, the newest q rise by s = E / T a step from 1 / T, which
    is LinearDecayLaw's falling line read backwards; the others weigh 1 - w, uniform on q .. g-1.
    """

    decay_steps: float
    min_weight: float
    num_envs: int

    def positions(self, rng: np.random.Generator, size: int, num_stored: int, clock: int | None) -> Ints:
        g, q, length, rising, old = self._parts(num_stored)

        def steps(size: int) -> Ints:
            x, y = rng.random((2, size))
            flat = np.minimum(np.where(y < rising + old, q + x * (g - q), x * g), g - 1)
            if q == 0:
                return flat.astype(np.int64)
            fall = np.minimum(x * q, y * (length / rising))
            return np.where(y < rising, q - 1 - fall.astype(np.int64), flat.astype(np.int64))

        return spread(steps, rng, size, num_stored, self.num_envs)

    def pmf(self, num_stored: int, clock: int | None) -> Floats:
        g, q, length, rising, old = self._parts(num_stored)
        p = np.full(g, (1.0 - rising - old) / g)
        if q:
            p[:q] += rising * _falling(q, length)[::-1]
        if q < g:
            p[q:] += old / (g - q)
        return per_position(p, num_stored, self.num_envs)

    def _parts(self, num_stored: int) -> tuple[int, int, float, float, float]:
        """g, q, L, and the shares of draws that fall on the rise and on what is older."""
        g = -(-num_stored // self.num_envs)
        q = _steps_to_plateau(self.decay_steps, self.min_weight, self.num_envs, g)
        slope = self.num_envs / self.decay_steps
        length = q - 1 + 2.0 / self.num_envs
        rise = slope * q * length / 2.0
        old = (1.0 - self.min_weight) * (g - q)
        total = rise + old + self.min_weight * g
        return g, q, length, rise / total, old / total


@dataclass(frozen=True)
class GeometricLaw:
    """max(w, q^age) as a mixture of a geometric law, cut at the floor or at the end, and a uniform one on the floor.

    Of g vector steps the newest m are above the floor. Step r of those has the weight q (q^E)^r, whose sums are closed
    and can be inverted; the others weigh w each.
    """

    schedule: GeometricDecay | ExponentialDecay | TruncatedGeometric
    num_envs: int

    def positions(self, rng: np.random.Generator, size: int, num_stored: int, clock: int | None) -> Ints:
        g, m, loss, share = self._parts(num_stored)
        if loss * m < _FLAT:
            return rng.integers(0, num_stored, size)
        span = math.expm1(-loss * m)
        floor_scale = (g - m) / (1.0 - share) if share < 1.0 else 0.0

        def steps(size: int) -> Ints:
            u = rng.random(size)
            if share == 1.0:
                drawn = np.log1p(u * span) / -loss
                return np.minimum(drawn, m - 1, out=drawn).astype(np.int64)
            young = (u < share).nonzero()[0]
            drawn = u - share
            drawn *= floor_scale
            drawn += m
            np.minimum(drawn, g - 1, out=drawn)
            y = u.take(young)
            y *= span / share
            np.log1p(y, out=y)
            y /= -loss
            drawn[young] = np.minimum(y, m - 1, out=y)
            return drawn.astype(np.int64)

        return spread(steps, rng, size, num_stored, self.num_envs)

    def pmf(self, num_stored: int, clock: int | None) -> Floats:
        g, m, loss, share = self._parts(num_stored)
        if loss * m < _FLAT:
            return np.full(num_stored, 1.0 / num_stored)
        p = np.empty(g)
        p[:m] = share * np.exp(-loss * np.arange(m)) * math.expm1(-loss) / math.expm1(-loss * m)
        p[m:] = (1.0 - share) / max(1, g - m)
        return per_position(p, num_stored, self.num_envs)

    def _parts(self, num_stored: int) -> tuple[int, int, float, float]:
        """g, m, -ln q^E, and the share of draws that fall above the floor."""
        g = -(-num_stored // self.num_envs)
        loss, floor = self._numbers(num_stored)
        reach = -math.log(floor) / loss if floor > 0 and loss > 0 else math.inf
        m = g if reach > 1 + (g - 1) * self.num_envs else max(0, math.ceil((reach - 1.0) / self.num_envs))
        loss *= self.num_envs
        if m == 0 or loss == 0.0:
            return g, 0, 0.0, 0.0
        # q (1 - q^{E m}) / (1 - q^E), over the same and w (g - m)
        young = math.exp(-loss / self.num_envs) * math.expm1(-loss * m) / math.expm1(-loss)
        return g, m, loss, young / (young + floor * (g - m))

    def _numbers(self, num_stored: int) -> tuple[float, float]:
        """-ln q and the floor."""
        match self.schedule:
            case GeometricDecay():
                return -math.log1p(-self.schedule.rate), float(self.schedule.min_weight)
            case ExponentialDecay():
                return 1.0 / (self.schedule.decay_steps * self.schedule.tau), float(self.schedule.min_weight)
            case TruncatedGeometric():
                return self.schedule.loss_of(num_stored), 0.0


_FLAT = 1e-14
"""Where weights differ by no more than this the law is uniform, to float64."""


def _steps_to_plateau(decay_steps: float, min_weight: float, num_envs: int, groups: int) -> int:
    """How many of the newest `groups` vector steps have age < (1 - w) T, where the line meets the plateau."""
    ages = (1.0 - min_weight) * decay_steps
    return max(0, min(groups, math.ceil((ages - 1.0) / num_envs)))


def _falling(q: int, length: float) -> Floats:
    """The pmf of min(x, floor(y)), x uniform on 0 .. q-1 and y on [0, length): (length + q - 1 - 2 r) / (q length)."""
    r = np.arange(q, dtype=np.float64)
    return (length + (q - 1) - 2.0 * r) / (q * length)
