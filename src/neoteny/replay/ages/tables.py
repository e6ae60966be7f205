"""Tables: the laws of every other schedule, drawn in logarithmic time from prefix sums built once."""

from __future__ import annotations

import math

import numpy as np

from neoteny.replay.ages.ageing import Floats, Ints, Schedule, evaluate, positive_total, uses
from neoteny.replay.ages.laws import per_position, search, spread
from neoteny.replay.ages.schedules import EmphasizeRecent


class TableLaw:
    """Any schedule of the age alone: one prefix sum of its weights, built once, serves every size."""

    def __init__(self, schedule: Schedule, num_envs: int) -> None:
        self._schedule = schedule
        self._num_envs = num_envs
        self._known: Floats = np.zeros(0)
        self._prefix: Floats = np.zeros(0)

    def positions(self, rng: np.random.Generator, size: int, num_stored: int, clock: int | None) -> Ints:
        sums = self._sums(num_stored, clock)
        total = positive_total(self._schedule, sums[-1], num_stored)

        def steps(size: int) -> Ints:
            return search(sums, rng.random(size) * total)

        return spread(steps, rng, size, num_stored, self._num_envs)

    def pmf(self, num_stored: int, clock: int | None) -> Floats:
        sums = self._sums(num_stored, clock)
        total = positive_total(self._schedule, sums[-1], num_stored)
        return per_position(np.diff(sums, prepend=0.0) / total, num_stored, self._num_envs)

    def _sums(self, num_stored: int, clock: int | None) -> Floats:
        """The prefix sums of the weights of the vector steps held, the newest first."""
        groups = -(-num_stored // self._num_envs)
        known = len(self._known)
        if known < groups:
            more = self._weights(np.arange(known, _grown(known, groups)), num_stored, clock)
            self._known = np.concatenate([self._known, more])
            self._prefix = np.cumsum(self._known)  # from the start: its rounding must not depend on how it grew
        return self._prefix[:groups]

    def _weights(self, steps: Ints, num_stored: int, clock: int | None) -> Floats:
        return evaluate(self._schedule, 1 + steps * self._num_envs, num_stored=num_stored, clock=clock)


class SizedTableLaw(TableLaw):
    """A schedule that uses the size or the clock: its table is built anew when what it uses has changed."""

    _built_for: object = None

    def _sums(self, num_stored: int, clock: int | None) -> Floats:
        now = {"num_stored": num_stored, "clock": clock}
        key = (num_stored, *(now[name] for name in uses(self._schedule)))
        if key != self._built_for:
            groups = -(-num_stored // self._num_envs)
            self._prefix = np.cumsum(self._weights(np.arange(groups), num_stored, clock))
            self._built_for = key
        return self._prefix


class EmphasizeRecentLaw:
    """ERE-apx as a mixture over ranges: draw a range k, then a vector step uniformly among the newest k.

    1 / max(c, i) - 1 / N is the sum of 1 / (k (k + 1)) over k from max(c, i) to N - 1, so range k has the
    mass n(k) / (k (k + 1)), with n(k) = 1 + (k - 1) // E the vector steps of age at most k: one prefix
    table over k serves every N. A c that is not whole adds 1/c - 1/ceil(c) to the ages up to it.
    """

    def __init__(self, schedule: EmphasizeRecent, num_envs: int) -> None:
        self._schedule = schedule
        self._num_envs = num_envs
        self._prefix = np.zeros(1)

    def positions(self, rng: np.random.Generator, size: int, num_stored: int, clock: int | None) -> Ints:
        if num_stored <= self._schedule.c_min:
            return rng.integers(0, num_stored, size)
        start, (edge, edge_mass), (young, young_mass) = self._parts(num_stored)
        flat_mass = edge_mass + young_mass
        below, total = self._prefix[start - 1], self._prefix[num_stored - 1]

        def steps(size: int) -> Ints:
            x, y = rng.random((2, size))
            y *= flat_mass + (total - below)
            ranges = 1 + search(self._prefix[1:num_stored], below + (y - flat_mass))
            ranges = np.minimum(ranges, num_stored - 1)  # below + (y - flat_mass) may round up to total
            newest = np.where(y < edge_mass, edge, np.where(y < flat_mass, young, self._count(ranges)))
            return (x * newest).astype(np.int64)

        return spread(steps, rng, size, num_stored, self._num_envs)

    def pmf(self, num_stored: int, clock: int | None) -> Floats:
        if num_stored <= self._schedule.c_min:
            return np.full(num_stored, 1.0 / num_stored)
        start, edge, young = self._parts(num_stored)
        groups = -(-num_stored // self._num_envs)
        p = np.zeros(groups + 1)
        ranges = np.arange(start, num_stored)
        counts = self._count(ranges)
        np.add.at(p, counts - 1, np.diff(self._prefix[start - 1 : num_stored]) / counts)
        for count, mass in (edge, young):
            p[count - 1] += mass / count
        p = np.cumsum(p[::-1])[::-1][:groups]
        return per_position(p, num_stored, self._num_envs)

    def _parts(self, num_stored: int) -> tuple[int, tuple[int, float], tuple[int, float]]:
        """The smallest whole range, and the two flat parts: (vector steps, mass) each."""
        self._grow(num_stored)
        c = self._schedule.range_start(num_stored)
        start = min(math.ceil(c), num_stored)
        edge, young = self._count(np.array([c, self._schedule.c_min], np.int64)).tolist()
        return start, (edge, edge * (1 / c - 1 / start)), (young, young * self._schedule.bonus(num_stored))

    def _count(self, age: Ints) -> Ints:
        return 1 + (age - 1) // self._num_envs

    def _grow(self, num_stored: int) -> None:
        if len(self._prefix) < num_stored:
            k = np.arange(1, _grown(len(self._prefix), num_stored))
            self._prefix = np.concatenate([[0.0], np.cumsum(self._count(k) / (k * (k + 1.0)))])


def _grown(known: int, wanted: int) -> int:
    """How long a table that must hold `wanted` is made: doubled, so that growth costs O(1) an entry."""
    return max(wanted, 2 * known, 1024)
