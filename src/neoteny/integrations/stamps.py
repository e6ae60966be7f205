"""Stamps: draws by true age from rows that leave from the middle, so that position is not time.

A ring drops its oldest transition, and position is age. A buffer that drops whole episodes leaves holes: there
each row keeps its stamp, the number of transitions added before its vector step. The newest age is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from neoteny.replay import saved
from neoteny.replay.ages.ageing import Floats, Ints, Schedule, evaluate, positive_total, uses
from neoteny.replay.ages.laws import search
from neoteny.replay.sampling import AgeWeightedSampler

_ROUNDS = 12
"""How often draws that fell into holes are made again before every weight is summed instead."""


class StampedRows:
    """Rows in the order of their stamps, each with its owner, drawn exactly under any schedule.

    An age is drawn from the schedule's law over the ages from 1 to the oldest row's. Of the rows that share it, at most
    m, one of m places is picked evenly; if no row is there, all is drawn again. So a row of age a comes with a
    probability proportional to weight(a) / m, whatever was dropped. A schedule that uses the size or the clock (unless
    it says by ``fixed`` which schedule of the age alone it is at a size), or rows so sparse that most draws fail, take
    a sum over all rows instead: the same law, at a cost linear in the rows.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._sampler = AgeWeightedSampler(schedule)
        self._data: Ints = np.zeros((2, 1024), np.int64)
        self._start = self._end = 0
        self._newest = -1
        self._most = 1
        self._sums: Floats | None = None

    def __len__(self) -> int:
        return self._end - self._start

    @property
    def stamps(self) -> Ints:
        """The stamp of each row, rising."""
        return self._data[0, self._start : self._end]

    @property
    def owners(self) -> Ints:
        """Whose each row is: all rows of an owner are dropped together."""
        return self._data[1, self._start : self._end]

    def add(self, stamps: Ints, owners: Ints) -> None:
        """Append rows; their stamps rise and are larger than any before."""
        count = len(stamps)
        if count == 0:
            return
        if self._end + count > self._data.shape[1]:
            held = self._data[:, self._start : self._end]
            self._data = np.zeros((2, max(2 * (len(self) + count), 1024)), np.int64)
            self._data[:, : held.shape[1]] = held
            self._start, self._end = 0, held.shape[1]
        self._data[0, self._end : self._end + count] = stamps
        self._data[1, self._end : self._end + count] = owners
        self._end += count
        self._newest = int(stamps[-1])
        self._most = max(self._most, _most_alike(stamps))
        self._sums = None

    def drop(self, before: int, count: int) -> tuple[int, Ints]:
        """Drop the rows whose owner is less than `before`, of which there are `count`, among the oldest if possible.

        Returns how many of the oldest rows were looked at, and which of those stay: a list kept beside this one
        follows by ``list[:looked] = [list[i] for i in stay]``.
        """
        looked = min(count, len(self))
        while np.count_nonzero(self.owners[:looked] < before) < count:
            looked = min(2 * looked, len(self))
        stay = np.flatnonzero(self.owners[:looked] >= before)
        end = self._start + looked
        self._data[:, end - stay.size : end] = self._data[:, self._start + stay]
        self._start = end - stay.size
        self._sums = None
        return looked, stay

    def draw(self, rng: np.random.Generator, size: int, clock: int) -> Ints:
        """Draw `size` rows with replacement: 0 the oldest, len - 1 the newest. clock: transitions ever added."""
        if not len(self):
            raise ValueError("nothing is stored yet: add transitions before sampling")
        sampler = self._sampler
        if uses(sampler.schedule):
            fixed = getattr(sampler.schedule, "fixed", None)
            if fixed is None:
                return self._by_sum(rng, size, clock)
            sampler = AgeWeightedSampler(fixed(len(self)))
        stamps = self.stamps
        span = self._newest + 1 - int(stamps[0])
        tries_each = -(-span * self._most // len(self))
        drawn: Ints = np.empty(0, np.int64)
        for _ in range(_ROUNDS):
            missing = size - drawn.size
            tries = min(missing * tries_each + (tries_each > 1) * 16, 1 << 18)
            wanted = self._newest - sampler.positions(rng, tries, span)
            rows = stamps.searchsorted(wanted)
            if self._most > 1:
                rows += rng.integers(0, self._most, tries)
            there = (stamps.take(rows, mode="clip") == wanted) & (rows < len(self))
            accepted = rows[there][:missing]
            drawn = accepted if accepted.size == size else np.concatenate([drawn, accepted])
            if drawn.size == size:
                return drawn
        return np.concatenate([drawn, self._by_sum(rng, size - drawn.size, clock)])

    def weights(self, clock: int) -> Floats:
        """The weight of each row by its age; linear in the rows."""
        ages = self._newest + 1 - self.stamps
        return evaluate(self._sampler.schedule, ages, num_stored=len(self), clock=clock)

    def state(self) -> dict[str, Any]:
        """Everything but the schedule: arrays and a number."""
        return {"stamps": self.stamps.copy(), "owners": self.owners.copy(), "newest": self._newest}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Hold that instead; refused, and nothing changed, if stamps do not rise or rows and owners are not as many."""
        stamps = saved.array(state, "stamps", np.int64, (None,), 0)
        owners = saved.array(state, "owners", np.int64, stamps.shape, 0)
        if (np.diff(stamps) < 0).any():
            raise ValueError("the saved 'stamps' must rise: the oldest row comes first")
        newest = saved.whole(state, "newest", int(stamps[-1]) if stamps.size else -1)
        self._data = np.array([stamps, owners])
        self._start, self._end = 0, len(stamps)
        self._newest = newest
        self._most = _most_alike(self.stamps) if len(self) else 1
        self._sums = None

    def _by_sum(self, rng: np.random.Generator, size: int, clock: int) -> Ints:
        if self._sums is None:
            self._sums = np.cumsum(self.weights(clock))
        total = positive_total(self._sampler.schedule, float(self._sums[-1]), len(self))
        return search(self._sums, rng.random(size) * total)


def _most_alike(stamps: Ints) -> int:
    """The size of the largest group of equal stamps; they are in order."""
    if stamps[0] == stamps[-1]:
        return len(stamps)
    edges = np.flatnonzero(np.diff(stamps, prepend=stamps[0] - 1, append=stamps[-1] + 1))
    return int(np.diff(edges).max(initial=1))
