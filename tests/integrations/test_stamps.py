"""Rows that leave from the middle: every schedule against Algorithm 1 over the stamps that are left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from neoteny import LinearDecay, Schedule, Uniform, Window
from neoteny.integrations import stamps as module
from neoteny.integrations.stamps import StampedRows
from oracles import SCHEDULES, STRICT, p_value, weight_by_hand


def filled(schedule: Schedule, num_envs: int, steps: int, before: int = 0) -> StampedRows:
    """Rows of episodes of 3 to 9 steps in `num_envs` environments; the owners below `before` are dropped."""
    rows, rng = StampedRows(schedule), np.random.default_rng(5)
    owner, left, known = np.arange(num_envs), rng.integers(3, 10, num_envs), num_envs
    for step in range(steps):
        rows.add(np.full(num_envs, step * num_envs), owner)
        left -= 1
        for env in np.flatnonzero(left == 0):
            owner[env], left[env], known = known, rng.integers(3, 10), known + 1
    rows.drop(before, int(np.count_nonzero(rows.owners < before)))
    return rows


def by_hand(schedule: Schedule, stamps: np.ndarray, newest: int) -> np.ndarray:
    weights = np.array([weight_by_hand(schedule, int(newest + 1 - stamp), len(stamps)) for stamp in stamps])
    return weights / weights.sum()


CASES = {"one env": (1, 80, 0), "one env, dropped": (1, 80, 7), "6 envs": (6, 20, 0), "6 envs, with holes": (6, 20, 9)}


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_draws_follow_algorithm_1(schedule: Schedule, case: tuple[int, int, int]) -> None:
    num_envs, steps, before = case
    rows = filled(schedule, num_envs, steps, before)
    law = by_hand(schedule, rows.stamps, (steps - 1) * num_envs)
    drawn = rows.draw(np.random.default_rng(0), 100_000, steps * num_envs)
    assert drawn.dtype == np.int64
    assert p_value(np.bincount(drawn, minlength=len(rows)), law) > STRICT


def test_there_are_holes() -> None:
    """What the cases above are about: some rows among the held ones are gone, and the rest are in order."""
    rows = filled(Uniform(), 6, 20, 9)
    stamps, counts = np.unique(rows.stamps, return_counts=True)
    assert set(counts) > {6}
    assert (rows.owners >= 9).all()
    assert (np.diff(rows.stamps) >= 0).all()
    assert len(stamps) < 20


def test_sums_are_the_same_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROUNDS", 0)
    rows = filled(LinearDecay(40, 0.1), 6, 20, 9)
    drawn = rows.draw(np.random.default_rng(0), 100_000, 120)
    law = by_hand(LinearDecay(40, 0.1), rows.stamps, 114)
    assert p_value(np.bincount(drawn, minlength=len(rows)), law) > STRICT


def test_a_short_newest_step() -> None:
    """Five of its six places are empty: what falls there is drawn again, not given to the last row."""
    rows = StampedRows(Uniform())
    rows.add(np.repeat([0, 6], [6, 1]), np.zeros(7, np.int64))
    counts = np.bincount(rows.draw(np.random.default_rng(0), 10_000, 7), minlength=7)
    assert p_value(counts, np.full(7, 1 / 7)) > STRICT


def test_rows_so_sparse_that_draws_fail_are_summed() -> None:
    rows = StampedRows(Window(2_000_000))
    rows.add(np.array([0]), np.array([9]))
    rows.add(np.array([10**6]), np.array([9]))
    counts = np.bincount(rows.draw(np.random.default_rng(0), 1_000, 10**6 + 1), minlength=2)
    assert p_value(counts, np.array([0.5, 0.5])) > STRICT


def test_a_list_beside_follows() -> None:
    rows = filled(Uniform(), 6, 20)
    beside = list(zip(rows.stamps.tolist(), rows.owners.tolist(), strict=True))
    for before in (1, 2, 9, 14):
        looked, stay = rows.drop(before, int(np.count_nonzero(rows.owners < before)))
        beside[:looked] = [beside[i] for i in stay]
        assert beside == list(zip(rows.stamps.tolist(), rows.owners.tolist(), strict=True))


def test_the_clock_reaches_a_schedule_that_uses_it() -> None:
    @dataclass(frozen=True)
    class OnlyWhenLate:
        uses = ("clock",)

        def weight(self, age: np.ndarray, clock: int) -> np.ndarray:
            return (age == clock - 119).astype(float)

    rows = filled(OnlyWhenLate(), 6, 20, 9)
    assert set(rows.stamps[rows.draw(np.random.default_rng(0), 100, 120)]) == {114}
    rows.add(np.array([120]), np.array([99]))
    assert set(rows.stamps[rows.draw(np.random.default_rng(0), 100, 126)]) == {114}


def test_state_comes_back() -> None:
    rows = filled(LinearDecay(40, 0.1), 6, 20, 9)
    other = StampedRows(LinearDecay(40, 0.1))
    other.restore(rows.state())
    for each in (rows, other):
        each.add(np.full(6, 120), np.full(6, 99))
    drawn, again = (each.draw(np.random.default_rng(0), 100, 126) for each in (rows, other))
    np.testing.assert_array_equal(drawn, again)


def test_nothing_stored_is_said() -> None:
    with pytest.raises(ValueError, match="nothing is stored yet"):
        StampedRows(Uniform()).draw(np.random.default_rng(0), 1, 0)


def test_nothing_that_may_be_drawn_is_said() -> None:
    """The newest rows may be gone: then a window can be empty."""
    rows = StampedRows(Window(1))
    rows.add(np.arange(5), np.array([1, 1, 1, 1, 0]))
    rows.drop(1, 1)
    with pytest.raises(ValueError, match="gives every one of the 4 stored transitions weight 0"):
        rows.draw(np.random.default_rng(0), 1, 5)
