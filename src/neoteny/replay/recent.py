"""Recent draws: the positions that were drawn last, of which the sampled age is reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from neoteny.replay import saved
from neoteny.replay.ageing import Ints

_COUNT = 8_192


class RecentDraws:
    """The last 8,192 positions drawn from a ring of `capacity`."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._drawn: Ints = np.full(_COUNT, -1)
        self._at = 0

    def note(self, positions: Ints) -> None:
        """Remember what was drawn."""
        count = min(len(positions), _COUNT)
        first = min(count, _COUNT - self._at)
        self._drawn[self._at : self._at + first] = positions[:first]
        if first < count:
            self._drawn[: count - first] = positions[first:count]
        self._at = (self._at + count) % _COUNT

    def positions(self) -> Ints:
        """Those remembered, in no order."""
        return self._drawn[self._drawn >= 0]

    def state(self) -> dict[str, Any]:
        """Arrays and numbers."""
        return {"recent": self._drawn.copy(), "recent_at": self._at}

    def restored(self, state: Mapping[str, Any]) -> RecentDraws:
        """The draws that `state` was taken from, or an error."""
        other = RecentDraws(self._capacity)
        other._drawn = saved.array(state, "recent", np.int64, (_COUNT,), -1, self._capacity - 1).copy()
        other._at = saved.whole(state, "recent_at", 0, _COUNT - 1)
        return other
